-- running -> dead.
-- KEYS 1 stream, 2 dead
-- ARGV 1 group, 2 owner, 3 id, 4 least idle ms, 5 deliveries (0: any), 6 how many
--      dead letters are kept, 7.. names and values of the dead letter
-- Returns {stream ID of the dead letter, how many old ones fell out}, or 0 where
-- the entry is no longer as the caller saw it.
local p, err = owned(KEYS[1], ARGV[1], ARGV[3], ARGV[2])
if err then return err end
if not p or p[3] < tonumber(ARGV[4]) then return 0 end
local deliveries = tonumber(ARGV[5])
if deliveries > 0 and p[4] ~= deliveries then return 0 end
if not is(KEYS[2], 'stream') then return wrongtype(KEYS[2], 'stream') end
local before = redis.call('XLEN', KEYS[2])
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
local entry = redis.call('XADD', KEYS[2], 'MAXLEN', '=', ARGV[6], '*', unpack(ARGV, 7))
return {entry, before + 1 - redis.call('XLEN', KEYS[2])}
