-- Several locks, for the scripts that follow: a script changes all of them or none.
-- KEYS: locks. ARGV: token, TTL in milliseconds, hint or number, lead; then for each lock its tombstone, its
-- mark and its counter. Without fencing the third is empty.
--
-- The holder of each lock is read before anything is written, and that of the conflict by GET, so that a refused client
-- is notified of its next change. Commands can only fail there or with the first writes, which are to counters, when no lock
-- is stored yet: a command after a write is not refused for lack of memory, and the keys are checked for
-- permissions and for their hash slot before the script starts.
local token, fenced = ARGV[1], ARGV[3] ~= ''
local function tombstone(place) return ARGV[2 + 3 * place] end
local function mark(place) return ARGV[3 + 3 * place] end
local function counter_of(place) return ARGV[4 + 3 * place] end
local holders, missing = {}, false
-- Whether a read may have made the server track a missing key: before Redis 7.2 it tracks all declared keys for each.
local tracks_missing = (redis.REDIS_VERSION_NUM or 0) < 0x70200
-- Returns the token that is stored at a key, without it being tracked if the server and the user's rights allow that.
local function read_holder(key)
  local holder = redis.pcall('GETEX', key)
  if type(holder) ~= 'table' then return holder end
  tracks_missing = true
  return call('GET', key)
end
-- Returns the first lock that another client holds, which is tracked.
local function first_conflict()
  for place = 1, #KEYS do
    local holder = read_holder(KEYS[place])
    if holder and holder ~= token then
      holders[place] = call('GET', KEYS[place])
      return place
    end
    holders[place] = holder
    if not holder then missing = true end
  end
end
-- Ends the tracking of missing keys.
local function unread(found)
  for place = 1, #KEYS do
    if not found[place] then untrack(KEYS[place]) end
  end
end
local function held(place)
  local holder, left = string.sub(holders[place], 1, 4096), call('PTTL', KEYS[place])
  -- A refused claim is not released. After the last read. What the client observes on this connection is no longer tracked
  -- then, either.
  if tracks_missing then unread(holders) end
  return {'held', holder, left, fenced and counter(counter_of(place)) or 0, place}
end
-- Returns whether this claim was cancelled, as a whole or for one of its locks.
local function cancelled()
  for place = 1, #KEYS do
    if call('SETRANGE', tombstone(place), 0, '') > 0 then return true end
  end
end
