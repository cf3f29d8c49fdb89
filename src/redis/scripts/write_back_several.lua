-- Raises all counters to the attempt's number, if all locks are still its own.
local place = first_conflict()
if place then return held(place) end
if missing then
  unread(holders)
  return {'free'}
end
local number = tonumber(ARGV[3])
for place = 1, #KEYS do
  local found = counter_at(place)
  if found == 0 then found = forgotten() end
  if found >= number then return {'ahead', found} end
end
return {'granted', raise_all(number)}
