-- Raises the counter to the attempt's number, if the lock is still its own (rule F-4), and the counter is below (rule
-- F-5).
-- ARGV: token, counter, number.
if not is_own(token) then
  if call('EXISTS', lock) == 1 then return held(0) end
  untrack(lock)
  return {'free'}
end
local found = counter(ARGV[2])
if found >= tonumber(ARGV[3]) then return {'ahead', found} end
return {'granted', raise(ARGV[2], ARGV[3])}
