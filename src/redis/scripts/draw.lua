-- Issues a number for a token that was just stored, in the place of one that was behind the counter.
-- KEYS: lock. ARGV: token, counter, hint, lead.
local holder = call('GET', KEYS[1])
if not holder then
  untrack(KEYS[1])
  return {'free'}
end
if holder ~= ARGV[1] then return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1])} end
return {'granted', raise(ARGV[2], ARGV[1], after(counter(ARGV[2]), ARGV[3], ARGV[4]))}
