-- Precedes each script that a cluster member runs. ARGV: …, history.
--
-- A master that was made a replica and promoted again keeps its connections, and may have lost locks. Each
-- promotion starts another history.
if not string.find(redis.call('INFO', 'replication'), 'master_replid:' .. ARGV[#ARGV], 1, true) then
  return {'demoted'}
end
