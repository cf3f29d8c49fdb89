//! Clusters under load while their masters are killed: the history of all locks is checked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{
    Coordinator, Lease, Wait,
    runtime::{Clock as _, SystemClock},
};
use quorlock_history::{Expectations, History, Stamp, What, check};
use quorlock_testkit::{Cluster, Servers, eventually, patience};

use super::{MAX_TTL, cluster, guarded, votes};

const CLIENTS: usize = 3;
const RESOURCES: [&str; 4] = ["a", "b", "c", "d"];

fn now() -> Stamp {
    stamp(SystemClock::default().now())
}

fn stamp(moment: Moment) -> Stamp {
    Stamp::from_nanos(u64::try_from(moment.since(Moment::ORIGIN).as_nanos()).unwrap())
}

const SLACK: Duration = Duration::from_millis(50);

/// The end of validity, as close as it can be determined from outside, and not later.
fn ends(lease: &Lease) -> Stamp {
    let end = |_| {
        let now = SystemClock::default().now();
        stamp(now + lease.remaining())
    };
    (0..3).map(end).max().unwrap()
}

#[derive(Default)]
struct Run {
    history: Mutex<History>,
    grants: AtomicUsize,
    lost: AtomicUsize,
    over: AtomicBool,
}

impl Run {
    fn note(&self, at: Stamp, what: What) {
        self.history.lock().unwrap().record(at, what);
    }

    /// A client that acquires one lock after the other. The first client holds one lock for longer than
    /// its TTL, repeatedly, until it is lost.
    async fn work(&self, client: usize, coordinator: &Coordinator) {
        let clock = SystemClock::default();
        let looks = if client == 0 { 5_000 } else { 5 };
        for number in 0_usize.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let resource =
                if client == 0 { RESOURCES[0] } else { RESOURCES[(number + client) % RESOURCES.len()] };
            let attempt = || format!("{client}-{number}").into();
            let (who, what) = (client.to_string().into(), resource.into());
            self.note(now(), What::Invoked { client: who, resource: what, attempt: attempt() });
            let lock = coordinator.lock(resource).wait(Wait::UpTo(Duration::from_millis(500)));
            let Ok(lease) = lock.acquire().await else {
                self.note(now(), What::NotAcquired { attempt: attempt() });
                continue;
            };
            self.grants.fetch_add(1, Ordering::Relaxed);
            let mut deadline = ends(&lease);
            let fencing_token = Some(lease.fencing_token().get());
            self.note(now(), What::Acquired { attempt: attempt(), deadline, fencing_token });
            let mut looked = now();
            for _ in 0..looks {
                if self.over.load(Ordering::Relaxed) {
                    break;
                }
                clock.sleep_until(clock.now() + Duration::from_millis(2)).await;
                let at = now();
                if lease.check().is_err() {
                    break;
                }
                let later = ends(&lease);
                if later.since(deadline) > SLACK {
                    deadline = later;
                    self.note(looked, What::Renewed { attempt: attempt(), deadline });
                }
                // So close to its end, two readings of our clock may fall on either side of it.
                if deadline.since(at) > SLACK {
                    self.note(at, What::SeenValid { attempt: attempt() });
                }
                looked = at;
            }
            if let Err(lost) = lease.check() {
                self.lost.fetch_add(1, Ordering::Relaxed);
                self.note(now(), What::Lost { attempt: attempt(), reason: lost.reason.to_string() });
                continue;
            }
            self.note(now(), What::Releasing { attempt: attempt() });
            let released = lease.release().await;
            self.note(now(), What::Released { attempt: attempt() });
            if let Err(lost) = released {
                self.note(now(), What::Lost { attempt: attempt(), reason: lost.reason.to_string() });
            }
        }
    }
}

/// Kills the master of one resource after the other, while clients run.
async fn under_failovers(urls: Vec<String>, clusters: &[Cluster]) -> usize {
    let run = Arc::new(Run::default());
    let coordinators: Vec<_> = (0..CLIENTS).map(|_| guarded(&urls)).collect();
    for resource in RESOURCES {
        votes(&coordinators[0], resource).await;
    }
    let tasks: Vec<_> = coordinators
        .into_iter()
        .enumerate()
        .map(|(client, coordinator)| {
            let run = Arc::clone(&run);
            tokio::spawn(async move { run.work(client, &coordinator).await })
        })
        .collect();
    let more = async |count: usize| {
        let (so_far, lost) = (run.grants.load(Ordering::Relaxed), run.lost.load(Ordering::Relaxed));
        let enough = async || run.grants.load(Ordering::Relaxed) >= so_far + count;
        eventually(&format!("{count} more grants than {so_far} ({lost} lost)"), 2 * patience(), enough)
            .await
            .unwrap();
    };
    more(50).await;
    for (turn, cluster) in clusters.iter().cycle().take(2).enumerate() {
        let master = cluster.master_of(RESOURCES[turn]).await.unwrap();
        master.kill();
        cluster.settled().await.unwrap();
        more(50).await;
        master.restart_empty().await.unwrap();
        cluster.settled().await.unwrap();
        more(50).await;
    }
    run.over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    // A client that checks for a loss, instead of waiting for it, notices at its next check.
    let expectations = Expectations::new().max_ttl(MAX_TTL).signal_slack(patience());
    let report = check(&run.history.lock().unwrap(), &expectations);
    println!("{} grants, {} lost", run.grants.load(Ordering::Relaxed), run.lost.load(Ordering::Relaxed));
    assert!(report.is_clean(), "{report:#?}");
    run.lost.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_cluster_keeps_its_promises_while_masters_die() {
    let only = cluster(3, 1).await;
    let lost = under_failovers(vec![only.url()], &[only]).await;
    assert!(lost > 0, "no failover met a lease that was held");
}

#[tokio::test(flavor = "multi_thread")]
async fn five_nodes_with_two_clusters_keep_promises() {
    let (one, two) = (cluster(3, 1).await, cluster(3, 1).await);
    let servers = Servers::start(3).await.unwrap();
    let urls = [servers.urls(), vec![one.url(), two.url()]].concat();
    let lost = under_failovers(urls, &[one, two]).await;
    assert_eq!(lost, 0, "three of five nodes were up all the time");
}
