-- Notifies the first waiter in the queue, and returns whether another client wants the lock. The lock was
-- deleted before (delete_own.lua), if it was ours.
if not gone and not is_ours(ARGV[1]) then return {'free'} end
return {after_deleting(KEYS[1], ARGV[2], gone)}
