-- Lists the waiters in the queue, up to a hundred, in order: for each its ID, its waiting time in
-- microseconds, and its entry (queue.lua). The first value says whether there may be more.
-- KEYS: lock. ARGV: mark.
local order = ARGV[1] .. ':order'
require_storable(ARGV[1])
local time = redis.call('TIME')
local front = redis.call('ZPOPMIN', order, 101)
local back, said = {}, {'waiters', #front > 200 and 1 or 0}
for at = 1, #front, 2 do
  back[at], back[at + 1] = front[at + 1], front[at]
  -- A waiter that has stopped asking stays there until its turn would come.
  local entry = at < 201 and entry_at(ARGV[1] .. ':' .. front[at])
  if entry then
    said[#said + 1] = front[at]
    said[#said + 1] = time[1] * 1000000 + time[2] - front[at + 1]
    said[#said + 1] = string.sub(entry, 1, 1024)
  end
end
if back[1] then
  redis.call('ZADD', order, unpack(back))
  redis.call('PEXPIRE', order, 6000)
end
return said
