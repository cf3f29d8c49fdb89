-- The counter of a lock's fencing tokens (rule F-1), for the scripts that follow.
--
-- It is the score of the one member of a sorted set, because there is a command that raises a score and
-- never lowers it, and needs no script (ADR 16). It is read by a command that counts as a write, like
-- the tombstone in acquire.lua. It expires a day after its last change, which is longer than any two
-- clocks may differ; see protocol/fence.rs. Numbers are exact below 2^53. Each call of a command takes
-- a microsecond, and so do two library functions.
local call = redis.call
local function counter(key)
  local number = tonumber(call('ZINCRBY', key, 0, 'n'))
  if not (number >= 0 and number < 9007199254740991) then
    error('the fencing counter ' .. key .. ' is at its end')
  end
  return number
end
-- ZINCRBY has created it, if it was missing.
local function forget(key, number)
  if number == 0 then call('DEL', key) end
end
-- The next number: above the counter and the hint, which is limited to the time here plus a lead.
local function after(number, hint, lead)
  local time = call('TIME')
  local latest = time[1] * 1000000 + time[2] + lead
  hint = tonumber(hint)
  if hint > latest then hint = latest end
  if hint > number then number = hint end
  return number + 1
end
local function raise(key, number)
  call('ZADD', key, number, 'n')
  call('PEXPIRE', key, 86400000)
  return number
end
-- Notes the number drawn for a token, if it differs from the one that the token implies: a client that
-- asks for the holder's number must not get a counter that others have raised meanwhile.
local function note(key, token, number, usual)
  if number == usual then return end
  call('ZADD', key, number, string.sub(token, 1, 32))
  call('ZREMRANGEBYRANK', key, 0, -9)
end
-- Draws the next number for a token. Usually the counter is below the hint, which one command detects
-- while it raises the counter (as in ADR 16, from Redis 6.2 on); if it is not, or the hint is too far
-- ahead, or that command is refused, the counter is read.
local function draw(key, token, hint, lead)
  local usual, time = hint + 1, call('TIME')
  if usual <= time[1] * 1000000 + time[2] + lead and redis.pcall('ZADD', key, 'GT', 'CH', usual, 'n') == 1 then
    call('PEXPIRE', key, 86400000)
    return usual
  end
  local drawn = after(counter(key), hint, lead)
  note(key, token, drawn, usual)
  return raise(key, drawn)
end
