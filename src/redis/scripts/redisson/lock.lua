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
-- Who waits first in the queue of a fair lock of this name, as a vote: to take the lock would pass it. Nothing if nobody
-- does. As Redisson does, waiters whose time is over are passed, as after a crash. No key changes when a waiter gives up, so
-- that its time is cut to what we wait before we look again. `queued` is the reply to a SETRANGE of nothing at its queue,
-- which is a list.
local function waiting(queued, queue, times, longest)
  if queued == 0 then return nil end
  if type(queued) == 'table' and not string.find(queued.err, 'WRONGTYPE', 1, true) then error(queued.err, 0) end
  local time = call('TIME')
  for place = 0, 255 do
    local waiter = redis.pcall('LINDEX', queue, place)
    if not waiter then return nil end
    local till = type(waiter) == 'string' and redis.pcall('ZSCORE', times, waiter)
    if type(till) ~= 'string' then break end
    local left = math.ceil(till - time[1] * 1000 - time[2] / 1000)
    if left > 0 then return {'held', string.sub(waiter, 1, 4096), math.min(left, longest), 0, 0} end
  end
  return {'fair'}
end
local function store(owner, ttl)
  call('HSET', lock, owner, 1)
  call('PEXPIRE', lock, ttl)
end
