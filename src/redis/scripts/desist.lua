-- Withdraws the intent of a writer. KEYS: lock. ARGV: intents of writers, ID of this one.
if call('ZREM', ARGV[1], ARGV[2]) == 0 then return {'free'} end
-- Notifies the readers that were refused of a change. A missing key is not read: the server would track it
-- (acquire.lua).
if call('SETRANGE', KEYS[1], 0, '') > 0 and call('GET', KEYS[1]) == marker then
  call('PEXPIRE', KEYS[1], call('PTTL', KEYS[1]))
end
return {'granted'}
