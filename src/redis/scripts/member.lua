-- Comes before each script that a member of a cluster runs. ARGV: …, history.
--
-- A master that was made a replica and promoted again keeps its connections, and may have forgotten
-- locks. Each promotion begins another history.
if not string.find(redis.call('INFO', 'replication'), 'master_replid:' .. ARGV[#ARGV], 1, true) then
  return {'demoted'}
end
