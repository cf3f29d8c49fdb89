-- Stores the token if the key is free and nobody earlier waits for it; else joins the line, unless its
-- patience is 0.
-- KEYS: lock. ARGV: token, TTL, place in the line, name in the line, patience, tombstone, the line's
-- order, until when each in it is waited for, counter or nothing, hint, lead. Times in milliseconds,
-- but for the hint and its lead.
--
-- The line is read by commands that write (ZPOPMIN, HINCRBY by 0), as the tombstone is in
-- acquire.lua: else the server would remember it for every waiter, and tell each of the others'
-- every move. The lock is read by GET, so that whoever is refused is told of its next change.
if call('SETRANGE', ARGV[6], 0, '') > 0 then return {'free'} end
local holder = call('GET', KEYS[1])
local fenced = ARGV[9] ~= ''
local number = fenced and counter(ARGV[9]) or 0
local drawn = fenced and after(number, ARGV[10], ARGV[11])
if holder == ARGV[1] then
  call('ZREM', ARGV[7], ARGV[4])
  call('HDEL', ARGV[8], ARGV[4])
  if fenced then forget(ARGV[9], number) end
  return {'granted', number}
end

-- Takes the first out of the line, after those who have stopped asking: for longer than their patience, or
-- since the lock was found free (the field `free`), if that was more than a second ago and nobody has taken it:
-- all who live were told then. No more than 32 at a time, so that no script takes long.
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stays = ARGV[5] ~= '0'
call('ZADD', ARGV[7], ARGV[3], ARGV[4])
local first = call('ZPOPMIN', ARGV[7])
local gone = now
if not holder and stays and first[1] ~= ARGV[4] then
  local since = call('HINCRBY', ARGV[8], 'free', 0)
  if since == 0 then call('HSET', ARGV[8], 'free', now)
  elseif now - since > 1000 then gone = math.max(now, since + ARGV[5]) end
end
local dead = 0
while first[1] ~= ARGV[4] and dead < 32 and call('HINCRBY', ARGV[8], first[1], 0) < gone do
  call('HDEL', ARGV[8], first[1])
  first = call('ZPOPMIN', ARGV[7])
  dead = dead + 1
end
if not holder and first[1] == ARGV[4] then
  call('HDEL', ARGV[8], ARGV[4], 'free')
  call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  if fenced then
    note(ARGV[9], ARGV[1], drawn, ARGV[10] + 1)
    number = raise(ARGV[9], drawn)
  end
  return {'granted', number}
end
if fenced then forget(ARGV[9], number) end

-- Puts it back. A caller without patience asks once, and does not stay.
if stays or first[1] ~= ARGV[4] then call('ZADD', ARGV[7], first[2], first[1]) end
if stays then
  -- The line is kept until it is of no use to anybody in it: the fields `end` and `free` are no names,
  -- which have 16 digits.
  call('HSET', ARGV[8], ARGV[4], now + ARGV[5])
  local ends = math.max(call('HINCRBY', ARGV[8], 'end', 0), now + 2 * ARGV[5])
  call('HSET', ARGV[8], 'end', ends)
  call('PEXPIREAT', ARGV[7], ends)
  call('PEXPIREAT', ARGV[8], ends)
else
  call('ZREM', ARGV[7], ARGV[4])
end
if holder then return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1]), number} end
return {'behind', number}
