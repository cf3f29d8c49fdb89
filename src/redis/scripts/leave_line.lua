-- Leaves the line of those who wait. KEYS: lock, the line's order, until when each in it is waited for.
-- ARGV: name in the line.
redis.call('HDEL', KEYS[3], ARGV[1])
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return {'free'} end
-- Whoever comes next may be first now. While the lock is free, nothing else tells that.
if redis.pcall('SETRANGE', KEYS[1], 0, '') == 0 then
  redis.pcall('SET', KEYS[1], '', 'PX', 1)
  redis.pcall('DEL', KEYS[1])
end
return {'granted'}
