-- A lock as Redisson stores it, for the scripts that follow: a hash of its owner and how often that has acquired it.
-- KEYS: lock. ARGV: token, which is the owner.
--
-- A key that is read while it is missing is tracked until it changes (acquire.lua): each script that may read one also
-- writes it, or is asked to wait for that. What else is looked at is not declared as a key, and read by commands that
-- count as writes.
local lock, token = KEYS[1], ARGV[1]
-- Whether the token alone holds the lock. Readers of a read-write lock of Redisson enter a plain lock that is held.
local function is_own(owner)
  return call('HEXISTS', lock, owner) == 1 and call('HLEN', lock) == 1
end
-- The holder, as a vote.
local function held(number)
  if call('HEXISTS', lock, 'mode') == 1 then return {'readwrite'} end
  if call('HLEN', lock) > 1 then return {'nolock'} end
  local found = call('HGETALL', lock)
  local depth = string.match(found[2], '^%d+$')
  if not depth then return {'nolock'} end
  return {'held', string.sub(found[1], 1, 4096), call('PTTL', lock), number, tonumber(depth)}
end
-- Whether a client waits in the queue of a fair lock of this name: to take the lock would pass it.
-- `queued` is the reply to a SETRANGE of nothing at its queue, which is a list.
local function is_fair(queued)
  if queued == 0 then return false end
  if type(queued) == 'table' and not string.find(queued.err, 'WRONGTYPE', 1, true) then error(queued.err, 0) end
  return true
end
local function store(owner, ttl)
  call('HSET', lock, owner, 1)
  call('PEXPIRE', lock, ttl)
end
