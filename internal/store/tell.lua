-- A worker describes itself, and counts what has ended in it.
-- KEYS 1 the worker's hash, 2 the minute's, 3 stream, 4 delayed, 5 dead
-- ARGV 1 group, 2 consumer, 3 for how many ms the description lives (0: the worker leaves),
--      4 number of the counts, which are made once however often they come,
--      5 '1': the depths too, where the minute has none,
--      6 n, and n names and values of the description; then names and numbers of the counts
local first = 7 + tonumber(ARGV[6])
local fresh = first <= #ARGV and redis.call('HGET', KEYS[1], 'counted') ~= ARGV[4]
if ARGV[3] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[3]) -- first: it lives on, and what follows is not refused for want of memory
  if first > 7 and redis.call('HSET', KEYS[1], 'counted', ARGV[4], unpack(ARGV, 7, first - 1)) == (first - 7) / 2 + 1 then
    -- New: it is to be in the list of consumers before its first read. (miniredis has only
    -- those there that own something.)
    redis.pcall('XGROUP', 'CREATECONSUMER', KEYS[3], ARGV[1], ARGV[2])
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
if fresh then
  for i = first, #ARGV, 2 do redis.call('HINCRBY', KEYS[2], ARGV[i], ARGV[i + 1]) end
  redis.call('EXPIRE', KEYS[2], 86400)
end
if ARGV[5] == '1' and redis.call('HEXISTS', KEYS[2], 'ready') == 0 then
  local running, last = 0, ''
  for _, flat in ipairs(redis.pcall('XINFO', 'GROUPS', KEYS[3])) do
    local g = {}
    for i = 1, #flat, 2 do g[flat[i]] = flat[i + 1] end
    if g.name == ARGV[1] then running, last = g.pending, g['last-delivered-id'] end
  end
  local ready, oldest = math.max(0, redis.call('XLEN', KEYS[3]) - running), 0
  if ready > 0 then
    local e = redis.call('XRANGE', KEYS[3], last == '' and '-' or '(' .. last, '+', 'COUNT', 1)[1]
    if e then oldest = math.max(0, now() * 1000 - tonumber(string.match(e[1], '^%d+'))) end
  end
  redis.call('HSET', KEYS[2], 'ready', ready, 'running', running,
    'delayed', redis.call('ZCARD', KEYS[4]), 'dead', redis.call('XLEN', KEYS[5]),
    'oldest', string.format('%.0f', oldest))
  redis.call('EXPIRE', KEYS[2], 86400)
end
return 1
