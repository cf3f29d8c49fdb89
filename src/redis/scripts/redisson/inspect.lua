-- Returns the holder of the lock and the counter, which is the holder's number if it has drawn one.
-- KEYS: lock. ARGV: nothing, counter.
-- The counter is optional, and some users may not read it.
local read, number = pcall(stored, ARGV[2])
if not read or number > 9007199254740991 then number = 0 end
if call('EXISTS', lock) == 0 then return {'free', number} end
return held(number)
