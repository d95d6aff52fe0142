-- Renews the leases of what the consumer still owns, without counting a delivery.
-- KEYS 1 stream   ARGV 1 group, 2 consumer, 3.. ids (at most 1,000)
-- Returns the ids that are another's, or gone. What is there and nobody's, since the group
-- was made again or Redis has lost a write, is about to be delivered anew.
local lost = {}
for i = 3, #ARGV do
  local p, err = pending(KEYS[1], ARGV[1], ARGV[i])
  if err then return err end
  if p and p[2] == ARGV[2] then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i],
      'IDLE', 0, 'RETRYCOUNT', p[4], 'JUSTID')
  elseif p or not redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])[1] then
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
