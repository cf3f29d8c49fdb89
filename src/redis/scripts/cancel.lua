-- Deletes the key if it is ours, and leaves a tombstone that stops late requests of this token.
-- KEYS: lock. ARGV: token, TTL of the tombstone in milliseconds, tombstone.
-- The tombstone may be refused if memory is full: the key is deleted all the same.
local was, holder = 'free', redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('DEL', KEYS[1])
  was = 'granted'
elseif not holder then
  untrack(KEYS[1])
end
redis.pcall('SET', ARGV[3], '1', 'PX', ARGV[2])
return {was}
