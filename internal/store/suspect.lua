-- Takes or renews the right to be the one worker that empties itself for a
-- suspect, or gives it back. Renewed with PEXPIRE, which Redis does not refuse
-- for want of memory.
-- KEYS 1 suspect   ARGV 1 consumer, 2 for how many ms (0: give it back)
-- Returns 1 where the consumer holds (or held) it.
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then
  if holder then redis.call('DEL', KEYS[1]) end
elseif holder then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
end
return 1
