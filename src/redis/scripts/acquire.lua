-- Stores the token if the key is free, and issues its fencing number.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone, counter, hint, lead.
--
-- The tombstone is checked by a SETRANGE of an empty string, which returns its length, changes nothing, and
-- counts as a write: a read would make the server track it for the client (CLIENT TRACKING), one key for each
-- attempt. For the same reason tombstone and counter are not declared as keys: some servers track all
-- declared keys of a script that reads. They are in the lock's hash slot. GET is meant to be tracked: its
-- client is notified when the holder releases.
if call('SETRANGE', ARGV[3], 0, '') > 0 then return {'free'} end
if call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local drawn, number = pcall(draw, ARGV[4], ARGV[1], ARGV[5], ARGV[6])
  if drawn then return {'granted', number} end
  -- A failure leaves nothing stored.
  call('DEL', KEYS[1])
  error(number, 0)
end
local holder = call('GET', KEYS[1])
if holder == ARGV[1] then return {'granted', draw(ARGV[4], ARGV[1], ARGV[5], ARGV[6])} end
-- Truncated: our tokens are shorter, but other programs may have stored anything.
return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1]), counter(ARGV[4])}
