-- Like release_shared.lua, and leaves a tombstone that stops late requests of this token.
-- KEYS: lock. ARGV: token, TTL of the tombstone in milliseconds, tombstone, readers, mark.
local was = leave(ARGV[4], ARGV[5], ARGV[1])
redis.pcall('SET', ARGV[3], '1', 'PX', ARGV[2])
return {was}
