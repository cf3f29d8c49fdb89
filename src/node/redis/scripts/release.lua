-- Deletes the key if it is ours, and tells whether somebody else wants it.
-- KEYS: lock. ARGV: token, mark.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'free'} end
-- Both in one call, which is a microsecond less.
local gone = redis.pcall('DEL', KEYS[1], ARGV[2])
if gone == 2 then return {'wanted'} end
-- The lock is given back, whether or not the mark may be looked at.
if gone ~= 1 then redis.call('DEL', KEYS[1]) end
return {'granted'}
