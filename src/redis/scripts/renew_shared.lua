-- Extends the TTL of the token's share, never shortens it, and stores it again if it is gone. Makes an
-- exclusive holder a reader: a downgrade.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone, readers, counter or nothing, number.
local holder = call('GET', KEYS[1])
local ttl = tonumber(ARGV[2])
if holder == ARGV[1] then
  ttl = math.max(ttl, call('PTTL', KEYS[1]))
  new_marker(ARGV[4], ttl)
  join(ARGV[4], ARGV[1], ttl)
  return {'granted'}
end
local shared = holder == marker
if holder and not shared then return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1])} end
prune(ARGV[4])
local ends = shared and share(ARGV[4], ARGV[1])
if ends then
  if ends < now + ttl then join(ARGV[4], ARGV[1], ttl) end
  return {'granted'}
end
if call('SETRANGE', ARGV[3], 0, '') > 0 then
  if not holder then untrack(KEYS[1]) end
  return {'free'}
end
if ARGV[5] ~= '' then raise_for_restored(ARGV[5], ARGV[1], ARGV[6]) end
if not shared then new_marker(ARGV[4], ttl) end
join(ARGV[4], ARGV[1], ttl)
return {'restored'}
