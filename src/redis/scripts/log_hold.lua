-- Adds a hold that has ended to the log of its lock, and drops the oldest ones: a sorted set of entries, by when the
-- server got them. It needs no right that locks do not need.
-- KEYS: lock. ARGV: log, entry, most entries, and time until the log expires in milliseconds.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
redis.call('ZADD', ARGV[1], now, ARGV[2])
-- Entries of the future were added before the clock was set back, and would be kept in place of all that follow.
redis.pcall('ZREMRANGEBYSCORE', ARGV[1], '(' .. now, '+inf')
redis.call('ZREMRANGEBYRANK', ARGV[1], 0, -1 - ARGV[3])
redis.call('PEXPIRE', ARGV[1], ARGV[4])
return {'granted'}
