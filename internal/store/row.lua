-- outbox -> dead: a row that cannot be read as a job.
-- KEYS 1 dead
-- ARGV 1 how many dead letters are kept, 2.. names and values
-- Returns {stream ID of the dead letter, how many old ones fell out}.
if not is(KEYS[1], 'stream') then return wrongtype(KEYS[1], 'stream') end
local before = redis.call('XLEN', KEYS[1])
local entry = redis.call('XADD', KEYS[1], 'MAXLEN', '=', ARGV[1], '*', unpack(ARGV, 2))
return {entry, before + 1 - redis.call('XLEN', KEYS[1])}
