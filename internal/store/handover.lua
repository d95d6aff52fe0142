-- running -> running, elsewhere: the handler has not returned and the process is
-- about to leave. The entry looks as if its lease had run out, and this delivery
-- is not held against it, however often this is asked for.
-- KEYS 1 stream   ARGV 1 group, 2 consumer, 3 id, 4 number of the delivery, 5 lease in ms
-- Returns 1, or 0 where the entry is not the consumer's any more.
local p, err = owned(KEYS[1], ARGV[1], ARGV[3], ARGV[2])
if err then return err end
if not p then return 0 end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3],
  'IDLE', ARGV[5], 'RETRYCOUNT', math.min(p[4], tonumber(ARGV[4]) - 1), 'JUSTID')
return 1
