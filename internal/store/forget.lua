-- Removes a consumer that owns nothing and does not live. (DELCONSUMER would drop what it
-- owns; Redis tells only of its last job how long ago that was, so an idle one looks dead.)
-- KEYS 1 stream, 2 the worker's hash   ARGV 1 group, 2 consumer
-- Returns 1 where it is gone.
local page = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if page.err then return page end
if page[1] or redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
