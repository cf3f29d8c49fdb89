-- Passes the key on from one token to the next, without a moment in which it is free.
-- KEYS: lock. ARGV: token so far, next token, TTL in milliseconds, tombstone of the next token.
-- The tombstone is looked for as in acquire.lua.
if redis.call('SETRANGE', ARGV[4], 0, '') > 0 then return {'free'} end
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[2] then
  -- Asked before: as a renewal, which never shortens.
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
  return {'granted'}
end
if holder and holder ~= ARGV[1] then return {'held', holder, redis.call('PTTL', KEYS[1])} end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return {'granted'}
