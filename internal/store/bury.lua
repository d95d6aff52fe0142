-- running -> dead. Several entries, each for itself.
-- KEYS 1 stream, 2 dead
-- ARGV 1 group, 2 how many dead letters are kept, then for each entry (at most 1,000):
--      id, owner, least idle ms, deliveries (0: any), n, and n names and values of the
--      dead letter
-- Returns for each entry the stream ID of its dead letter, '' where the entry is no
-- longer as the caller saw it; and behind them, where there is one, how many old dead
-- letters fell out.
local letters, ids, mine, i = {}, {}, {}, 3
while i <= #ARGV do
  local p, err = owned(KEYS[1], ARGV[1], ARGV[i], ARGV[i + 1])
  if err then return err end
  local deliveries, n = tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4])
  letters[#letters + 1] = ''
  if p and p[3] >= tonumber(ARGV[i + 2]) and (deliveries == 0 or p[4] == deliveries) then
    ids[#ids + 1] = ARGV[i]
    mine[#mine + 1] = {#letters, i + 5, i + 4 + n}
  end
  i = i + 5 + n
end
if not ids[1] then return letters end
if not is(KEYS[2], 'stream') then return wrongtype(KEYS[2], 'stream') end
local before = redis.call('XLEN', KEYS[2])
redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
redis.call('XDEL', KEYS[1], unpack(ids))
for _, m in ipairs(mine) do
  letters[m[1]] = redis.call('XADD', KEYS[2], 'MAXLEN', '=', ARGV[2], '*', unpack(ARGV, m[2], m[3]))
end
letters[#letters + 1] = before + #ids - redis.call('XLEN', KEYS[2])
return letters
