-- Stores the token if the key is free and nobody earlier waits for it; else joins the line.
-- KEYS: lock. ARGV: token, TTL, place in the line, name in the line, patience, tombstone, the line's
-- order, until when each in it is waited for. Times in milliseconds.
--
-- The line is read by commands that write (ZPOPMIN, HINCRBY by 0), as the tombstone is in
-- acquire.lua: else the server would remember it for every waiter, and tell each of the others'
-- every move. The lock is read by GET, so that whoever is refused is told of its next change.
if redis.call('SETRANGE', ARGV[6], 0, '') > 0 then return {'free'} end
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('ZREM', ARGV[7], ARGV[4])
  redis.call('HDEL', ARGV[8], ARGV[4])
  return {'granted'}
end

-- Takes the first out of the line, after those who have stopped asking.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', ARGV[7], ARGV[3], ARGV[4])
local first = redis.call('ZPOPMIN', ARGV[7])
while first[1] ~= ARGV[4] and redis.call('HINCRBY', ARGV[8], first[1], 0) < now do
  redis.call('HDEL', ARGV[8], first[1])
  first = redis.call('ZPOPMIN', ARGV[7])
end
if not holder and first[1] == ARGV[4] then
  redis.call('HDEL', ARGV[8], ARGV[4])
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return {'granted'}
end

-- Puts it back. The line is kept until it is of no use to anybody in it: the field `end` is no
-- name, which has 16 digits.
redis.call('ZADD', ARGV[7], first[2], first[1])
redis.call('HSET', ARGV[8], ARGV[4], now + ARGV[5])
local ends = math.max(redis.call('HINCRBY', ARGV[8], 'end', 0), now + 2 * ARGV[5])
redis.call('HSET', ARGV[8], 'end', ends)
redis.call('PEXPIREAT', ARGV[7], ends)
redis.call('PEXPIREAT', ARGV[8], ends)
if holder then return {'held', holder, redis.call('PTTL', KEYS[1])} end
return {'behind'}
