-- Takes or renews the right to be the one worker that empties itself for a suspect, for
-- as long as that is to be had, or gives it back.
-- KEYS 1 suspect, 2 stream
-- ARGV 1 consumer, 2 for how many ms (0: give it back),
--      3 group, 4 id of the suspect, 5 deliveries seen, 6 least idle ms
-- Returns 1 where the consumer holds (or held) it.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
local wanted = ARGV[2] ~= '0'
local p, err
if wanted then p, err = pending(KEYS[2], ARGV[3], ARGV[4]) end
if err then return err end
if not p or p[4] ~= tonumber(ARGV[5]) or p[3] < tonumber(ARGV[6]) then
  if holder then redis.call('DEL', KEYS[1]) end
  return wanted and 0 or 1
end
if holder then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  redis.call('DEL', KEYS[1]) -- nothing is there; but from now on nothing is refused for want of memory
  redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
end
return 1
