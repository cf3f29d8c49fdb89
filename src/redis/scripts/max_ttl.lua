-- Returns the largest max_ttl that a client has recorded, and records ours unless that is larger.
-- KEYS: note. ARGV: ours, TTL of the note. In milliseconds.
local theirs = tonumber(redis.call('GET', KEYS[1]) or '') or 0
if theirs <= tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return theirs
