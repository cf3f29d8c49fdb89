-- Returns the holder of the key, and its fencing number; and the readers, if it is shared.
-- KEYS: lock. ARGV: counter, readers.
local holder = redis.call('GET', KEYS[1])
-- The counter is optional, and some users may not read it. ZADD with XX and INCR returns a score, counts as a
-- write (fence.lua), and changes nothing: it adds no member, and 0 to its score.
local function score(member)
  return tonumber(redis.pcall('ZADD', ARGV[1], 'XX', 'INCR', 0, member) or 0) or 0
end
local number = score('n')
if holder then
  local noted = number > 0 and score(string.sub(holder, 1, 32)) or 0
  -- If nothing else was recorded, as for a lease that outlives its counter: the number in the token, or else
  -- the counter.
  number = noted > 0 and noted or tonumber(string.match(holder, '^%x+:(%d+) ')) or number
end
if not (number >= 0 and number < 9007199254740992) then number = 0 end
if holder == 'quorlock:shared' then
  local said = {'held', holder, redis.call('PTTL', KEYS[1]), number}
  local time = redis.call('TIME')
  local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
  local readers = redis.pcall('ZRANGEBYSCORE', ARGV[2], now, '+inf', 'LIMIT', 0, 100)
  for place = 1, #readers do said[place + 4] = string.sub(readers[place], 1, 1024) end
  return said
end
if holder then return {'held', string.sub(holder, 1, 4096), redis.call('PTTL', KEYS[1]), number} end
return {'free', number}
