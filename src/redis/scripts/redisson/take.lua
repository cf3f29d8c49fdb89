-- Stores the token if the key is free, in the usual case: nothing is in its way, and the counter is below the hint. Then
-- this is all: defining the functions that follow takes as long.
-- KEYS: lock. ARGV: token, TTL in milliseconds, tombstone, queue of a fair lock, counter or nothing, hint, lead, times
-- of the queue.
if redis.call('SETRANGE', ARGV[3], 0, '') > 0 then return {'free'} end
local queued = redis.pcall('SETRANGE', ARGV[4], 0, '')
if queued == 0 and redis.call('EXISTS', KEYS[1]) == 0 then
  local granted, found = {'granted'}, false
  if ARGV[5] ~= '' then
    local time = redis.call('TIME')
    found = redis.pcall('GETEX', ARGV[5])
    granted[2] = ARGV[6] + 1
    if granted[2] > time[1] * 1000000 + time[2] + ARGV[7] then granted = nil end
  end
  if granted and (not found or type(found) == 'string' and string.find(found, '^%d+$') and found + 0 < granted[2]) then
    if granted[2] then redis.call('SET', ARGV[5], string.format('%.0f', granted[2])) end
    redis.call('HSET', KEYS[1], ARGV[1], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return granted
  end
end
