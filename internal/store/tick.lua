-- A tick becomes a job, once.
-- KEYS 1 sched:<name>:<tick>, 2 sched:<name> (the bookmark: "<tick> <expression>"), 3 stream
-- ARGV 1 worker, 2 the tick in epoch seconds, 3 the expression, 4 the Redis time at
--      which this worker first looked, 5 and 6 seconds to keep lock and bookmark,
--      7 '1': too late, only mark it; 8.. names and values of the job
-- Returns 1 where it was enqueued, else 0.
if not is(KEYS[3], 'stream') then return wrongtype(KEYS[3], 'stream') end
local tick, bookmark = tonumber(ARGV[2]), redis.call('GET', KEYS[2])
local last, expression = string.match(bookmark or '', '^(%-?%d+) (.*)$')
if tick > now() then return redis.error_reply('ERR the tick is not due by this clock: another server answers now?') end
if expression == ARGV[3] and tonumber(last) <= now() then -- else the clock was put back since
  if tick <= tonumber(last) then return 0 end
elseif tick <= tonumber(ARGV[4]) then
  -- Not ours: the name is new, or another expression governs until a tick of ours
  -- comes that is later than our first look.
  if not last then redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. ARGV[3], 'EX', ARGV[6]) end
  return 0
end
local won = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[5])
redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. ARGV[3], 'EX', ARGV[6])
if not won or ARGV[7] == '1' then return 0 end
redis.call('XADD', KEYS[3], '*', unpack(ARGV, 8))
return 1
