-- Extends the TTL of the key if it is ours, never shortens it, and stores the key again if it is gone.
-- ARGV: token, TTL in milliseconds, tombstone, queue of a fair lock, counter or nothing, number, times
-- of the queue.
if is_own(token) then
  if call('PTTL', lock) < tonumber(ARGV[2]) then call('PEXPIRE', lock, ARGV[2]) end
  -- The client is to be notified of the next change by another one: a key that is changed after it was read is no longer
  -- tracked.
  is_own(token)
  return {'granted'}
end
if call('EXISTS', lock) == 1 then return held(0) end
if call('SETRANGE', ARGV[3], 0, '') > 0 then
  untrack(lock)
  return {'free'}
end
local first = waiting(redis.pcall('SETRANGE', ARGV[4], 0, ''), ARGV[4], ARGV[7], 1000)
if first then return first end
if ARGV[5] ~= '' and counter(ARGV[5]) < tonumber(ARGV[6]) then raise(ARGV[5], ARGV[6]) end
store(token, ARGV[2])
is_own(token)
return {'restored'}
