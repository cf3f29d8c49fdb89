-- The counter of a hash slot's fencing numbers (rule F-1), for the scripts that follow.
--
-- All locks of the slot below a key prefix share it, and it never expires (ADR 4). It is the score of a member of a
-- sorted set, because there is a command that raises a score and never lowers it, which needs no script (ADR 5). It
-- is read by a command that counts as a write, as the tombstone is in acquire.lua. Numbers are exact below 2^53. Each
-- call of a command takes a microsecond, and so do two of a library's functions.
local function counter(key)
  local number = tonumber(call('ZADD', key, 'XX', 'INCR', 0, 'n') or 0)
  if not (number >= 0 and number < 9007199254740991) then
    error('the fencing counter ' .. key .. ' has reached its limit')
  end
  return number
end
-- Records the number issued for a token, if it is not the number in the token itself: an inspection must not return
-- what others have raised the counter to since. Tokens of readers have no number, and no inspection shows one.
local function note(key, token, number)
  local own = tonumber(string.match(token, '^%x+:(%d+)'))
  if not own or own == number then return end
  call('ZADD', key, number, string.sub(token, 1, 32))
  call('ZREMRANGEBYRANK', key, 0, -9)
end
local function raise(key, token, number)
  call('ZADD', key, number, 'n')
  note(key, token, number)
  return number
end
-- Raises the counter to the number of a token that is stored again, and never lowers it: the next holder on this node
-- must get a larger number.
local function raise_for_restored(key, token, number)
  number = tonumber(number)
  if counter(key) < number then raise(key, token, number) else note(key, token, number) end
end
-- Issues the next number for a token. Usually the counter is behind the hint, which one command checks while it raises
-- it (as in ADR 5, from Redis 6.2 on). If it is not, or the hint is too far ahead, or that command is refused, the
-- counter is read.
local function draw(key, token, hint, lead)
  if hint + 0 <= clock() + lead and redis.pcall('ZADD', key, 'GT', 'CH', hint + 1, 'n') == 1 then
    note(key, token, hint + 1)
    return hint + 1
  end
  return raise(key, token, after(counter(key), hint, lead))
end
