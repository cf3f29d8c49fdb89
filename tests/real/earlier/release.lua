-- Deletes the key if it is ours, and tells whether somebody else wants it.
-- KEYS: lock. ARGV: token, mark.
local holder = redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  -- The server would remember until its next change that the client has read it (acquire.lua), and a key that is
  -- not there may have none.
  if not holder then
    redis.pcall('SET', KEYS[1], '', 'PX', 1)
    redis.pcall('DEL', KEYS[1])
  end
  return {'free'}
end
-- Both in one call, which is a microsecond less.
local gone = redis.pcall('DEL', KEYS[1], ARGV[2])
if gone == 2 then return {'wanted'} end
-- The lock is given back, whether or not the mark may be looked at.
if gone ~= 1 then redis.call('DEL', KEYS[1]) end
return {'granted'}
