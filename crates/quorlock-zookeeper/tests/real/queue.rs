//! The library's waiters in the queue of ZooKeeper, among other programs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::{Coordinator, RestartGuard, Wait};
use quorlock_testkit::{ZooKeeperCluster, patience};
use quorlock_zookeeper::ZooKeeperNode;

use crate::foreign::{Foreign, dir};
use crate::support::{common, shared};

const TTL: Duration = Duration::from_secs(5);

/// A process: a coordinator with a node of its own.
pub(crate) fn process(cluster: &ZooKeeperCluster) -> Coordinator {
    of(shared(cluster))
}

pub(crate) fn of(node: Arc<ZooKeeperNode>) -> Coordinator {
    Coordinator::builder().custom_nodes([node]).restart_guard(RestartGuard::Off).ttl(TTL).build().unwrap()
}

#[tokio::test]
async fn processes_exclude_each_other_and_are_served_in_the_order_of_entry() {
    let Some(cluster) = common().await else { return };
    let inside = Arc::new(AtomicUsize::new(0));
    let revisions = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = process(cluster);
        for _ in 0..3 {
            let lock = client.lock("jobs/nightly").wait(Wait::UpTo(patience()));
            let (inside, revisions) = (inside.clone(), revisions.clone());
            tasks.push(tokio::spawn(async move {
                let mut last = 0;
                for _ in 0..15 {
                    let lease = lock.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                    let token = lease.fencing_token().get();
                    assert!(token > last);
                    last = token;
                    revisions.lock().unwrap().push((lease.store_revision().unwrap(), token));
                    lease.check().unwrap();
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    lease.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let revisions = std::mem::take(&mut *revisions.lock().unwrap());
    assert_eq!(revisions.len(), 135);
    assert!(revisions.is_sorted(), "not in the order of create revisions, or of tokens");
    assert!(
        Foreign::of(cluster).await.places(&dir("jobs/nightly")).await.unwrap().is_empty(),
        "something is left"
    );
}

/// A program that holds its place by a key of its own, as Curator does.
#[tokio::test]
async fn a_foreign_waiter_is_served_between_ours() {
    let Some(cluster) = common().await else { return };
    let foreign = Foreign::of(cluster).await;
    let client = process(cluster);
    let lock = client.lock("beside").wait(Wait::UpTo(patience()));
    let first = lock.acquire().await.unwrap();
    let place = foreign.create(&format!("{}/lock-", dir("beside")), b"", 3).await.unwrap();
    let second = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let hasty = process(cluster).lock("beside").wait(Wait::Never);
    first.release().await.unwrap();
    assert!(hasty.acquire().await.is_err(), "the foreign program holds it");
    let waits = async || foreign.places(&dir("beside")).await.unwrap().len() == 2;
    quorlock_testkit::eventually("a place behind the foreign one", patience(), waits).await.unwrap();
    assert!(!second.is_finished());
    assert_eq!(foreign.places(&dir("beside")).await.unwrap()[0], place);
    foreign.delete(&place).await.unwrap();
    drop(second.await.unwrap());
}

#[tokio::test]
async fn a_name_and_what_is_below_it_do_not_hinder_each_other() {
    let Some(cluster) = common().await else { return };
    let client = process(cluster);
    let names = ["nest", "nest/below", "nest/job-0000000001", "nest/job-0000000001/cd"];
    for turned in [false, true] {
        let mut order = names;
        if turned {
            order.reverse();
        }
        let mut held = Vec::new();
        for name in order {
            held.push(client.lock(name).wait(Wait::Never).acquire().await.unwrap());
        }
        for name in order {
            let other = process(cluster).lock(name).wait(Wait::Never);
            assert!(other.acquire().await.is_err(), "{name} is held");
        }
        for lease in held {
            lease.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_waiter_that_gives_up_or_dies_delays_no_other() {
    let Some(cluster) = common().await else { return };
    let foreign = Foreign::of(cluster).await;
    let holder = process(cluster).lock("gives-up").acquire().await.unwrap();
    let gives_up = process(cluster);
    let lock = gives_up.lock("gives-up").wait(Wait::Forever);
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    let places = async |number: usize| {
        let there = async || foreign.places(&dir("gives-up")).await.unwrap().len() == number;
        quorlock_testkit::eventually("places", patience(), there).await.unwrap();
    };
    places(2).await;
    let next = process(cluster).lock("gives-up").wait(Wait::UpTo(patience()));
    let next = tokio::spawn(async move { next.acquire().await.map(drop) });
    places(3).await;
    waiting.abort();
    places(2).await;
    holder.release().await.unwrap();
    next.await.unwrap().unwrap();
}
