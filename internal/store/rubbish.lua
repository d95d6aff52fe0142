-- delayed -> dead: a member that cannot be read as a job.
-- KEYS 1 delayed, 2 dead
-- ARGV 1 member, 2 how many dead letters are kept, 3.. names and values
-- Returns {stream ID of the dead letter, how many old ones fell out}, {} where the member
-- is gone.
if not is(KEYS[2], 'stream') then return wrongtype(KEYS[2], 'stream') end
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return {} end
local before = redis.call('XLEN', KEYS[2])
local entry = redis.call('XADD', KEYS[2], 'MAXLEN', '=', ARGV[2], '*', unpack(ARGV, 3))
return {entry, before + 1 - redis.call('XLEN', KEYS[2])}
