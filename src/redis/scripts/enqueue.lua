-- Enters the queue for a lock, and returns the number of waiters ahead, up to 8. If the lock is free and
-- reserved for no waiter, it is this waiter's turn: those ahead have not taken theirs in twice the time. Grants nothing.
-- KEYS: lock, key of the waiter's turn. ARGV: ID, waiting time so far in microseconds, time after which it is
-- dropped and time of a turn in milliseconds, mark, its entry (queue.lua), and how long other programs count
-- as seen, or 0.
local call = redis.call
local name, mark = ARGV[1], ARGV[5]
local order, told = mark .. ':order', mark .. ':told'
require_storable(mark)
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
call('SET', KEYS[2], string.format('%.0f ', now) .. ARGV[6], 'PX', ARGV[3])
call('SET', mark, '1', 'PX', ARGV[3])
if ARGV[7] ~= '0' then call('SET', mark .. ':others', '1', 'PX', ARGV[7]) end
call('ZADD', order, string.format('%.0f', time[1] * 1000000 + time[2] - ARGV[2]), name)

-- No command writes and returns a place: the first eight are taken out and put back.
local front, back, ahead = call('ZPOPMIN', order, 8), {}, 8
for at = 1, #front, 2 do
  back[at], back[at + 1] = front[at + 1], front[at]
  if front[at] == name then ahead = (at - 1) / 2 end
end
call('ZADD', order, unpack(back))
call('PEXPIRE', order, ARGV[3])

-- The first two are notified of every change of the lock, because some clients release without notifying a
-- waiter, and all are notified of their turn. A key is tracked if it is read after it was written.
if ahead < 2 then
  local holder = call('GET', KEYS[1])
  if holder then
    call('GET', KEYS[2])
    -- The holder learns which waiter is next. Half of the random part of its token is its inbox; its prefix is
    -- most likely ours.
    if ahead == 0 and terms_of(ARGV[6]) then
      local next = next_message(KEYS[1], mark, string.sub(holder, 1, 32), name, ARGV[6])
      local length = string.match(ARGV[6], '^%x+ (%d+) ')
      tell(channel(KEYS[1], length, string.sub(holder, 17, 32)), next)
    end
    return {'queued', ahead, string.sub(holder, 1, 4096), call('PTTL', KEYS[1])}
  end
elseif call('SETRANGE', KEYS[1], 0, '') > 0 then
  call('GET', KEYS[2])
  return {'queued', ahead}
end
local since, whose = string.match(read(told) or '', '^(%d+) ?(.*)$')
-- A waiter does not hear of its turn if its own connection has released the lock (NOLOOP): it asks, once.
local is_its_turn = whose == name
-- The first may be one that cannot take the lock yet, and asks in each turn to keep it free (rule W-9).
if is_its_turn or math.abs(now - (since or 0)) >= ARGV[4] * (ahead > 0 and 2 or 1) then
  call('ZREM', order, name)
  call('DEL', KEYS[2])
  call('SET', told, is_its_turn and since or string.format('%.0f', now), 'PX', 6000)
  -- It may win by other nodes, and never change the key here.
  if ahead < 2 then untrack(KEYS[1]) end
  return {'free'}
end
call('GET', KEYS[2])
return {'queued', ahead}
