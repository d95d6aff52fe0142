-- running -> dead. Several entries of one owner, each for itself.
-- KEYS 1 stream, 2 dead
-- ARGV 1 group, 2 owner, 3 least idle ms, 4 deliveries (0: any), 5 how many dead letters are
--      kept, then for each entry (at most 1,000): id, n, and n names and values of the dead letter
-- Returns for each entry the stream ID of its dead letter, '' where the entry is no
-- longer as the caller saw it; and behind them, where there is one, how many old dead
-- letters fell out.
local asked, first, i = {}, {}, 6
while i <= #ARGV do
  asked[#asked + 1], first[#asked + 1] = ARGV[i], i + 2
  i = i + 2 + tonumber(ARGV[i + 1])
end
local mine, err = held(KEYS[1], ARGV[1], asked, ARGV[2])
if err then return err end
local least, deliveries = tonumber(ARGV[3]), tonumber(ARGV[4])
local letters, ids, dying = {}, {}, {}
for k, id in ipairs(asked) do
  letters[k] = ''
  local p = mine[id]
  if p and p[3] >= least and (deliveries == 0 or p[4] == deliveries) then
    ids[#ids + 1], dying[#dying + 1] = id, k
  end
end
if not ids[1] then return letters end
if not is(KEYS[2], 'stream') then return wrongtype(KEYS[2], 'stream') end
redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
redis.call('XDEL', KEYS[1], unpack(ids))
for _, k in ipairs(dying) do
  local last = first[k] + tonumber(ARGV[first[k] - 1]) - 1
  letters[k] = redis.call('XADD', KEYS[2], '*', unpack(ARGV, first[k], last))
end
letters[#letters + 1] = redis.call('XTRIM', KEYS[2], 'MAXLEN', '=', ARGV[5])
return letters
