-- Deletes the key if it is ours, and leaves a tombstone that stops late requests of this token.
-- KEYS: lock. ARGV: token, life of the tombstone in milliseconds, tombstone.
-- The tombstone may be refused for want of memory: the key is deleted all the same.
local was = 'free'
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  was = 'granted'
end
redis.pcall('SET', ARGV[3], '1', 'PX', ARGV[2])
return {was}
