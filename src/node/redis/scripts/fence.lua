-- The counter of a lock's fencing tokens (rule F-1), for the scripts that follow.
--
-- It is read by a command that counts as a write, as the tombstone is in acquire.lua. It lives for a
-- day after its last change, which is longer than any two clocks may differ; see protocol/fence.rs.
-- Numbers are exact below 2^53. Each call of a command is a microsecond, and so are two of a
-- library's functions.
local call = redis.call
local function counter(key)
  local number = call('INCRBY', key, 0)
  if number < 0 or number >= 9007199254740991 then error('the fencing counter ' .. key .. ' is at its end') end
  return number
end
-- INCRBY has made it, if it was not there.
local function forget(key, number)
  if number == 0 then call('DEL', key) end
end
-- The next number: above the counter and the hint, which is cut to the time here and a lead.
local function after(number, hint, lead)
  local time = call('TIME')
  local latest = time[1] * 1000000 + time[2] + lead
  hint = tonumber(hint)
  if hint > latest then hint = latest end
  if hint > number then number = hint end
  return number + 1
end
local function raise(key, number)
  call('SET', key, number, 'PX', 86400000)
  return number
end
