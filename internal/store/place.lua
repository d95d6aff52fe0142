-- One page of delayed, the earliest first. By rank: an offset behind a score is counted off
-- member by member, and a whole mailing list may be due at one time.
-- KEYS 1 delayed   ARGV 1 score, 2 how many of those that have it to pass over, 3 page size
-- Returns {member, score, member, score, ...}
local first = tonumber(ARGV[2])
if ARGV[1] ~= '-inf' then first = first + redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[1]) end
return redis.call('ZRANGE', KEYS[1], first, first + tonumber(ARGV[3]) - 1, 'WITHSCORES')
