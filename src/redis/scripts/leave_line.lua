-- Leaves the line of those who wait. KEYS: the line's order, until when each in it is waited for.
-- ARGV: name in the line.
redis.call('HDEL', KEYS[2], ARGV[1])
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then return {'granted'} end
return {'free'}
