-- Those who share a lock, for the scripts that follow. KEYS: lock.
--
-- While anybody shares it, the lock holds a marker, which keeps every plain `SET NX` out, and a set
-- beside it has one member for each reader, with its own end in milliseconds. The marker ends with
-- the last of them. Where the marker has gone the set means nothing: its members have lost what kept
-- writers out, and are not taken over by the next one.
--
-- The set is only touched by commands that write, as the tombstone is in acquire.lua: else the server
-- would tell every reader of every other one's coming and going.
local marker = 'quorlock:shared'
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Drops those whose time is over. Comes before anything that may need memory: what follows a write
-- is not refused for want of it.
local function prune(set)
  call('ZREMRANGEBYSCORE', set, '-inf', '(' .. string.format('%.0f', now))
end
-- Whether this token is among the readers, and until when.
local function share(readers, token)
  local ends = tonumber(call('ZINCRBY', readers, 0, token))
  if ends > 0 then return ends end
  call('ZREM', readers, token)
end
-- The marker, without any reader yet.
local function found(readers, ttl)
  call('DEL', readers)
  call('SET', KEYS[1], marker, 'PX', ttl)
end
-- Lets the token share the lock for so long from now, and the lock live as long.
local function join(readers, token, ttl)
  local ends = now + ttl
  call('ZADD', readers, ends, token)
  local left = call('PTTL', KEYS[1])
  if left <= ttl then call('PEXPIREAT', KEYS[1], ends) else ends = now + left end
  -- Also where it has an end already: nothing is ever stored without one.
  call('PEXPIREAT', readers, ends)
end
