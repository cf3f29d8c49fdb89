-- Tells the first of those who wait in the queue, and says whether another client wants the lock. It was deleted before
-- (delete_own.lua), if it was ours.
if not gone and not is_ours(ARGV[1]) then return {'free'} end
return {after_deleting(KEYS[1], ARGV[2], gone)}
