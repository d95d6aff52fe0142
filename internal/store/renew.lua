-- Renews the leases of what the consumer still owns, without counting a delivery.
-- KEYS 1 stream   ARGV 1 group, 2 consumer, 3.. ids (at most 1,000)
-- Returns the ids that it owns no more.
local lost = {}
for i = 3, #ARGV do
  local p, err = owned(KEYS[1], ARGV[1], ARGV[i], ARGV[2])
  if err then return err end
  if p then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i],
      'IDLE', 0, 'RETRYCOUNT', p[4], 'JUSTID')
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
