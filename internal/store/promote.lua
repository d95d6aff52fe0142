-- delayed -> ready, for members that are due.
-- Asks the score itself: a member read earlier may have been moved and added anew.
-- KEYS 1 delayed, 2 stream
-- ARGV for each member: member, n, and n names and values
-- Returns how many were moved.
if not is(KEYS[2], 'stream') then return wrongtype(KEYS[2], 'stream') end
local limit = now()
local moved, i = 0, 1
while i <= #ARGV do
  local n = tonumber(ARGV[i + 1])
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  local due = score and (score == '-inf' or (tonumber(score) or math.huge) <= limit)
  if due and redis.call('ZREM', KEYS[1], ARGV[i]) == 1 then
    redis.call('XADD', KEYS[2], '*', unpack(ARGV, i + 2, i + 1 + n))
    moved = moved + 1
  end
  i = i + 2 + n
end
return moved
