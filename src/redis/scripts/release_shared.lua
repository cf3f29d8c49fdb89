-- Removes the token from the readers, and deletes the lock with the last one. KEYS: lock. ARGV: token,
-- readers, mark.
return {leave(ARGV[2], ARGV[3], ARGV[1])}
