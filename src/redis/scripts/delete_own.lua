-- Deletes the lock if it is ours. Usually no client waits for it, and this is all: defining the functions of
-- the queue, which follow, takes as long as this.
-- KEYS: lock. ARGV: token, mark.
local gone = redis.call('GET', KEYS[1]) == ARGV[1] and redis.pcall('DEL', KEYS[1], ARGV[2])
if gone == 1 then return {'granted'} end
