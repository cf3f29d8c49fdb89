-- Deletes the key if it is ours, and returns whether another client waits for it.
-- KEYS: lock. ARGV: token, mark.
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  -- The server would track until its next change that the client has read it (acquire.lua), and a
  -- missing key may never change.
  if not holder then
    redis.pcall('SET', KEYS[1], '', 'PX', 1)
    redis.pcall('DEL', KEYS[1])
  end
  return {'free'}
end
-- Both in one call, which saves a microsecond.
local gone = redis.pcall('DEL', KEYS[1], ARGV[2])
if gone == 2 then return {'wanted'} end
-- The key is deleted, whether or not the mark may be read.
if gone ~= 1 then redis.call('DEL', KEYS[1]) end
return {'granted'}
