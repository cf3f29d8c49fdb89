-- Stores the token if the key is free and draws its number, else leaves a mark that somebody wants it.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone, mark, counter, hint, lead.
--
-- The tombstone is looked for with a SETRANGE of nothing, which tells its length and changes nothing,
-- and counts as a write: a read would make the server remember it for the client (CLIENT TRACKING),
-- one key for each attempt. Nor are tombstone, mark and counter declared as keys: some servers
-- remember all declared keys of a script that reads. They are in the lock's hash slot. GET is meant
-- to be remembered: its caller is told when the holder goes.
if call('SETRANGE', ARGV[3], 0, '') > 0 then return {'free'} end
if call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local drawn, number = pcall(draw, ARGV[5], ARGV[1], ARGV[6], ARGV[7])
  if drawn then return {'granted', number} end
  -- What fails leaves nothing behind.
  call('DEL', KEYS[1])
  error(number, 0)
end
local number = counter(ARGV[5])
forget(ARGV[5], number)
local holder = call('GET', KEYS[1])
if holder == ARGV[1] then return {'granted', number} end
-- The mark names whoever was refused first since the lock was last given back: that one goes first. It is
-- looked at by a command that writes, and put back. Whoever waits asks again before the mark ends. Without
-- memory for it, or SET … GET (Redis 6.2), others are less polite.
local first = redis.pcall('SET', ARGV[4], ARGV[1], 'PX', 6000, 'GET')
if first == false then
  first = ARGV[1]
elseif type(first) == 'string' then
  redis.pcall('SET', ARGV[4], first, 'PX', 6000)
else
  redis.pcall('SET', ARGV[4], ARGV[1], 'PX', 6000)
  first = ''
end
-- Ours are shorter. What other programs store may be anything, which nobody wants to be sent.
return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1]), number, first}
