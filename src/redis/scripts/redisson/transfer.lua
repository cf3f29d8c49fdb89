-- Replaces the present token by the next one, without releasing the lock in between, and issues the next one's number.
-- ARGV: next token, TTL in milliseconds, its tombstone, queue of a fair lock, counter or nothing, hint, lead, present
-- token, times of the queue.
if call('SETRANGE', ARGV[3], 0, '') > 0 then return {'free'} end
local again, present = is_own(token), is_own(ARGV[8])
if not again and not present then
  if call('EXISTS', lock) == 1 then return held(ARGV[5] ~= '' and counter(ARGV[5]) or 0) end
  local first = waiting(redis.pcall('SETRANGE', ARGV[4], 0, ''), ARGV[4], ARGV[9], 1000)
  if first then return first end
end
local number = draw(ARGV[5], ARGV[6], ARGV[7])
if again then
  if call('PTTL', lock) < tonumber(ARGV[2]) then call('PEXPIRE', lock, ARGV[2]) end
else
  store(token, ARGV[2])
  call('HDEL', lock, ARGV[8])
end
return {(again or present) and 'granted' or 'restored', number}
