-- Writes fields of a hash and the fencing token, unless a larger one has been there.
-- KEYS: the hash. ARGV: token, then field and value of each write; none just shows the token.
-- Returns the largest token seen.
--
-- Numbers are exact up to this one. Lua would also take 'nan', which is never smaller.
local token = string.match(ARGV[1], '^%d+$') and tonumber(ARGV[1])
if not token or token > 9007199254740991 then return redis.error_reply('ERR not a fencing token') end
local newest = tonumber(redis.call('HGET', KEYS[1], 'fencing_token') or 0)
if newest > token then return newest end
if #ARGV > 1 then redis.call('HSET', KEYS[1], unpack(ARGV, 2)) end
-- Last, so that no field of that name gets in its place.
redis.call('HSET', KEYS[1], 'fencing_token', ARGV[1])
return token
