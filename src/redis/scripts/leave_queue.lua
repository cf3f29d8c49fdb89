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
if free and notify_next(KEYS[1], ARGV[2]) then return {'told'} end
-- Without a name it follows a release by one command, and ends the turn as after_deleting does.
if free and ARGV[1] == '' then redis.pcall('DEL', ARGV[2] .. ':told') end
return {'free'}
