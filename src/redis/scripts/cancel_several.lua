-- Deletes the locks that are ours, and leaves a tombstone that stops late requests of this token.
local was = delete_all_own()
redis.pcall('SET', tombstone(1), '1', 'PX', ARGV[2])
return {was}
