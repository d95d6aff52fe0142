-- Removes a consumer that owns nothing. (DELCONSUMER would drop what it owns.)
-- KEYS 1 stream   ARGV 1 group, 2 consumer
-- Returns 1 where it is gone.
local page = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if page.err then return page end
if page[1] then return 0 end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
