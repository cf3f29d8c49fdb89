//! What `doctor` says of a cluster. Pure, but for the questions.

use std::time::Duration;

use quorlock::node::facts::Concern;
use quorlock::node::places::concern_about;
use quorlock::runtime::Clock;

use crate::client::Client;
use crate::error::Failure;
use crate::leases::LEAST;
use crate::wire::{Grant, LeaseId, LeaseLife, Members, MembersRequest, Revoked, Status, StatusRequest};

/// The space quota of a member that does not report it.
const USUAL_QUOTA: i64 = 2 << 30;
/// The part of the quota, in per cent, from which on it is nearly used up.
const NEARLY_FULL: i64 = 80;

/// From here on, changes take long. An idle cluster on one disk each commits in a millisecond.
const SLOW: Duration = Duration::from_millis(100);
/// How often a change is tried, of which the fastest counts.
const TRIES: usize = 3;

/// Asks a member about itself and its cluster.
pub(crate) async fn concerns(client: &Client, clock: &dyn Clock) -> Result<Vec<Concern>, Failure> {
    let status: Status = client.call("/etcdserverpb.Maintenance/Status", StatusRequest {}).await?;
    let members: Members = client.call("/etcdserverpb.Cluster/MemberList", MembersRequest {}).await?;
    let voters = members.members.iter().filter(|member| !member.is_learner).count();
    let (mut shortest, mut commit) = (Duration::ZERO, Duration::MAX);
    for _ in 0..TRIES {
        let sent = clock.now();
        // Granted longer if an election takes longer.
        let granted: LeaseLife = client.call("/etcdserverpb.Lease/LeaseGrant", Grant { ttl: 1 }).await?;
        commit = commit.min(clock.now().since(sent));
        client.call::<_, Revoked>("/etcdserverpb.Lease/LeaseRevoke", LeaseId { id: granted.id }).await?;
        shortest = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
    }
    Ok(found(&status, voters, shortest, commit))
}

/// Derives the concerns.
fn found(status: &Status, voters: usize, shortest: Duration, commit: Duration) -> Vec<Concern> {
    let mut found = Vec::new();
    let version = &status.version;
    if revokes_live_leases(numbers(version)) {
        found.push(Concern::unsafely(
            format!("is etcd {version}, which may revoke a lease that is kept alive, if its leader's disk hangs (etcd #15247)"),
            "update to 3.4.32, 3.5.14, or newer",
        ));
    }
    found.extend(concern_about(voters));
    for alarm in &status.errors {
        found.push(Concern::new(
            format!("reports: {alarm}"),
            "see `etcdctl alarm list`; after NOSPACE compact and defragment, then `etcdctl alarm disarm`",
        ));
    }
    let quota = if status.quota > 0 { status.quota } else { USUAL_QUOTA };
    if status.db_size.saturating_mul(100) / quota >= NEARLY_FULL {
        let [used, quota] = [status.db_size, quota].map(|bytes| bytes >> 20);
        found.push(Concern::new(
            format!("uses {used} MB of its quota of {quota} MB; when that is used up, nothing can be locked"),
            "set --auto-compaction-retention, defragment, or raise --quota-backend-bytes",
        ));
    }
    if commit >= SLOW {
        found.push(Concern::new(
            format!("takes {} ms for a change: its disks are slow, or its members far apart", commit.as_millis()),
            "use faster disks, for etcd alone (its metric etcd_disk_wal_fsync_duration_seconds should stay below 10 ms), and \
             choose long TTLs",
        ));
    }
    if shortest > LEAST {
        let (shortest, least) = (shortest.as_secs(), LEAST.as_secs());
        found.push(Concern::new(
            format!(
                "grants no lease shorter than {shortest} s, because of its election timeout: the lock of a crashed holder stays \
                 for as long, also with a TTL of {least} s"
            ),
            "lower --election-timeout, unless the members are far apart",
        ));
    }
    found
}

fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

/// Also the versions before in which a lease is shown wrongly after a change of leader, or the revision falls after a crash.
fn revokes_live_leases(version: [u32; 3]) -> bool {
    match version {
        [3, 4, patch] => patch < 32,
        [3, 5, patch] => patch < 14,
        [major, minor, _] => [major, minor] < [3, 4],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(version: &str) -> Status {
        Status { version: version.to_owned(), db_size: 1 << 20, ..Status::default() }
    }

    fn all(status: &Status, voters: usize, shortest: u64) -> Vec<String> {
        let found = found(status, voters, Duration::from_secs(shortest), Duration::from_millis(2));
        found.iter().map(|concern| concern.evidence.to_string()).collect()
    }

    #[test]
    fn versions_that_revoke_live_leases_are_unsafe() {
        for (version, is_unsafe) in [
            ("3.4.23", true),
            ("3.4.32", false),
            ("3.5.13", true),
            ("3.5.14", false),
            ("3.7.3", false),
            ("3.3.27", true),
        ] {
            let found = found(&status(version), 3, LEAST, SLOW / 2);
            assert_eq!(found.iter().any(|concern| concern.is_unsafe), is_unsafe, "{version}");
        }
    }

    #[test]
    fn a_sound_cluster_raises_no_concern_and_each_fault_one() {
        let sound = status("3.7.3");
        assert!(all(&sound, 3, 2).is_empty() && all(&sound, 5, 2).is_empty());
        assert!(all(&sound, 1, 2)[0].contains("has one member"));
        assert!(all(&sound, 4, 2)[0].contains("4 members"));
        assert!(all(&sound, 3, 9)[0].contains("no lease shorter than 9 s"));
        let full = Status { db_size: 90 << 20, quota: 100 << 20, ..sound.clone() };
        assert!(all(&full, 3, 2)[0].contains("90 MB of its quota of 100 MB"));
        let slow = found(&sound, 3, LEAST, SLOW);
        assert!(slow[0].evidence.contains("takes 100 ms for a change"));
        let alarm = Status { errors: vec!["memberID:7 alarm:NOSPACE".to_owned()], ..sound };
        assert!(all(&alarm, 3, 2)[0].contains("NOSPACE"));
    }
}
