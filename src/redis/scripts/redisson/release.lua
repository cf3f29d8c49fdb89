-- Deletes the lock if it is ours, and notifies the waiters of Redisson.
-- KEYS: lock. ARGV: token, channel, command that publishes there.
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return {'free'} end
redis.call(ARGV[3], ARGV[2], '0')
return {'granted'}
