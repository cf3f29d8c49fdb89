-- The choice of the next fencing number (rule F-7), for the scripts that follow.
local call = redis.call
local function clock()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end
-- The next number: above the counter and the hint, or, if that is further ahead of the clock here than the lead, above
-- the clock.
local function after(number, hint, lead)
  local now = clock()
  hint = tonumber(hint)
  if hint > now + lead then hint = now end
  return math.max(number, hint) + 1
end
