//! A member that is cut off from its leader goes on answering its clients for a while, and the leader ends their sessions.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Node, Seams};
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{Lease, Wait};
use quorlock_testkit::{ZooKeeperCluster, patience, until};
use quorlock_zookeeper::ZooKeeperNode;

use crate::foreign::{BASE, Foreign, dir};
use crate::ordered::of;
use crate::support::programs;

/// How often a member is cut off. `QUORLOCK_CUTS=30` for more.
const CUTS: usize = 3;
/// The settings of the servers: a tick as long as the session allows, and a member that long does not notice.
const SETTINGS: [&str; 2] = ["tickTime=500", "syncLimit=30"];
const SESSION: u64 = 2;
const TTL: Duration = Duration::from_secs(SESSION);

/// Waits until the session that has this node has written once more. Returns false if the session has ended instead.
async fn written(member: &Foreign, alive: &str) -> bool {
    let before = member.changed(alive).await.unwrap();
    let changed = async || member.changed(alive).await.unwrap() != before;
    until("a write that keeps the session", changed).await;
    before.is_some() && member.changed(alive).await.unwrap().is_some()
}

/// Returns by how much the holder was earlier than the leader, or `None` if the machine has paused so long that the
/// session had ended before the cut.
async fn early(cluster: &ZooKeeperCluster, lease: Lease, name: &str) -> Option<Duration> {
    let clock = SystemClock::default();
    let leader = cluster.leader().await.unwrap();
    let follower = (leader + 1) % 3;
    let [at_leader, at_follower] = [leader, follower].map(|member| cluster.address(member));
    let [leads, follows] = [
        Foreign::at(at_leader, Duration::from_secs(9)).await,
        Foreign::at(at_follower, Duration::from_secs(9)).await,
    ];
    let (_, owner) = leads.get(leads.places(&dir(name)).await.unwrap().first()?).await.unwrap()?;
    if !written(&follows, &format!("{BASE}/quorlock/alive/{owner:016x}")).await {
        return None;
    }
    // Right after an answer, before the leader has asked for the sessions that live.
    cluster.separate(leader, follower);
    let watch = lease.watch().clone();
    let ends = tokio::spawn(async move {
        let watch = lease.watch().clone();
        watch.lost().await;
        (SystemClock::default().now(), lease)
    });
    let gone = async || leads.places(&dir(name)).await.unwrap().is_empty();
    until("the end of the session", gone).await;
    let ended_at = clock.now();
    // Not whether the task has run that waits for the end: a busy machine may run it later.
    assert!(watch.check().is_err(), "the leader has ended the session, and the holder believes in its lease");
    let (believed_until, _) = ends.await.unwrap();
    cluster.join(leader, follower);
    Some(ended_at.since(believed_until))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_believes_no_longer_than_its_leader_keeps_the_session() {
    let Some(programs) = programs() else { return };
    let cluster = programs.start_with(3, &SETTINGS).await.unwrap();
    let cuts = std::env::var("QUORLOCK_CUTS").ok().and_then(|number| number.parse().ok()).unwrap_or(CUTS);
    let mut cut = 0;
    while cut < cuts {
        let serves = async || cluster.leader().await.is_ok();
        until("a leader", serves).await;
        let follower = cluster.address((cluster.leader().await.unwrap() + 1) % 3);
        let url = format!("zookeeper://{follower}{BASE}?session={SESSION}s");
        let node = Arc::new(ZooKeeperNode::new(&url, &Seams::default()).unwrap());
        let ready = async || node.ready().await.is_ok();
        until("a connection", ready).await;
        let name = format!("cut/{cut}");
        let lock = of(node).lock(&name).ttl(TTL).wait(Wait::UpTo(patience()));
        let lease = lock.acquire().await.unwrap();
        // It is renewed meanwhile.
        let clock = SystemClock::default();
        clock.sleep_until(clock.now() + TTL / 2).await;
        let Some(early) = early(&cluster, lease, &name).await else { continue };
        println!("cut {cut}: the holder stopped {early:?} before the leader ended its session");
        cut += 1;
    }
}
