-- Reads the log of a lock, the oldest entry first.
-- KEYS: log. ARGV: most entries.
local found, said = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '+inf', 'LIMIT', 0, ARGV[1]), {'log'}
-- A log that is missing may never be written.
if not found[1] then untrack(KEYS[1]) end
for at = 1, #found do
  said[at + 1] = string.sub(found[at], 1, 1024)
end
return said
