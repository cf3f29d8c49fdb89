-- Deletes the locks that are ours, and leaves a tombstone that stops late requests of this token.
local was = let_go_of_all()
redis.pcall('SET', tombstone(1), '1', 'PX', ARGV[2])
return {was}
