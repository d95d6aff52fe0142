-- dead -> gone: dead for too long, by Redis's clock.
-- KEYS 1 dead   ARGV 1 for how many ms dead letters are kept
-- Returns how many were dropped.
return redis.call('XTRIM', KEYS[1], 'MINID', '=', string.format('%.0f', math.max(0, now() * 1000 - tonumber(ARGV[1]))))
