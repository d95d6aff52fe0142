-- running -> delayed: another attempt later (or the same one, after a snooze or
-- for a kind not known here). Several entries, each for itself.
-- KEYS 1 stream, 2 delayed
-- ARGV 1 group, 2 consumer, then for each entry (at most 1,000): id, delay in
--      microseconds, member
-- Returns for each 1, or 0 where the entry is not the consumer's any more.
local asked = {}
for i = 3, #ARGV, 3 do asked[#asked + 1] = ARGV[i] end
local mine, err = held(KEYS[1], ARGV[1], asked, ARGV[2])
if err then return err end
local written, ids, members = {}, {}, {}
local clock = now()
for i = 3, #ARGV, 3 do
  local p = mine[ARGV[i]]
  written[#written + 1] = p and 1 or 0
  if p then
    ids[#ids + 1] = ARGV[i]
    members[#members + 1] = string.format('%.6f', clock + tonumber(ARGV[i + 1]) / 1000000)
    members[#members + 1] = ARGV[i + 2]
  end
end
if not ids[1] then return written end
if not is(KEYS[2], 'zset') then return wrongtype(KEYS[2], 'sorted set') end
redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
redis.call('XDEL', KEYS[1], unpack(ids))
redis.call('ZADD', KEYS[2], 'NX', unpack(members))
return written
