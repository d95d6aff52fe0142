-- dead -> gone, by hand.
-- KEYS 1 dead, 2 audit   ARGV 1 stream ID, 2 n, and n names and values of the record
-- Returns 1, or 0 where there is no such dead letter. Writes the record before it takes away,
-- as runnow does.
if not is(KEYS[2], 'stream') then return wrongtype(KEYS[2], 'stream') end
if not redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1] then return 0 end
redis.call('XDEL', KEYS[1], '0-0')
record(KEYS[2], 2)
redis.call('XDEL', KEYS[1], ARGV[1])
return 1
