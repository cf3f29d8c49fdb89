-- Keeps those out who are new among the readers, for a writer that waits.
-- KEYS: lock. ARGV: intents of writers, name of this one, how long it is waited for in milliseconds.
prune(ARGV[1])
call('ZADD', ARGV[1], now + ARGV[3], ARGV[2])
call('PEXPIRE', ARGV[1], 60000)
return {'granted'}
