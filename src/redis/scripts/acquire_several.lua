-- Stores the token under all locks, if each is free or ours, and issues one number for all of them. Otherwise
-- changes none, and marks the conflicting lock as wanted.
if cancelled() then return {'free'} end
local place = first_conflict()
if place then
  redis.pcall('SET', mark(place), '1', 'PX', 6000)
  return held(place)
end
-- The number is larger than that of each lock's last holder. Issued before a key is set: a failure leaves only
-- counters raised.
local number = 0
for place = 1, #KEYS do
  local found = fenced and counter_at(place) or 0
  if fenced and missing then bound(counter_of(place), found, ARGV[3]) end
  number = math.max(number, found)
end
if not missing then return {'granted', number} end
local drawn = fenced and after(number, ARGV[3], ARGV[4]) or 0
if fenced then raise_all(drawn, ARGV[3] + 1) end
for place = 1, #KEYS do
  if not holders[place] then call('SET', KEYS[place], token, 'PX', ARGV[2]) end
end
return {'granted', drawn}
