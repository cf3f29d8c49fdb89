-- Deletes the locks that are ours, and notifies the first waiter in the queue of each. Returns whether there
-- was one, and whether another client wants the lock. After queue.lua and several.lua.
--
-- All are read before one is deleted: a server may track each key for each read (acquire.lua), and stops only
-- at a change after that.
local function delete_all_own()
  local rank, most, found = {granted = 1, told = 2, wanted = 3}, 'free', {}
  for place = 1, #KEYS do found[place] = redis.pcall('GET', KEYS[place]) end
  unread(found)
  for place = 1, #KEYS do
    if found[place] == token then
      local was = delete_and_notify(KEYS[place], mark(place))
      if rank[was] > (rank[most] or 0) then most = was end
    end
  end
  return most
end
