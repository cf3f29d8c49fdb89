-- For the scripts that follow.

-- Ends the tracking of a missing lock that was read: the server would track it until its next change (acquire.lua),
-- and a missing key may never change.
local function untrack(lock)
  local stored = redis.pcall('SET', lock, '', 'NX', 'PX', 1)
  if stored and stored.ok then redis.pcall('DEL', lock) end
end
