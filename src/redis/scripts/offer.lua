-- Releases the lock if it is ours, and offers it to the next waiter in the same step (rule O-1). If no client
-- is subscribed to the waiter's inbox, or the next token was withdrawn, it is an ordinary release.
-- KEYS: lock. ARGV: token, mark, next token, TTL in milliseconds, inbox, counter or nothing, hint, lead,
-- waiter, or nothing if it is in the queue of another node, tombstone of the next token.
if not is_ours(ARGV[1]) then return {'free'} end
local inbox = ARGV[5]
-- The tombstone is checked as in acquire.lua.
if has_no_listener(inbox) or redis.call('SETRANGE', ARGV[10], 0, '') > 0 then return {delete_and_notify(KEYS[1], ARGV[2])} end
local drawn = 0
if ARGV[6] ~= '' then
  local done, number = pcall(draw, ARGV[6], ARGV[3], ARGV[7], ARGV[8])
  -- The lock is released, whether or not a number can be issued.
  drawn = done and number
end
if drawn and redis.pcall('SET', KEYS[1], ARGV[3], 'PX', ARGV[4]).ok then
  local token = string.sub(ARGV[3], 1, 32)
  local said = string.format('o %s %.0f %s', token, drawn, ARGV[4])
  if ARGV[9] ~= '' then
    redis.pcall('ZREM', ARGV[2] .. ':order', ARGV[9])
    local next = next_in_queue(KEYS[1], ARGV[2], token)
    if next then said = said .. '\n' .. next end
  end
  local heard = tell(inbox, said)
  -- After the offer, so that it is not taken for a turn.
  if ARGV[9] ~= '' then redis.pcall('DEL', ARGV[2] .. ':' .. ARGV[9]) end
  if heard > 0 then return {'told'} end
end
return {delete_and_notify(KEYS[1], ARGV[2])}
