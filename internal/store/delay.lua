-- producer -> delayed: due so long after Redis's now.
-- KEYS 1 delayed   ARGV 1 delay in microseconds, 2 member
local due = string.format('%.6f', now() + tonumber(ARGV[1]) / 1000000)
return redis.call('ZADD', KEYS[1], 'NX', due, ARGV[2])
