-- Raises the counter to the attempt's number, if the token still shares the lock.
-- KEYS: lock. ARGV: token, counter, number, readers.
local holder = call('GET', KEYS[1])
if not holder then
  untrack(KEYS[1])
  return {'free'}
end
if holder ~= marker then return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1])} end
prune(ARGV[4])
if not share(ARGV[4], ARGV[1]) then return {'free'} end
local number = counter(ARGV[2])
if number == 0 then
  forget(ARGV[2], number)
  number = forgotten()
end
if number >= tonumber(ARGV[3]) then return {'ahead', number} end
return {'granted', raise(ARGV[2], tonumber(ARGV[3]))}
