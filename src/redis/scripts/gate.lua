-- Returns for how many milliseconds this process has been master, as far as clients know: the first client,
-- or the first after another promotion, records it.
-- KEYS: gate. ARGV: process and history.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local who, since = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%d+)$')
-- A time in the future was recorded before the clock was set back, and is ignored.
if who == ARGV[1] and tonumber(since) <= now then return now - since end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. string.format('%.0f', now))
return 0
