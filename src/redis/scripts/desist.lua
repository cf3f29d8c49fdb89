-- A writer waits no longer. KEYS: lock. ARGV: intents of writers, name of this one.
if call('ZREM', ARGV[1], ARGV[2]) == 0 then return {'free'} end
-- Those it has kept out hear that something has changed. A key that is not there is not read: the server would
-- remember it (acquire.lua).
if call('SETRANGE', KEYS[1], 0, '') > 0 and call('GET', KEYS[1]) == marker then
  call('PEXPIRE', KEYS[1], call('PTTL', KEYS[1]))
end
return {'granted'}
