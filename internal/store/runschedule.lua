-- schedule -> ready, by hand and beside its ticks.
-- KEYS 1 stream, 2 audit
-- ARGV 1 n, and n names and values of the record; then names and values of the job
if not is(KEYS[1], 'stream') then return wrongtype(KEYS[1], 'stream') end
if not is(KEYS[2], 'stream') then return wrongtype(KEYS[2], 'stream') end
redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2 + tonumber(ARGV[1])))
record(KEYS[2], 1)
return 1
