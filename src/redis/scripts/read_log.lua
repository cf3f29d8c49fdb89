-- Reads the log of a lock, the oldest entry first.
-- KEYS: lock. ARGV: log, most entries.
local found, said = redis.call('ZRANGEBYSCORE', ARGV[1], '-inf', '+inf', 'LIMIT', 0, ARGV[2]), {'log'}
for at = 1, #found do
  said[at + 1] = string.sub(found[at], 1, 1024)
end
return said
