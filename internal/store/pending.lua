-- One page of what is pending and idle, with the kind of each, so that a sweep
-- need not read whole jobs. It ends early behind large entries, each of which is read here.
-- KEYS 1 stream   ARGV 1 group, 2 least idle ms, 3 first id, 4 page size
-- Returns {{id, owner, idle ms, deliveries, kind}, ...}, and 1 where there may be more; kind
-- is missing where the entry's body is gone, and '' where it names none.
local page = redis.pcall('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[2], ARGV[3], '+', ARGV[4])
if page.err then return page end
local some, bytes = {}, 0
for i, p in ipairs(page) do
  if bytes > 1048576 then return {some, 1} end
  local body = redis.call('XRANGE', KEYS[1], p[1], p[1])[1]
  if body then
    local kind, size = kindof(body)
    p[5], bytes = kind, bytes + size
  end
  some[i] = p
end
return {some, #page == tonumber(ARGV[4]) and 1 or 0}
