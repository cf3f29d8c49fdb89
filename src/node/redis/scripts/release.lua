-- Deletes the key if it is ours. KEYS: lock. ARGV: token.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'free'} end
redis.call('DEL', KEYS[1])
return {'granted'}
