-- Stores the token if the key is free, as the command SET does, unless the attempt was cancelled.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone, which is checked as in acquire.lua.
if redis.call('SETRANGE', ARGV[3], 0, '') > 0 then return {'free'} end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return {'granted'} end
local holder = redis.call('GET', KEYS[1])
return {'held', string.sub(holder, 1, 4096), redis.call('PTTL', KEYS[1])}
