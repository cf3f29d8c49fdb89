-- Returns the holder of the lock and the counter, which is the holder's number if it has drawn one.
-- KEYS: lock. ARGV: nothing, counter, queue of a fair lock, times of the queue.
-- The counter is optional, and some users may not read it.
local read, number = pcall(stored, ARGV[2])
if not read or number > 9007199254740991 then number = 0 end
if call('EXISTS', lock) == 0 then
  local first = waiting(redis.pcall('SETRANGE', ARGV[3], 0, ''), ARGV[3], ARGV[4], 2^53)
  return first or {'free', number}
end
return held(number)
