-- Raises the counters to the attempt's number, if all locks are still its own, or it still shares the one (rule F-4), and
-- all counters are below (rule F-5).
-- KEYS: locks. ARGV: token, number, readers if it is a share, and the counter of each lock.
for place = 1, #KEYS do
  local holder = call('GET', KEYS[place])
  if not holder then
    -- The others as well: some servers track all declared keys.
    for other = place, #KEYS do untrack(KEYS[other]) end
    return {'free'}
  end
  if ARGV[3] ~= '' and holder == marker then
    prune(ARGV[3])
    if not share(ARGV[3], ARGV[1]) then return {'free'} end
  elseif holder ~= ARGV[1] then
    local held = {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[place]), 0}
    if #KEYS > 1 then held[5] = place end
    return held
  end
end
local number = tonumber(ARGV[2])
for place = 1, #KEYS do
  local found = counter(ARGV[3 + place])
  if found >= number then return {'ahead', found} end
end
for place = 1, #KEYS do raise(ARGV[3 + place], ARGV[1], number) end
return {'granted', number}
