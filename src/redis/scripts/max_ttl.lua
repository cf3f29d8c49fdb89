-- Returns the largest max_ttl that a client has recorded. Records ours if it is larger, or the same and half
-- of its time has passed.
-- KEYS: note. ARGV: ours, TTL of the note. In milliseconds.
local theirs = tonumber(redis.call('GET', KEYS[1]) or '') or 0
local ours = tonumber(ARGV[1])
if theirs < ours or theirs == ours and redis.call('PTTL', KEYS[1]) < ARGV[2] / 2 then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  -- A write ends the tracking of its key, also for the client that has written; a read begins it.
  redis.call('GET', KEYS[1])
end
return theirs
