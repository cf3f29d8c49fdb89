-- Waits no longer. KEYS: lock, key that tells the turn. ARGV: name, mark.
local waited = redis.call('ZREM', ARGV[2] .. ':order', ARGV[1])
redis.call('DEL', KEYS[2])
if waited == 1 then return {'granted'} end
-- Somebody whose turn it was, and who has not taken the lock, leaves it to the next.
local free = redis.pcall('SETRANGE', KEYS[1], 0, '') == 0
return {free and tell_next(KEYS[1], ARGV[2]) and 'told' or 'free'}
