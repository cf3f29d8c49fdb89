-- Deletes the locks that are ours, and tells the first in the queue of each. Says whether there was one, and whether
-- another client wants it. After queue.lua and several.lua.
--
-- All are read before one is deleted: a server may remember each key for each read (acquire.lua), and forgets only
-- what is changed after that.
local function let_go_of_all()
  local rank, most, found = {granted = 1, told = 2, wanted = 3}, 'free', {}
  for place = 1, #KEYS do found[place] = redis.pcall('GET', KEYS[place]) end
  unread(found)
  for place = 1, #KEYS do
    if found[place] == token then
      local was = let_go(KEYS[place], mark(place))
      if rank[was] > (rank[most] or 0) then most = was end
    end
  end
  return most
end
