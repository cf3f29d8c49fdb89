-- Extends the TTL of the key if it is ours, never shortens it, and stores the key again if it is gone.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone, counter or nothing, number.
local holder = call('GET', KEYS[1])
if holder == ARGV[1] then
  -- Even in the millisecond in which it was stored: a key that is changed after it was read is no longer
  -- tracked for the client (acquire.lua).
  if call('PTTL', KEYS[1]) <= tonumber(ARGV[2]) then call('PEXPIRE', KEYS[1], ARGV[2]) end
  return {'granted'}
end
if holder then return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1])} end
if call('SETRANGE', ARGV[3], 0, '') > 0 then
  untrack(KEYS[1])
  return {'free'}
end
if ARGV[4] ~= '' then raise_for_restored(ARGV[4], ARGV[1], ARGV[5]) end
call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'restored'}
