-- Several locks at once, for the scripts that follow: what is done is done at all of them or at none.
-- KEYS: locks. ARGV: token, TTL or life in milliseconds, hint or number, lead; then for each lock its
-- tombstone, its mark and its counter. Without fencing the third is empty.
--
-- Who holds each lock is read by GET before anything is written, so that whoever is refused is told
-- of its next change. What can fail, fails there or with the first write, when nothing is stored yet:
-- what follows a write is not refused for want of memory, and the keys are checked before the script
-- begins for rights and for their hash slot.
local token, fenced = ARGV[1], ARGV[3] ~= ''
local function tombstone(place) return ARGV[2 + 3 * place] end
local function mark(place) return ARGV[3 + 3 * place] end
local function counter_of(place) return ARGV[4 + 3 * place] end
local holders, missing = {}, false
-- The first lock that somebody else holds.
local function in_the_way()
  for place = 1, #KEYS do
    local holder = call('GET', KEYS[place])
    if holder and holder ~= token then
      holders[place] = holder
      return place
    end
    holders[place] = holder
    if not holder then missing = true end
  end
end
-- Where the counter stands. It is not made where it was not there.
local function stands(place)
  local number = counter(counter_of(place))
  forget(counter_of(place), number)
  return number
end
-- As in queue.lua, of those that are not there.
local function unread(found)
  for place = 1, #KEYS do
    if not found[place] then
      redis.pcall('SET', KEYS[place], '', 'PX', 1)
      redis.pcall('DEL', KEYS[place])
    end
  end
end
local function held(place)
  local holder, left = string.sub(holders[place], 1, 4096), call('PTTL', KEYS[place])
  return {'held', holder, left, fenced and stands(place) or 0, place}
end
-- Whether this claim was cancelled, as a whole or at one of its locks.
local function cancelled()
  for place = 1, #KEYS do
    if call('SETRANGE', tombstone(place), 0, '') > 0 then return true end
  end
end
local function raise_all(number, usual)
  for place = 1, #KEYS do
    note(counter_of(place), token, number, usual)
    raise(counter_of(place), number)
  end
  return number
end
