-- delayed -> gone, by hand.
-- KEYS 1 delayed, 2 audit   ARGV 1 member, 2 n, and n names and values of the record
-- Returns 1, or 0 where the member is gone.
if not is(KEYS[2], 'stream') then return wrongtype(KEYS[2], 'stream') end
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
record(KEYS[2], 2)
return 1
