-- Ends the token's share, and the lock with the last one. KEYS: lock. ARGV: token, readers, mark.
return {leave(ARGV[2], ARGV[3], ARGV[1])}
