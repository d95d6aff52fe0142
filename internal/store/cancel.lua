-- delayed -> gone, by hand.
-- KEYS 1 delayed, 2 audit   ARGV 1 member, 2 n, and n names and values of the record
-- Returns 1, or 0 where the member is gone. Writes the record before it takes away, as runnow does.
if not is(KEYS[2], 'stream') then return wrongtype(KEYS[2], 'stream') end
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
redis.call('ZREM', KEYS[1], '\0nothing')
record(KEYS[2], 2)
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
