-- Extends the TTL of all locks if they are ours, and never shortens one. If some are gone and the others are
-- ours, or gone as well, stores those again; then the node does not confirm.
local place = first_conflict()
if place then return held(place) end
local ttl = tonumber(ARGV[2])
if missing then
  if cancelled() then
    if tracks_missing then unread(holders) end
    return {'free'}
  end
  for place = 1, fenced and #KEYS or 0 do raise_for_restored(counter_of(place), token, ARGV[3]) end
end
for place = 1, #KEYS do
  if not holders[place] then
    call('SET', KEYS[place], token, 'PX', ttl)
  elseif call('PTTL', KEYS[place]) < ttl then
    call('PEXPIRE', KEYS[place], ttl)
  end
  -- The client is to be notified of the next change by another one (renew.lua).
  call('GET', KEYS[place])
end
return {missing and 'restored' or 'granted'}
