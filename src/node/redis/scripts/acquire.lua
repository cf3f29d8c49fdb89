-- Stores the token if the key is free. KEYS: lock, tombstone. ARGV: token, TTL in milliseconds.
if redis.call('EXISTS', KEYS[2]) == 1 then return {'free'} end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return {'granted'} end
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then return {'granted'} end
return {'held', holder, redis.call('PTTL', KEYS[1])}
