-- Removes a reader, and deletes the lock with the last one, which notifies the first waiter in the queue.
-- After queue.lua and readers.lua.
local function leave(readers, mark, token)
  local holder = call('GET', KEYS[1])
  if not holder then untrack(KEYS[1]) end
  if holder == token then
    -- The node does not know yet that the lock is shared.
    return delete_and_notify(KEYS[1], mark)
  end
  if holder ~= marker then return 'free' end
  prune(readers)
  -- It stays in the set, as the first to expire, while the last one is taken out and put back: where the slot of a
  -- cluster is being moved, a set that is gone cannot be stored again, and with it the shares of all.
  if call('ZADD', readers, 'XX', 'CH', 1, token) == 0 then return 'free' end
  local last = call('ZPOPMAX', readers)
  if last[1] == token then return delete_and_notify(KEYS[1], mark) end
  call('ZADD', readers, last[2], last[1])
  call('ZREM', readers, token)
  call('PEXPIREAT', readers, last[2])
  if now + call('PTTL', KEYS[1]) > last[2] + 0 then call('PEXPIREAT', KEYS[1], last[2]) end
  return 'granted'
end
