-- Deletes the key if it is ours, and tells whether somebody else wants it.
-- KEYS: lock. ARGV: token, mark.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'free'} end
redis.call('DEL', KEYS[1])
-- The lock is given back, whether or not the mark may be looked at.
if redis.pcall('DEL', ARGV[2]) == 1 then return {'wanted'} end
return {'granted'}
