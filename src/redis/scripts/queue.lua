-- The queue of those who wait for a lock, for the scripts that follow (ADR 25). Its keys begin like the mark: a
-- sorted set of names, by when each began to wait; for each name a key that lives for as long as it is waited
-- for, which it has read (CLIENT TRACKING); and when somebody was told last that it is its turn.
--
-- They are touched by commands that write, as the tombstone is in acquire.lua: else the server would remember
-- them for every waiter, and tell each of the others' every move.

-- Tells the first who lives, by deleting its key, and says whether anybody waits. No more than 32 are dropped who
-- have died, so that no script takes long: then those who live find out by asking. What is refused costs a heartbeat.
local function tell_next(mark)
  for _ = 1, 32 do
    local name = redis.pcall('ZPOPMIN', mark .. ':order')[1]
    if not name then return false end
    if redis.pcall('DEL', mark .. ':' .. name) == 1 then break end
  end
  local time = redis.call('TIME')
  local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  redis.pcall('SET', mark .. ':told', now, 'PX', 6000)
  redis.pcall('SET', mark, '1', 'PX', 6000)
  return true
end
