-- Replaces the present token by the next one, without releasing the lock in between, and issues the next
-- one's number.
-- KEYS: lock. ARGV: present token, next token, TTL in milliseconds, tombstone of the next token, counter or
-- nothing, hint, lead.
-- The tombstone is checked as in acquire.lua.
if call('SETRANGE', ARGV[4], 0, '') > 0 then return {'free'} end
local holder = call('GET', KEYS[1])
local fenced = ARGV[5] ~= ''
if holder and holder ~= ARGV[1] and holder ~= ARGV[2] then
  return {'held', string.sub(holder, 1, 4096), call('PTTL', KEYS[1]), fenced and counter(ARGV[5]) or 0}
end
-- Before the key is set: a failure leaves it unchanged.
local drawn = fenced and draw(ARGV[5], ARGV[2], ARGV[6], ARGV[7]) or 0
if holder ~= ARGV[2] then
  call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
elseif call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  -- Transferred before: like a renewal, which never shortens.
  call('PEXPIRE', KEYS[1], ARGV[3])
end
return {holder and 'granted' or 'restored', drawn}
