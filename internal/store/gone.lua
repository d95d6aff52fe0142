-- Acknowledges a pending entry whose body was deleted.
-- KEYS 1 stream   ARGV 1 group, 2 id
-- Returns 1 where it was so.
local p, err = pending(KEYS[1], ARGV[1], ARGV[2])
if err then return err end
if not p or redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])[1] then return 0 end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) -- miniredis answers 0 here, and does it
return 1
