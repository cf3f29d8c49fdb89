-- Prolongs the key if it is ours, never shortens it, and stores it anew if it is gone.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone.
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return {'granted'}
end
if holder then return {'held', holder, redis.call('PTTL', KEYS[1])} end
if redis.call('SETRANGE', ARGV[3], 0, '') > 0 then return {'free'} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'restored'}
