-- Deletes the counter of the fencing tokens of a lock that nobody will use again.
-- KEYS: lock. ARGV: counter.
return {redis.call('DEL', ARGV[1]) == 1 and 'granted' or 'free'}
