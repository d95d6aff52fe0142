-- dead -> ready. Looks, adds, and only then deletes: two people replay once, and
-- where Redis refuses new data nothing has changed.
-- KEYS 1 dead, 2 stream   ARGV 1 stream ID of the dead letter, 2.. names and values
-- Returns 1, or 0 where there is no such dead letter.
if not redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1] then return 0 end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
redis.call('XDEL', KEYS[1], ARGV[1])
return 1
