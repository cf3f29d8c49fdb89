-- Tells who holds the key, and where its counter stands; and, if readers do, who they are.
-- KEYS: lock. ARGV: counter, readers.
local holder = redis.call('GET', KEYS[1])
-- The counter is of interest only, and not everybody may read it. One that is not there is not read:
-- the server would remember it for the client (see acquire.lua), and never forget it.
local length = tonumber(redis.pcall('SETRANGE', ARGV[1], 0, '')) or 0
local number = length > 0 and tonumber(redis.pcall('GET', ARGV[1])) or 0
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
