-- The readers of a lock, for the scripts that follow. KEYS: lock.
--
-- While the lock is shared, it holds a marker, which refuses every plain `SET NX`, and a separate set has one
-- member for each reader, with its own expiry in milliseconds. The marker expires with the last reader. If
-- the marker is gone, the set is invalid: its members have lost what excluded writers, and are not taken over
-- by the next reader.
--
-- The set is only accessed by commands that write, as the tombstone is in acquire.lua: otherwise the server
-- would notify every reader of all other readers' changes.
local marker = 'quorlock:shared'
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Drops expired members. Precedes anything that may need memory: a command after a write is not refused for
-- lack of it.
local function prune(set)
  call('ZREMRANGEBYSCORE', set, '-inf', '(' .. string.format('%.0f', now))
end
-- Returns when the share of this token expires, if it is a reader.
local function share(readers, token)
  local ends = tonumber(call('ZINCRBY', readers, 0, token))
  if ends > 0 then return ends end
  call('ZREM', readers, token)
end
-- Stores the marker, without any reader yet.
local function new_marker(readers, ttl)
  call('DEL', readers)
  call('SET', KEYS[1], marker, 'PX', ttl)
end
-- Adds the token to the readers for `ttl` from now, and extends the lock as far.
local function join(readers, token, ttl)
  local ends = now + ttl
  call('ZADD', readers, ends, token)
  local left = call('PTTL', KEYS[1])
  if left <= ttl then call('PEXPIREAT', KEYS[1], ends) else ends = now + left end
  -- Even if it has an expiry already: nothing is ever stored without one.
  call('PEXPIREAT', readers, ends)
end
