-- Stands in front of the scripts that do what a person asks for.

-- Writes the audit trail, of which 10,000 records are kept. ARGV[first] is how many names
-- and values follow it. Called once the script has written something else: what Redis refuses
-- for want of memory is refused there, and nothing has changed; from then on it refuses
-- nothing. Returns the place behind the record in ARGV.
local function record(key, first)
  local last = first + tonumber(ARGV[first])
  redis.call('XADD', key, 'MAXLEN', '=', 10000, '*', unpack(ARGV, first + 1, last))
  return last + 1
end

