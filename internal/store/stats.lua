-- What is where, of one moment. It only reads, so it is answered also where Redis refuses
-- new data for want of memory (of a MULTI it would then refuse the reads too).
-- KEYS 1 stream, 2 delayed, 3 dead   ARGV 1 group
-- Returns {entries, how many of them are pending, the last delivered id ('' without a
-- group), members of delayed, dead letters, seconds, microseconds}.
local running, last = 0, ''
for _, flat in ipairs(redis.pcall('XINFO', 'GROUPS', KEYS[1])) do
  local g = {}
  for i = 1, #flat, 2 do g[flat[i]] = flat[i + 1] end
  if g.name == ARGV[1] then running, last = g.pending, g['last-delivered-id'] end
end
local t = redis.call('TIME')
return {redis.call('XLEN', KEYS[1]), running, last,
  redis.call('ZCARD', KEYS[2]), redis.call('XLEN', KEYS[3]), tonumber(t[1]), tonumber(t[2])}
