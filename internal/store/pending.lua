-- One page of what is pending and idle, with the kind of each, so that a sweep
-- need not read whole jobs.
-- KEYS 1 stream   ARGV 1 group, 2 least idle ms, 3 first id, 4 page size
-- Returns {{id, owner, idle ms, deliveries, kind}, ...}; kind is missing where the
-- entry's body is gone, and '' where it names none.
local page = redis.pcall('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[2], ARGV[3], '+', ARGV[4])
if page.err then return page end
for _, p in ipairs(page) do
  local body = redis.call('XRANGE', KEYS[1], p[1], p[1])[1]
  if body then
    p[5] = ''
    for i = 1, #body[2], 2 do
      if body[2][i] == 'kind' then p[5] = body[2][i + 1] end
    end
  end
end
return page
