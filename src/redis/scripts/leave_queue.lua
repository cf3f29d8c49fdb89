-- Leaves the queue. KEYS: lock, key of the waiter's turn. ARGV: ID, mark.
local waited = redis.call('ZREM', ARGV[2] .. ':order', ARGV[1])
redis.call('DEL', KEYS[2])
local free = redis.pcall('SETRANGE', KEYS[1], 0, '') == 0
if waited == 1 then
  -- It has read a lock that was released meanwhile, and may have won by other nodes.
  if free then untrack(KEYS[1]) end
  return {'granted'}
end
-- A waiter whose turn it was, and which has not taken the lock, passes the turn to the next.
return {free and notify_next(KEYS[1], ARGV[2]) and 'told' or 'free'}
