-- running -> delayed: another attempt later (or the same one, after a snooze or
-- for a kind not known here).
-- KEYS 1 stream, 2 delayed
-- ARGV 1 group, 2 consumer, 3 id, 4 delay in microseconds, 5 member
-- Returns 1, or 0 where the entry is not the consumer's any more.
local p, err = owned(KEYS[1], ARGV[1], ARGV[3], ARGV[2])
if err then return err end
if not p then return 0 end
if not is(KEYS[2], 'zset') then return wrongtype(KEYS[2], 'sorted set') end
local due = string.format('%.6f', now() + tonumber(ARGV[4]) / 1000000)
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
redis.call('ZADD', KEYS[2], 'NX', due, ARGV[5])
return 1
