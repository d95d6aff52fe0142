-- running -> running, here: takes over an entry whose lease ran out, or takes up
-- one's own whose delivery never arrived. Everything is asked anew in here: what
-- the sweep saw may be long past.
-- KEYS 1 stream, 2 suspect
-- ARGV 1 group, 2 consumer, 3 id, 4 least idle ms, 5 deliveries seen,
--      6 '1': it is our own, and counted already, 7 '1': only while we hold suspect
-- Returns {deliveries, {name, value, ...}}, or 0 where it is not to be had.
local p, err = pending(KEYS[1], ARGV[1], ARGV[3])
if err then return err end
if not p then return 0 end
local seen, mine = tonumber(ARGV[5]), p[2] == ARGV[2]
local count
if mine and p[4] == seen + 1 then
  count = p[4] -- we have claimed it before, and the reply was lost
elseif ARGV[7] == '1' and redis.call('GET', KEYS[2]) ~= ARGV[2] then
  return 0
elseif ARGV[6] == '1' then
  if mine and p[4] == seen then count = seen end
elseif p[4] == seen and p[3] >= tonumber(ARGV[4]) then
  count = seen + 1
end
if not count then return 0 end
local body = redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3])[1]
if not body then
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
  return 0
end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[3], 'IDLE', 0, 'RETRYCOUNT', count, 'JUSTID')
if ARGV[7] == '1' and redis.call('GET', KEYS[2]) == ARGV[2] then redis.call('DEL', KEYS[2]) end
return {count, body[2]}
