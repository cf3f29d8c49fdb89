-- Tells who holds the key, and where its counter stands; and, if readers do, who they are.
-- KEYS: lock. ARGV: counter, readers.
local holder = redis.call('GET', KEYS[1])
-- The counter is of interest only, and not everybody may read it. It is read by commands that count as
-- writes, as in fence.lua; PEXPIRE tells whether it is there, so that none is made.
local number = 0
local function score(member) return tonumber(redis.pcall('ZINCRBY', ARGV[1], 0, member)) or 0 end
if redis.pcall('PEXPIRE', ARGV[1], 86400000) == 1 then
  if holder then number = score(string.sub(holder, 1, 32)) end
  if number == 0 then
    if holder then redis.pcall('ZREM', ARGV[1], string.sub(holder, 1, 32)) end
    -- What the token says was drawn for it, since nothing else was noted; or the counter of whoever else.
    number = tonumber(string.match(holder or '', '^%x+:(%d+) ')) or score('n')
  end
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
