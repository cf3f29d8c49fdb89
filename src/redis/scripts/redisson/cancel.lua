-- Like release.lua, and leaves a tombstone that stops late requests of this token.
-- KEYS: lock. ARGV: token, channel, command that publishes there, tombstone, its TTL in milliseconds.
-- The tombstone may be refused if memory is full: the key is deleted all the same.
local gone = redis.call('HDEL', KEYS[1], ARGV[1])
if gone == 1 then redis.call(ARGV[3], ARGV[2], '0') end
redis.pcall('SET', ARGV[4], '1', 'PX', ARGV[5])
return {gone == 1 and 'granted' or 'free'}
