-- One page of a stream, of which only the kinds travel. It ends early behind large entries,
-- each of which is read.
-- KEYS 1 stream   ARGV 1 first id, 2 page size
-- Returns {id, kind, id, kind, ...}; kind is '' where an entry names none. None: the end.
local kinds, from, bytes = {}, ARGV[1], 0
repeat
  local few = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 4)
  for _, e in ipairs(few) do
    local kind, size = kindof(e)
    bytes = bytes + size
    kinds[#kinds + 1] = e[1]
    kinds[#kinds + 1] = kind
    from = '(' .. e[1]
  end
until not few[1] or #kinds >= 2 * tonumber(ARGV[2]) or bytes > 1048576
return kinds
