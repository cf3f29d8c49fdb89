-- Adds the token to the readers of the lock, unless a writer holds it or waits for it.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone, mark, readers, intents of writers, counter or
-- nothing, hint, lead.
--
-- Each reader draws a number, as a writer does.
if call('SETRANGE', ARGV[3], 0, '') > 0 then return {'free'} end
local holder = call('GET', KEYS[1])
local fenced = ARGV[7] ~= ''
local shared = holder == marker
if holder and not shared then
  redis.pcall('SET', ARGV[4], '1', 'PX', 6000)
  return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1]), fenced and counter(ARGV[7]) or 0}
end
prune(ARGV[5])
local joined_before = shared and share(ARGV[5], ARGV[1])
-- A waiting writer has priority over new readers. PEXPIRE returns whether there is one.
prune(ARGV[6])
if not joined_before and call('PEXPIRE', ARGV[6], 60000) == 1 then
  return {'behind', fenced and counter(ARGV[7]) or 0}
end
local number = fenced and draw(ARGV[7], ARGV[1], ARGV[8], ARGV[9]) or 0
if joined_before then return {'granted', number} end
local ttl = tonumber(ARGV[2])
if not shared then new_marker(ARGV[5], ttl) end
local joined, why = pcall(join, ARGV[5], ARGV[1], ttl)
if not joined then
  -- A failure leaves no marker without a reader.
  if not shared then call('DEL', KEYS[1]) end
  error(why, 0)
end
return {'granted', number}
