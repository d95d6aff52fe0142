-- delayed -> ready, by hand, whenever it is due.
-- KEYS 1 delayed, 2 stream, 3 audit
-- ARGV 1 member, 2 n, and n names and values of the record; then names and values of the job
-- Returns 1, or 0 where the member is gone. Adds before it takes away: where that is refused,
-- to a user without the right, nothing has changed.
if not is(KEYS[2], 'stream') then return wrongtype(KEYS[2], 'stream') end
if not is(KEYS[3], 'stream') then return wrongtype(KEYS[3], 'stream') end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
redis.call('ZREM', KEYS[1], '\0nothing') -- from now on nothing is refused for want of memory
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 3 + tonumber(ARGV[2])))
record(KEYS[3], 2)
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
