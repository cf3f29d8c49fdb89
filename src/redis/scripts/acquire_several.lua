-- Stores the token under all locks, if each is free or ours, and draws one number for all of them.
-- Else it changes none, and leaves a mark at the one that is in the way that somebody wants it.
if cancelled() then return {'free'} end
local place = in_the_way()
if place then
  redis.pcall('SET', mark(place), '1', 'PX', 6000)
  return held(place)
end
-- Larger than that of each lock's last holder. Before a key is set: what fails here leaves nothing behind.
local number = 0
for place = 1, #KEYS do
  local found = fenced and stands(place) or 0
  if fenced and missing then bound(counter_of(place), found, ARGV[3]) end
  number = math.max(number, found)
end
if not missing then return {'granted', number} end
local drawn = fenced and after(number, ARGV[3], ARGV[4]) or 0
for place = 1, #KEYS do
  if not holders[place] then call('SET', KEYS[place], token, 'PX', ARGV[2]) end
end
if fenced then raise_all(drawn, ARGV[3] + 1) end
return {'granted', drawn}
