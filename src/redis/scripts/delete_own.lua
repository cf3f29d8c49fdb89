-- Deletes the lock if it is ours. As a rule no client waits for it, and that is all: the functions of the queue, which
-- follow, take as long to make as this takes.
-- KEYS: lock. ARGV: token, mark.
local gone = redis.call('GET', KEYS[1]) == ARGV[1] and redis.pcall('DEL', KEYS[1], ARGV[2])
if gone == 1 then return {'granted'} end
