-- Tells who holds the key. KEYS: lock.
local holder = redis.call('GET', KEYS[1])
if holder then return {'held', holder, redis.call('PTTL', KEYS[1])} end
return {'free'}
