-- Ends a token's share, and the lock with the last one: then it tells the first in the queue. After queue.lua and
-- readers.lua.
local function leave(readers, mark, token)
  local holder = call('GET', KEYS[1])
  -- As in queue.lua.
  if not holder then
    redis.pcall('SET', KEYS[1], '', 'PX', 1)
    redis.pcall('DEL', KEYS[1])
  end
  if holder == token then
    -- A node that has not heard yet that it is shared.
    return let_go(KEYS[1], mark)
  end
  if holder ~= marker or call('ZREM', readers, token) == 0 then return 'free' end
  prune(readers)
  local last = call('ZPOPMAX', readers)
  if not last[1] then return let_go(KEYS[1], mark) end
  call('ZADD', readers, last[2], last[1])
  call('PEXPIREAT', readers, last[2])
  if now + call('PTTL', KEYS[1]) > last[2] + 0 then call('PEXPIREAT', KEYS[1], last[2]) end
  return 'granted'
end
