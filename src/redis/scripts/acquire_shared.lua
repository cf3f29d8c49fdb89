-- Adds the token to the readers of the lock, unless a writer holds it or waits for it.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone, mark, readers, intents of writers, counter or
-- nothing, hint, lead.
--
-- The first reader of a free lock issues a number, above that of every writer before. Later readers reuse it:
-- they do not exclude each other, and need no order.
if call('SETRANGE', ARGV[3], 0, '') > 0 then return {'free'} end
local holder = call('GET', KEYS[1])
local fenced = ARGV[7] ~= ''
local number = fenced and counter(ARGV[7]) or 0
if fenced then bound(ARGV[7], number, ARGV[8]) end
local drawn = fenced and after(number, ARGV[8], ARGV[9])
local shared = holder == marker
if holder and not shared then
  if fenced then forget(ARGV[7], number) end
  redis.pcall('SET', ARGV[4], '1', 'PX', 6000)
  return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1]), number}
end
prune(ARGV[5])
if shared and share(ARGV[5], ARGV[1]) then
  if fenced then forget(ARGV[7], number) end
  return {'granted', number}
end
-- A waiting writer has priority over new readers. PEXPIRE returns whether there is one.
prune(ARGV[6])
if call('PEXPIRE', ARGV[6], 60000) == 1 then
  if fenced then forget(ARGV[7], number) end
  return {'behind', number}
end
local ttl = tonumber(ARGV[2])
if fenced and (number == 0 or not shared) then number = raise(ARGV[7], drawn) end
if not shared then new_marker(ARGV[5], ttl) end
local joined, why = pcall(join, ARGV[5], ARGV[1], ttl)
if not joined then
  -- A failure leaves no marker without a reader.
  if not shared then call('DEL', KEYS[1]) end
  error(why, 0)
end
return {'granted', number}
