-- The counter of a lock's fencing numbers (rule F-1), for the scripts that follow.
--
-- It is the score of the one member of a sorted set, because there is a command that raises a score and never
-- lowers it, which needs no script (ADR 16). It is read by a command that counts as a write, as the tombstone
-- is in acquire.lua. It expires when the clock is five minutes past its number (rule F-9); where there is
-- none, no hint is accepted that is further behind the clock (rule F-10): see protocol/fence.rs. Numbers are
-- exact below 2^53. Each call of a command takes a microsecond, and so do two of a library's functions.
local call = redis.call
local function counter(key)
  local number = tonumber(call('ZINCRBY', key, 0, 'n'))
  if not (number >= 0 and number < 9007199254740991) then
    error('the fencing counter ' .. key .. ' has reached its limit')
  end
  return number
end
-- ZINCRBY has created it, if it did not exist.
local function forget(key, number)
  if number == 0 then call('DEL', key) end
end
local function clock()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end
-- The largest number that an expired counter may have had.
local function forgotten() return clock() - 300000000 end
-- Fails if there is no counter, and the hint may be below its last number.
local function bound(key, number, hint)
  if number > 0 or tonumber(hint) >= forgotten() then return end
  forget(key, number)
  error("the client's clock is more than five minutes behind the node's, which has no counter of fencing tokens: " ..
    'set the clocks, by NTP for instance', 0)
end
-- The next number: above the counter and the hint, which is limited to the time here plus a lead.
local function after(number, hint, lead)
  local latest = clock() + lead
  hint = tonumber(hint)
  if hint > latest then hint = latest end
  if hint > number then number = hint end
  return number + 1
end
local function raise(key, number)
  call('ZADD', key, number, 'n')
  call('PEXPIREAT', key, math.ceil(number / 1000) + 300000)
  return number
end
-- Records the number issued for a token, if it is not the number in the token itself: an inspection must not
-- return a counter that other clients have raised since.
local function note(key, token, number, usual)
  if number == usual then return end
  call('ZADD', key, number, string.sub(token, 1, 32))
  call('ZREMRANGEBYRANK', key, 0, -9)
end
-- Issues the next number for a token. Usually the counter is behind the hint, which one command checks while
-- it raises it (as in ADR 16, from Redis 6.2 on). If it is not, or the hint is too far ahead, or that command
-- is refused, the counter is read.
local function draw(key, token, hint, lead)
  local usual, now = hint + 1, clock()
  local usable = usual <= now + lead and hint + 300000000 >= now
  if usable and redis.pcall('ZADD', key, 'GT', 'CH', usual, 'n') == 1 then
    call('PEXPIREAT', key, math.ceil(usual / 1000) + 300000)
    return usual
  end
  local number = counter(key)
  bound(key, number, hint)
  local drawn = after(number, hint, lead)
  note(key, token, drawn, usual)
  return raise(key, drawn)
end
