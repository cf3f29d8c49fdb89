-- Stores the token if the key is free and draws its number.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone, counter, hint, lead.
--
-- The tombstone is looked for with a SETRANGE of nothing, which tells its length and changes nothing,
-- and counts as a write: a read would make the server remember it for the client (CLIENT TRACKING),
-- one key for each attempt. Nor are tombstone and counter declared as keys: some servers
-- remember all declared keys of a script that reads. They are in the lock's hash slot. GET is meant
-- to be remembered: its caller is told when the holder goes.
if call('SETRANGE', ARGV[3], 0, '') > 0 then return {'free'} end
if call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local drawn, number = pcall(draw, ARGV[4], ARGV[1], ARGV[5], ARGV[6])
  if drawn then return {'granted', number} end
  -- What fails leaves nothing behind.
  call('DEL', KEYS[1])
  error(number, 0)
end
local number = counter(ARGV[4])
forget(ARGV[4], number)
local holder = call('GET', KEYS[1])
if holder == ARGV[1] then return {'granted', number} end
-- Ours are shorter. What other programs store may be anything, which nobody wants to be sent.
return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1]), number}
