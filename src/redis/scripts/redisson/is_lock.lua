-- Returns whether a hash is a lock of Redisson and not other data: one owner, its depth, and an expiry. KEYS: hash.
if redis.call('HLEN', KEYS[1]) ~= 1 or redis.call('PTTL', KEYS[1]) < 0 then return 0 end
local found = redis.call('HGETALL', KEYS[1])
return found[1] ~= 'mode' and string.find(found[2], '^%d+$') and 1 or 0
