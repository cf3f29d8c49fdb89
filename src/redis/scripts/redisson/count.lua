-- The counter of Redisson's fenced lock: a number as text, for one lock, which never expires.
local function stored(key)
  -- Before Redis 6.2, which lacks GETEX, only declared keys are tracked.
  local found = redis.pcall('GETEX', key)
  if type(found) == 'table' then found = call('GET', key) end
  return tonumber(string.match(found or '0', '^%d+$') or 2^53)
end
local function counter(key)
  local number = stored(key)
  if number >= 9007199254740991 then error('the fencing counter ' .. key .. ' has reached its limit') end
  return number
end
local function raise(key, number)
  call('SET', key, string.format('%.0f', number))
  return tonumber(number)
end
-- Issues the next number, if the request is fenced.
local function draw(key, hint, lead)
  if key == '' then return 0 end
  return raise(key, after(counter(key), hint, lead))
end
