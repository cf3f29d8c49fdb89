//! The library's waiters in the queue of etcd, among other programs.

use std::time::Duration;

use quorlock::node::{Queued, Request, Vote};
use quorlock::protocol::WaiterId;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{Coordinator, Wait};
use quorlock_testkit::{EtcdCluster, EtcdPrograms, patience, scaled};

use crate::ordered::{self, TTL, acquire, answer, claim};
use crate::support::{Foreign, newest, node, programs};

pub(crate) fn process(cluster: &EtcdCluster) -> Coordinator {
    ordered::of(node(cluster))
}

async fn cluster(programs: &EtcdPrograms) -> EtcdCluster {
    programs.start(3).await.unwrap()
}

#[tokio::test]
async fn processes_exclude_each_other_and_are_served_in_the_order_of_entry() {
    for programs in programs() {
        println!("on {programs}");
        let cluster = cluster(&programs).await;
        ordered::exclude_each_other(|| process(&cluster), &Foreign::of(&cluster)).await;
    }
}

/// A program that holds its place by a key of its own, as `etcdctl lock` does.
#[tokio::test]
async fn a_foreign_waiter_is_served_between_ours() {
    let Some(programs) = newest() else { return };
    let cluster = cluster(&programs).await;
    ordered::serve_a_program_between_ours(|| process(&cluster), &Foreign::of(&cluster), "a").await;
}

#[tokio::test]
async fn a_name_and_what_is_below_it_do_not_hinder_each_other() {
    let Some(programs) = newest() else { return };
    let cluster = cluster(&programs).await;
    let names = ["nest", "nest/below", "nest/ab", "nest/ab/cd"];
    ordered::do_not_hinder_each_other(|| process(&cluster), names).await;
    drop(process(&cluster).lock_all(names).wait(Wait::Never).acquire().await.unwrap());
}

#[tokio::test]
async fn a_waiter_that_gives_up_or_dies_delays_no_other() {
    let Some(programs) = newest() else { return };
    let cluster = cluster(&programs).await;
    ordered::give_up_without_delaying_others(|| process(&cluster), &Foreign::of(&cluster), "a").await;
}

#[tokio::test]
async fn i54_a_lease_is_renewed_while_its_node_reports_changes() {
    let Some(programs) = newest() else { return };
    let cluster = cluster(&programs).await;
    ordered::is_renewed_beside_reports(|| process(&cluster), &Foreign::of(&cluster), "a").await;
}

/// The processes that watch the lock know that its first place has gone.
#[tokio::test]
async fn a_waiter_that_has_entered_again_is_ahead_of_those_that_enter_later() {
    let Some(programs) = newest() else { return };
    let cluster = cluster(&programs).await;
    let [one, other] = [(); 2].map(|()| node(&cluster));
    let enter =
        |waiter| Request::enqueue("a".into(), WaiterId::new(waiter), Duration::ZERO, TTL * 10, TTL * 10);
    let leave = |waiter| Request::LeaveQueue { key: "a".into(), waiter: WaiterId::new(waiter) };
    let holder = claim("a", 1);
    answer(&other, acquire(&holder)).await;
    answer(&other, enter(9)).await;
    answer(&one, enter(1)).await;
    answer(&one, leave(1)).await;
    answer(&one, enter(1)).await;
    answer(&other, enter(2)).await;
    for request in [leave(9), Request::Release { claim: holder }] {
        assert_ne!(answer(&other, request).await.vote, Vote::Free);
    }
    assert_eq!(answer(&other, enter(2)).await.vote, Queued::new(0, None).into());
    assert_eq!(answer(&one, enter(1)).await.vote, Vote::Free);
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
