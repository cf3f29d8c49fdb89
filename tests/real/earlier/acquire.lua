-- Stores the token if the key is free and draws its number, otherwise leaves a mark that a client
-- waits.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone, mark, counter, hint, lead.
--
-- The tombstone is checked with a SETRANGE of nothing, which returns its length without a change and
-- counts as a write: a read would make the server track it for the client (CLIENT TRACKING), one key
-- per attempt. Nor are tombstone, mark and counter declared as keys: some servers track all declared
-- keys of a script that reads. They are in the lock's hash slot. GET is tracked on purpose: its caller
-- is notified when the holder releases.
if call('SETRANGE', ARGV[3], 0, '') > 0 then return {'free'} end
if call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local drawn, number = pcall(draw, ARGV[5], ARGV[1], ARGV[6], ARGV[7])
  if drawn then return {'granted', number} end
  -- A failure leaves no key.
  call('DEL', KEYS[1])
  error(number, 0)
end
local number = counter(ARGV[5])
forget(ARGV[5], number)
local holder = call('GET', KEYS[1])
if holder == ARGV[1] then return {'granted', number} end
-- The mark names the client that was refused first since the last release: it goes first. The mark is
-- read by a command that writes, and put back. Waiters ask again before the mark expires. Without
-- memory for it, or without SET … GET (Redis 6.2), clients do not hold back.
local first = redis.pcall('SET', ARGV[4], ARGV[1], 'PX', 6000, 'GET')
if first == false then
  first = ARGV[1]
elseif type(first) == 'string' then
  redis.pcall('SET', ARGV[4], first, 'PX', 6000)
else
  redis.pcall('SET', ARGV[4], ARGV[1], 'PX', 6000)
  first = ''
end
-- Our tokens are shorter. Values of other programs may be of any size, and are not returned.
return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1]), number, first}
