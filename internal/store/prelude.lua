-- What scripts share. A script gets the functions that it calls; each begins and ends a line,
-- and stands behind those that it calls itself.

-- Whether key holds a want, or nothing yet. Asked before anything is taken
-- away: a script that fails half way keeps its earlier writes.
local function is(key, want)
  local t = redis.call('TYPE', key)
  t = t.ok or t
  return t == want or t == 'none'
end

local function wrongtype(key, want)
  return redis.error_reply('WRONGTYPE ' .. key .. ' is not a ' .. want)
end

-- The pending entry id as {id, owner, idle ms, deliveries}; nil where it is not
-- pending; second, an error to return as it is (its prefix is then kept).
local function pending(stream, group, id)
  local page = redis.pcall('XPENDING', stream, group, id, id, 1)
  if page.err then return nil, page end
  return page[1], nil
end

-- The same, where owner is still its owner.
local function owned(stream, group, id, owner)
  local p, err = pending(stream, group, id)
  if p and p[2] ~= owner then p = nil end
  return p, err
end

-- Those of ids that owner holds, by id, each as {id, owner, idle ms, deliveries}. Many are found
-- by one look at what it holds, as long as that is not much more.
local function held(stream, group, ids, owner)
  local all, most = {}, 2 * #ids
  if #ids > 4 then
    local page = redis.pcall('XPENDING', stream, group, '-', '+', most, owner)
    if page.err then return nil, page end
    for _, p in ipairs(page) do all[p[1]] = p end
    if #page < most then return all end
  end
  for _, id in ipairs(ids) do
    local p, err = all[id], nil
    if not p then p, err = owned(stream, group, id, owner) end
    if err then return nil, err end
    all[id] = p
  end
  return all
end

-- The kind of an entry as XRANGE returns it, '' where it names none, and how many bytes it has.
local function kindof(entry)
  local kind, bytes = '', 0
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'kind' then kind = entry[2][i + 1] end
    bytes = bytes + #entry[2][i] + #entry[2][i + 1]
  end
  return kind, bytes
end

-- Redis's clock in epoch seconds.
local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) + tonumber(t[2]) / 1000000
end

-- Writes the audit trail, of which 20,000 records are kept: a replay of all dead letters writes
-- 10,000, and must leave what was done before. ARGV[first] is how many names and values
-- follow it. Called once the script has written something else: what Redis refuses
-- for want of memory is refused there, and nothing has changed; from then on it refuses
-- nothing.
local function record(key, first)
  redis.call('XADD', key, 'MAXLEN', '=', 20000, '*', unpack(ARGV, first + 1, first + tonumber(ARGV[first])))
end
