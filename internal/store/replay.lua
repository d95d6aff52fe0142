-- dead -> ready. Looks, adds, and only then deletes: two people replay once, and
-- where Redis refuses new data nothing has changed.
-- KEYS 1 dead, 2 stream, 3 audit
-- ARGV 1 stream ID of the dead letter, 2 n, and n names and values of the record; then
--      names and values of the job
-- Returns 1, or 0 where there is no such dead letter.
if not redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1] then return 0 end
if not is(KEYS[2], 'stream') then return wrongtype(KEYS[2], 'stream') end
if not is(KEYS[3], 'stream') then return wrongtype(KEYS[3], 'stream') end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 3 + tonumber(ARGV[2])))
record(KEYS[3], 2)
redis.call('XDEL', KEYS[1], ARGV[1])
return 1
