-- Stores the token if the key is free, and issues its fencing number. After take.lua, with its arguments.
if call('EXISTS', lock) == 0 then
  local first = waiting(queued, ARGV[4], ARGV[8], 1000)
  if first then return first end
  local number = draw(ARGV[5], ARGV[6], ARGV[7])
  store(token, ARGV[2])
  return {'granted', number}
end
if is_own(token) then return {'granted', draw(ARGV[5], ARGV[6], ARGV[7])} end
return held(ARGV[5] ~= '' and counter(ARGV[5]) or 0)
