-- Refuses new readers, for a writer that waits.
-- KEYS: lock. ARGV: intents of writers, ID of this one, time after which it is dropped in milliseconds.
prune(ARGV[1])
call('ZADD', ARGV[1], now + ARGV[3], ARGV[2])
call('PEXPIRE', ARGV[1], 60000)
return {'granted'}
