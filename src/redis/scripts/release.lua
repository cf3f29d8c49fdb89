-- Deletes the key if it is ours, tells the first of those who wait in the queue, and whether somebody else
-- wants it.
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
return {let_go(ARGV[2])}
