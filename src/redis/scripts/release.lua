-- Deletes the key if it is ours, tells the first of those who wait in the queue, and whether somebody else
-- wants it.
-- KEYS: lock. ARGV: token, mark.
if not is_ours(ARGV[1]) then return {'free'} end
return {let_go(KEYS[1], ARGV[2])}
