-- One page of a stream, of which only the kinds travel.
-- KEYS 1 stream   ARGV 1 first id, 2 page size
-- Returns {id, kind, id, kind, ...}; kind is '' where an entry names none.
local kinds = {}
for _, e in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])) do
  local kind = ''
  for i = 1, #e[2], 2 do
    if e[2][i] == 'kind' then kind = e[2][i + 1] end
  end
  kinds[#kinds + 1] = e[1]
  kinds[#kinds + 1] = kind
end
return kinds
