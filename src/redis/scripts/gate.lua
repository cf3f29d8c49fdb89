-- Tells for how many milliseconds this process has been the master that it is, as far as any client
-- knows: whoever asks first, or after another promotion, notes it.
-- KEYS: gate. ARGV: process and history.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local who, since = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%d+)$')
-- A time to come was noted before the clock was put back, and says nothing.
if who == ARGV[1] and tonumber(since) <= now then return now - since end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. string.format('%.0f', now))
return 0
