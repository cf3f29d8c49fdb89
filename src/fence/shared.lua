-- Lets a reader or a writer in, unless one that is later has written, or has been there.
-- KEYS: the hash. ARGV: 'read' or 'write', token, then field and value of each write.
-- Returns the larger of the token and the mark that it was compared with.
--
-- Numbers are exact up to this one. Lua would also take 'nan', which is never smaller.
local token = string.match(ARGV[2], '^%d+$') and tonumber(ARGV[2])
if not token or token > 9007199254740991 then return redis.error_reply('ERR not a fencing token') end
local shown = tonumber(redis.call('HGET', KEYS[1], 'fencing_token') or 0)
if ARGV[1] == 'read' and #ARGV == 2 then
  local written = tonumber(redis.call('HGET', KEYS[1], 'fencing_token:written') or 0)
  if written > token then return written end
  if shown < token then redis.call('HSET', KEYS[1], 'fencing_token', ARGV[2]) end
  return token
end
if ARGV[1] ~= 'write' then return redis.error_reply('ERR neither a read nor a write') end
if shown > token then return shown end
if #ARGV > 2 then redis.call('HSET', KEYS[1], unpack(ARGV, 3)) end
-- Last, so that no field of that name gets in its place.
redis.call('HSET', KEYS[1], 'fencing_token', ARGV[2], 'fencing_token:written', ARGV[2])
return token
