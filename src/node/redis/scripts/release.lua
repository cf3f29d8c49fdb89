-- Deletes the key if it is ours, and tells whether somebody else wants it.
-- KEYS: lock. ARGV: token, mark.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'free'} end
redis.call('DEL', KEYS[1])
if redis.call('DEL', ARGV[2]) == 1 then return {'wanted'} end
return {'granted'}
