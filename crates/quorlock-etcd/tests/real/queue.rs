//! The library's waiters in the queue of etcd, among other programs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{Coordinator, RestartGuard, Wait};
use quorlock_etcd::EtcdNode;
use quorlock_testkit::{EtcdCluster, EtcdPrograms, patience, scaled};

use crate::support::{Foreign, newest, programs, shared};

const TTL: Duration = Duration::from_secs(5);

/// A process: a coordinator with a node of its own.
pub(crate) fn process(cluster: &EtcdCluster) -> Coordinator {
    of(shared(cluster))
}

fn of(node: Arc<EtcdNode>) -> Coordinator {
    Coordinator::builder().custom_nodes([node]).restart_guard(RestartGuard::Off).ttl(TTL).build().unwrap()
}

async fn cluster(programs: &EtcdPrograms) -> EtcdCluster {
    programs.start(3).await.unwrap()
}

#[tokio::test]
async fn processes_exclude_each_other_and_are_served_in_the_order_of_entry() {
    for programs in programs() {
        let cluster = cluster(&programs).await;
        let inside = Arc::new(AtomicUsize::new(0));
        let revisions = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let client = process(&cluster);
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
        assert!(revisions.is_sorted(), "{programs}: not in the order of create revisions, or of tokens");
        assert!(Foreign::of(&cluster).places("jobs/nightly").await.unwrap().is_empty(), "something is left");
    }
}

/// A program that holds its place by a key of its own, as `etcdctl lock` does.
#[tokio::test]
async fn a_foreign_waiter_is_served_between_ours() {
    let Some(programs) = newest() else { return };
    let cluster = cluster(&programs).await;
    let foreign = Foreign::of(&cluster);
    let client = process(&cluster);
    let lock = client.lock("a").wait(Wait::UpTo(patience()));
    let first = lock.acquire().await.unwrap();
    let lease = foreign.grant(Duration::from_secs(60)).await.unwrap();
    let place = format!("a/{lease:x}");
    foreign.put(place.as_bytes(), b"", lease).await.unwrap();
    let second = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let hasty = process(&cluster).lock("a").wait(Wait::Never);
    first.release().await.unwrap();
    assert!(hasty.acquire().await.is_err(), "the foreign program holds it");
    let waits = async || foreign.places("a").await.unwrap().len() == 2;
    quorlock_testkit::eventually("a place behind the foreign one", patience(), waits).await.unwrap();
    assert!(!second.is_finished());
    assert_eq!(foreign.places("a").await.unwrap()[0].0, place);
    foreign.delete(&place).await.unwrap();
    drop(second.await.unwrap());
}

#[tokio::test]
async fn a_name_and_what_is_below_it_do_not_hinder_each_other() {
    let Some(programs) = newest() else { return };
    let cluster = cluster(&programs).await;
    let client = process(&cluster);
    let names = ["nest", "nest/below", "nest/ab", "nest/ab/cd"];
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
            let other = process(&cluster).lock(name).wait(Wait::Never);
            assert!(other.acquire().await.is_err(), "{name} is held");
        }
        for lease in held {
            lease.release().await.unwrap();
        }
    }
    drop(process(&cluster).lock_all(names).wait(Wait::Never).acquire().await.unwrap());
}

#[tokio::test]
async fn a_waiter_that_gives_up_or_dies_delays_no_other() {
    let Some(programs) = newest() else { return };
    let cluster = cluster(&programs).await;
    let foreign = Foreign::of(&cluster);
    let holder = process(&cluster).lock("a").acquire().await.unwrap();
    let gives_up = process(&cluster);
    let lock = gives_up.lock("a").wait(Wait::Forever);
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    let places = async |number: usize| {
        let there = async || foreign.places("a").await.unwrap().len() == number;
        quorlock_testkit::eventually("places", patience(), there).await.unwrap();
    };
    places(2).await;
    let next = process(&cluster).lock("a").wait(Wait::UpTo(patience()));
    let next = tokio::spawn(async move { next.acquire().await.map(drop) });
    places(3).await;
    waiting.abort();
    places(2).await;
    holder.release().await.unwrap();
    next.await.unwrap().unwrap();
}

/// A watch that begins at a revision which was read before is served only every tenth of a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_changes_hands_in_milliseconds_beside_other_writes() {
    const TIMES: u32 = 60;
    let Some(programs) = newest() else { return };
    let cluster = cluster(&programs).await;
    let foreign = Foreign::of(&cluster);
    let writing = tokio::spawn(async move {
        loop {
            foreign.put(b"other", b"", 0).await.unwrap();
        }
    });
    let clock = SystemClock::default();
    let clients = [process(&cluster), process(&cluster)];
    let [one, other] = clients.each_ref().map(|client| client.lock("a").wait(Wait::UpTo(patience())));
    let contend = |lock: quorlock::Lock| async move {
        for _ in 0..TIMES {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
    };
    let began = clock.now();
    futures::join!(tokio::spawn(contend(one)), tokio::spawn(contend(other))).0.unwrap();
    let each = clock.now().since(began) / (2 * TIMES);
    writing.abort();
    // By the other way it is 50 ms, on an idle machine.
    let limit = scaled(Duration::from_millis(25));
    assert!(each < limit, "{each:?} for each change of hands, {limit:?} at most");
}
