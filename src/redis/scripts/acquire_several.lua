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
local drawn = 0
if fenced then
  for place = 1, #KEYS do drawn = math.max(drawn, counter(counter_of(place))) end
  drawn = after(drawn, ARGV[3], ARGV[4])
  for place = 1, #KEYS do raise(counter_of(place), token, drawn) end
end
for place = 1, #KEYS do
  if not holders[place] then call('SET', KEYS[place], token, 'PX', ARGV[2]) end
end
return {'granted', drawn}
