-- Deletes the counter of the fencing numbers of a lock that will not be used again.
-- KEYS: lock. ARGV: counter.
return {redis.call('DEL', ARGV[1]) == 1 and 'granted' or 'free'}
