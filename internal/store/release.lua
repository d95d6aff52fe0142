-- running -> ready: cut off by a shutdown. A new entry, so a new delivery count:
-- the process left alive. Adds before it takes away: nothing is lost where that is refused.
-- KEYS 1 stream   ARGV 1 group, 2 consumer, 3 id, 4.. names and values
-- Returns 1, or 0 where the entry is not the consumer's any more.
local p, err = owned(KEYS[1], ARGV[1], ARGV[3], ARGV[2])
if err then return err end
if not p then return 0 end
redis.call('XACK', KEYS[1], ARGV[1], '0-0') -- nothing: from now on nothing is refused for want of memory
redis.call('XADD', KEYS[1], '*', unpack(ARGV, 4))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
return 1
