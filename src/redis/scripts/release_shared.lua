-- Ends the token's share, and the lock with the last one. KEYS: lock. ARGV: token, readers.
return {leave(ARGV[2], ARGV[1])}
