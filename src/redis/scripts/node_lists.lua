-- Records the list of nodes of a client, unless it is empty, and returns all lists, each with the time since it
-- was last recorded.
-- KEYS: lists. ARGV: list, for how long it is kept. In milliseconds.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] ~= '' then
  redis.call('ZADD', KEYS[1], now, ARGV[1])
  -- Lists of the future were recorded before the clock was set back, and would be kept in place of ours.
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf')
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -17)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local lists = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '+inf', 'WITHSCORES')
for i = 2, #lists, 2 do lists[i] = now - lists[i] end
return lists
