-- Extends the TTL of the key if it is ours, never shortens it, and stores the key again if it is gone.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone, counter or nothing, number.
local holder = call('GET', KEYS[1])
-- A key that is changed after it was read is no longer tracked for the client (acquire.lua), which is to be notified of the
-- next change by another one. Not of the limit of a semaphore, whose short token all its clients share.
local function read_again()
  if #ARGV[1] >= 32 then call('GET', KEYS[1]) end
end
if holder == ARGV[1] then
  -- Even in the millisecond in which it was stored, so that it is changed.
  if call('PTTL', KEYS[1]) <= tonumber(ARGV[2]) then call('PEXPIRE', KEYS[1], ARGV[2]) end
  read_again()
  return {'granted'}
end
if holder then return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1])} end
if call('SETRANGE', ARGV[3], 0, '') > 0 then
  untrack(KEYS[1])
  return {'free'}
end
if ARGV[4] ~= '' then raise_for_restored(ARGV[4], ARGV[1], ARGV[5]) end
call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
read_again()
return {'restored'}
