//! Shared locks: any number of readers at the same time, or one writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Bench, LATE, TTL, VALIDITY, acquiring, bench, client, forever, suspendable, unnotified};
use futures::future::join_all;
use quorlock::protocol::WaiterId;
use quorlock::{
    AcquireError, ConfigError, DowngradeError, Fencing, LossReason, Owner, Renewal, Wait,
    node::{Request, ask},
    protocol::Mode,
};

const SECOND: Duration = Duration::from_secs(1);

impl Bench {
    fn reader(&self) -> quorlock::Lock {
        self.lock().shared()
    }

    /// How many share the lock at each node.
    fn shares(&self) -> Vec<usize> {
        self.nodes.iter().map(|node| node.readers("r").len()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn s1_readers_hold_the_lock_together_and_a_writer_alone() {
    let bench = bench(5);
    let (ann, ben) = (bench.reader().acquire().await.unwrap(), bench.reader().acquire().await.unwrap());
    assert_eq!((ann.mode(), bench.shares()), (Mode::Shared, vec![2; 5]));
    assert!(bench.lock().try_acquire().await.unwrap().is_none());
    assert!(bench.lock().fencing(Fencing::Off).try_acquire().await.unwrap().is_none(), "the plain SET NX");
    ann.release().await.unwrap();
    assert!(bench.lock().try_acquire().await.unwrap().is_none(), "one is left");
    ben.release().await.unwrap();
    bench.settle().await;
    assert_eq!((bench.keys(), bench.shares()), (0, vec![0; 5]));
    let writer = bench.lock().acquire().await.unwrap();
    assert_eq!(writer.mode(), Mode::Exclusive);
    assert!(bench.reader().try_acquire().await.unwrap().is_none());
    assert!(client(&bench).lock("r").shared().try_acquire().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn s2_the_share_of_a_dead_reader_expires_on_its_own() {
    let bench = bench(5);
    let dead = bench.reader().renewal(Renewal::Manual).acquire().await.unwrap();
    std::mem::forget(dead);
    let alive = bench.reader().acquire().await.unwrap();
    bench.pass(TTL * 3).await;
    assert_eq!(bench.shares(), [1; 5], "only the share that is renewed");
    alive.release().await.unwrap();
    bench.settle().await;
    assert_eq!(bench.keys(), 0, "the dead reader blocks no other");
}

#[tokio::test(start_paused = true)]
async fn s2_a_reader_that_leaves_early_shortens_no_other_share() {
    let bench = bench(5);
    let manual = || bench.reader().renewal(Renewal::Manual);
    let early = manual().acquire().await.unwrap();
    bench.pass(TTL / 2).await;
    let late = manual().ttl(TTL / 4).acquire().await.unwrap();
    early.release().await.unwrap();
    assert!(bench.lock().try_acquire().await.unwrap().is_none());
    bench.pass(late.remaining()).await;
    bench.pass(SECOND).await;
    assert!(bench.lock().try_acquire().await.unwrap().is_some(), "and they do not pay for its time");
}

/// Between the end of a marker and the next one, a writer may have come and gone.
#[tokio::test(start_paused = true)]
async fn s3_a_share_whose_marker_was_lost_at_too_many_nodes_is_lost() {
    let bench = bench(5);
    let ann = bench.reader().acquire().await.unwrap();
    for node in &bench.nodes[..3] {
        node.remove("r");
    }
    let _ben = bench.reader().acquire().await.unwrap();
    assert_eq!(ann.lost().await.reason, LossReason::QuorumLost);
}

#[tokio::test(start_paused = true)]
async fn s3_a_share_that_a_minority_lost_is_stored_there_again() {
    let bench = bench(5);
    let ann = bench.reader().acquire().await.unwrap();
    for node in &bench.nodes[..2] {
        node.restart_with_data();
        node.flush();
    }
    bench.pass(TTL / 2).await;
    assert_eq!((ann.check(), bench.shares()), (Ok(()), vec![1; 5]));
}

#[tokio::test(start_paused = true)]
async fn s4_a_minority_must_not_renew_a_share() {
    let bench = bench(5);
    let ann = bench.reader().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.pass(SECOND).await;
    let before = ann.remaining();
    for node in &bench.nodes[..3] {
        node.lose_requests(true);
    }
    ann.renew().await.unwrap_err();
    assert_eq!(ann.remaining(), before - Duration::from_millis(50), "only the wait for the nodes has passed");
}

/// Readers that come and go so that there is always one, from a process of their own.
fn stream_of_readers(bench: &Bench) -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    for number in 0..4_u32 {
        let (lock, clock, over) = (forever(&client(bench)).shared(), bench.clock.clone(), over.clone());
        tokio::spawn(async move {
            clock.sleep_until(clock.now() + SECOND / 4 * number).await;
            while !over.load(Ordering::Relaxed) {
                let lease = lock.acquire().await.unwrap();
                clock.sleep_until(clock.now() + SECOND).await;
                drop(lease);
            }
        });
    }
    over
}

#[tokio::test(start_paused = true)]
async fn s5_a_stream_of_readers_does_not_starve_a_writer() {
    for fencing in [Fencing::On, Fencing::Off] {
        let bench = bench(5);
        let over = stream_of_readers(&bench);
        bench.pass(SECOND * 2).await;
        let since = bench.clock.now();
        let lock = bench.lock().fencing(fencing).wait(Wait::UpTo(SECOND * 60));
        let writer = lock.acquire().await.expect("readers that are new wait");
        let waited = bench.clock.now().since(since);
        assert!(
            waited < SECOND * 3,
            "{fencing:?}: a reader reads for a second, the writer waited {waited:?}"
        );
        let since = bench.clock.now();
        writer.release().await.unwrap();
        while bench.shares().contains(&0) {
            bench.settle().await;
        }
        assert!(bench.clock.now().since(since) < SECOND, "and then it is the readers' turn again");
        over.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn s5_while_a_writer_waits_new_readers_wait_too() {
    let bench = bench(5);
    let ann = bench.reader().acquire().await.unwrap();
    let writer = bench.waiting(bench.lock().wait(Wait::Forever)).await;
    bench.pass(TTL * 2).await;
    assert_eq!(ann.check(), Ok(()), "it renews itself");
    assert!(bench.reader().try_acquire().await.unwrap().is_none());
    let refused = bench.reader().wait(Wait::Never).acquire().await.unwrap_err();
    assert!(refused.to_string().starts_with("other clients come first for `r`"), "{refused}");
    let ben = acquiring(bench.reader().wait(Wait::Forever));
    bench.pass(TTL).await;
    assert!(!ben.is_finished());
    ann.release().await.unwrap();
    let writer = writer.await.unwrap().unwrap();
    assert!(!ben.is_finished(), "the writer came first");
    writer.release().await.unwrap();
    drop(ben.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn s5_a_writer_further_back_keeps_no_reader_out_whose_turn_it_is() {
    let bench = bench(5);
    let clients: Vec<_> = (0..3).map(|_| client(&bench)).collect();
    let lock = |at: usize| clients[at].lock("r").wait(Wait::UpTo(SECOND * 60));
    let ann = bench.reader().acquire().await.unwrap();
    let first = bench.waiting(lock(0)).await;
    let reader = bench.waiting(lock(1).shared()).await;
    let last = bench.waiting(lock(2)).await;
    bench.pass(SECOND).await;
    ann.release().await.unwrap();
    let since = bench.clock.now();
    first.await.unwrap().unwrap().release().await.unwrap();
    let reader = reader.await.unwrap().unwrap();
    let waited = bench.clock.now().since(since);
    assert!(waited < SECOND / 2 && !last.is_finished(), "the lock was free for {waited:?}");
    reader.release().await.unwrap();
    last.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn s5_a_writer_that_gives_up_lets_the_readers_in() {
    let bench = bench(5);
    let _ann = bench.reader().acquire().await.unwrap();
    let error = bench.lock().wait(Wait::UpTo(SECOND)).acquire().await.unwrap_err();
    assert!(
        matches!(error, AcquireError::Contended { .. }) && error.to_string().contains("1 reader: "),
        "{error}"
    );
    let since = bench.clock.now();
    let ben = bench.reader().wait(Wait::UpTo(SECOND * 20)).acquire().await.unwrap();
    assert!(bench.clock.now().since(since) < SECOND / 2, "it takes its intent back");
    drop(ben);
    assert!(bench.lock().try_acquire().await.unwrap().is_none());
    drop(
        bench.reader().acquire().await.expect("a client that only tries does not wait, and blocks no other"),
    );
}

#[tokio::test(start_paused = true)]
async fn s5_a_writer_that_died_does_not_keep_readers_out_for_long() {
    let bench = bench(5);
    let ann = bench.reader().acquire().await.unwrap();
    let lock = forever(&client(&bench));
    let mut writer = Box::pin(lock.acquire());
    tokio::select! {
        biased;
        _ = &mut writer => panic!("a reader has it"),
        () = bench.pass(SECOND * 5) => {}
    }
    std::mem::forget(writer);
    ann.release().await.unwrap();
    let since = bench.clock.now();
    let _ben = bench.reader().wait(Wait::UpTo(SECOND * 20)).acquire().await.unwrap();
    let waited = bench.clock.now().since(since);
    assert!(waited <= SECOND * 9 / 2, "a heartbeat after it is forgotten: {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn s6_a_downgrade_admits_readers_and_never_a_writer() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    let (token, fence, watch) = (lease.token().clone(), lease.fencing_token(), lease.watch());
    let waiting = acquiring(bench.lock().wait(Wait::Forever));
    bench.pass(SECOND).await;
    let lease = lease.downgrade().await.unwrap();
    assert_eq!((lease.mode(), lease.remaining()), (Mode::Shared, VALIDITY), "it is renewed as well");
    assert_eq!((lease.token(), lease.fencing_token(), watch.check()), (&token, fence, Ok(())));
    assert_eq!(bench.shares(), [1; 5]);
    bench.pass(TTL * 2).await;
    assert_eq!((lease.check(), waiting.is_finished()), (Ok(()), false), "it renews itself as a reader");
    assert_eq!(lease.downgrade().await.unwrap().release().await, Ok(()), "twice is once");
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let lease = bench.lock().acquire().await.unwrap().downgrade().await.unwrap();
    let ben = bench.reader().try_acquire().await.unwrap().expect("no writer waits, so readers may come");
    assert!(ben.fencing_token() > lease.fencing_token(), "late writes of the writer can be refused");
}

/// Nodes do not notify the connection that made a change.
#[tokio::test(start_paused = true)]
async fn readers_of_the_same_process_hear_of_a_downgrade_and_of_a_writer_that_gives_up() {
    let bench = bench(5);
    let client = unnotified(&bench);
    let soon = SECOND / 20;
    let lease = client.lock("r").acquire().await.unwrap();
    let reader = acquiring(client.lock("r").shared().wait(Wait::Forever));
    bench.pass(SECOND).await;
    let lease = lease.downgrade().await.unwrap();
    bench.pass(soon).await;
    assert!(reader.is_finished(), "it has heard of the downgrade");
    let writer = acquiring(client.lock("r").wait(Wait::UpTo(SECOND)));
    bench.pass(SECOND / 2).await;
    let next = acquiring(client.lock("r").shared().wait(Wait::Forever));
    bench.pass(SECOND / 2 - soon).await;
    assert!(!next.is_finished(), "the writer goes first");
    bench.pass(soon * 2).await;
    assert!(writer.await.unwrap().is_err() && next.is_finished(), "it has heard that the writer gave up");
    drop((lease, reader, next));
}

/// The counter-example to a downgrade that leaves the lease as it was when it fails: two nodes have
/// heard of it, a third never had the key, and a reader gets in over these three.
#[tokio::test(start_paused = true)]
async fn s6_a_downgrade_on_a_minority_keeps_the_old_deadline() {
    let bench = bench(5);
    for node in &bench.nodes[3..] {
        node.disconnect();
    }
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.pass(SECOND).await;
    let before = bench.clock.now() + lease.remaining();
    bench.nodes[1].lose_requests(true);
    bench.nodes[2].lose_requests(true);
    let lease = lease.downgrade().await.unwrap();
    assert_eq!((lease.mode(), bench.clock.now() + lease.remaining()), (Mode::Shared, before));
    for node in &bench.nodes[3..] {
        node.connect();
    }
    let ben = bench.reader().acquire().await.expect("three nodes let readers in");
    assert_eq!((lease.check(), ben.check()), (Ok(()), Ok(())));
    bench.nodes[1].lose_requests(false);
    bench.nodes[2].lose_requests(false);
    lease.renew().await.unwrap();
    let shares = bench.nodes[1].readers("r");
    assert!(shares.iter().any(|(token, _)| token == lease.token()), "the renewal has told the others");
}

#[tokio::test(start_paused = true)]
async fn s6_an_unconfirmed_downgrade_is_repeated_by_the_next_renewal() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    for node in &bench.nodes[..3] {
        node.lose_requests(true);
    }
    let lease = lease.downgrade().await.unwrap();
    for node in &bench.nodes[..3] {
        node.disconnect();
        node.lose_requests(false);
        node.connect();
    }
    bench.pass(SECOND).await;
    assert_eq!((lease.check(), bench.shares()), (Ok(()), vec![1; 5]));
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_that_is_dropped_gives_the_lock_back() {
    let bench = bench(5);
    let lease = bench.lock().acquire().await.unwrap();
    bench.delay(Duration::from_millis(5), Duration::from_millis(5));
    tokio::select! {
        biased;
        _ = lease.downgrade() => panic!("it takes ten milliseconds"),
        () = bench.pass(Duration::from_millis(2)) => {}
    }
    bench.pass(LATE).await;
    assert_eq!(bench.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_ended_lease_cannot_be_downgraded() {
    let bench = bench(5);
    let lease = bench.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    bench.pass(TTL).await;
    let error = lease.downgrade().await.unwrap_err();
    assert!(matches!(&error, DowngradeError::Lost(lost) if lost.reason == LossReason::Expired), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_may_reenter_shared_but_not_exclusive() {
    let bench = bench(5);
    let me = Owner::new();
    let (alone, shared) = (bench.lock().owner(&me), bench.reader().owner(&me));
    let outer = alone.acquire().await.unwrap();
    let inner = shared.acquire().await.expect("it is alone anyway");
    assert_eq!(inner.mode(), Mode::Exclusive);
    let error = outer.downgrade().await.unwrap_err();
    let DowngradeError::HeldAgain { lease: outer, .. } = error else { panic!("{error}") };
    assert_eq!(outer.mode(), Mode::Exclusive, "nothing has changed");
    drop(inner);
    let outer = outer.downgrade().await.unwrap();
    let error = alone.acquire().await.unwrap_err();
    assert_eq!(error, AcquireError::Config(ConfigError::Upgrade), "it would wait for itself");
    let inner = shared.acquire().await.expect("a reader may enter again");
    assert_eq!((inner.token(), bench.shares()), (outer.token(), vec![1; 5]));
    outer.release().await.unwrap();
    assert_eq!(inner.check(), Ok(()));
    inner.release().await.unwrap();
    drop(alone.acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn readers_of_one_process_do_not_queue_behind_each_other() {
    let bench = bench(5);
    bench.delay(Duration::from_millis(5), Duration::from_millis(5));
    let readers = [(); 200].map(|()| bench.reader().wait(Wait::Forever));
    let since = bench.clock.now();
    let many = join_all(readers.iter().map(quorlock::Lock::acquire)).await;
    let took = bench.clock.now().since(since);
    assert!(took <= Duration::from_millis(60), "200 readers took {took:?}, with 10 ms for each round");
    assert_eq!(bench.shares(), [200; 5]);
    let reader = bench.reader();
    let two = tokio::join!(reader.try_acquire(), reader.try_acquire());
    assert!(matches!(two, (Ok(Some(_)), Ok(Some(_)))), "a client that asks once blocks no other either");
    drop((many, two));
    bench.pass(LATE).await;
    drop(bench.lock().acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_reader_behind_a_waiting_writer_polls_slowly() {
    let bench = bench(5);
    let first = bench.reader().acquire().await.unwrap();
    for node in &bench.nodes {
        let (key, waiter, patience) = (Arc::from("r"), WaiterId::new(1), Duration::from_secs(6));
        ask(node, Request::AnnounceWriter { key, waiter, patience }).await.unwrap();
    }
    let before = bench.nodes.iter().map(|node| node.requests().acquire).sum::<usize>();
    let second = acquiring(bench.reader().wait(Wait::Forever));
    bench.pass(Duration::from_millis(900)).await;
    let asked = bench.nodes.iter().map(|node| node.requests().acquire).sum::<usize>() - before;
    assert!(!second.is_finished() && asked == 5, "once at each node, not {asked} requests");
    second.abort();
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn all_waiting_readers_enter_when_the_writer_leaves() {
    let bench = bench(5);
    let writer = bench.lock().acquire().await.unwrap();
    let many: Vec<_> = (0..100).map(|_| acquiring(bench.reader().wait(Wait::Forever))).collect();
    bench.pass(SECOND).await;
    let asked = bench.nodes.iter().map(|node| node.requests().acquire).sum::<usize>();
    assert!(asked < 40, "one of them asks for all: {asked} requests");
    writer.release().await.unwrap();
    let leases = join_all(many).await.into_iter().map(|lease| lease.unwrap().unwrap()).collect::<Vec<_>>();
    assert_eq!((leases.len(), bench.shares()), (100, vec![100; 5]));
}

#[tokio::test(start_paused = true)]
async fn a_shared_acquire_dropped_at_any_point_leaves_nothing() {
    for millis in 0..14 {
        let bench = bench(5);
        bench.delay(Duration::from_millis(5), Duration::from_millis(5));
        let ann = bench.reader().acquire().await.unwrap();
        let ben = bench.reader().wait(Wait::Forever);
        tokio::select! {
            biased;
            () = bench.pass(Duration::from_millis(millis)) => {}
            lease = ben.acquire() => drop(lease),
        }
        bench.pass(LATE).await;
        assert_eq!(bench.shares(), [1; 5], "dropped after {millis} ms");
        ann.release().await.unwrap();
        bench.pass(LATE).await;
        assert_eq!(bench.keys(), 0, "dropped after {millis} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_is_removed_where_the_connection_was_lost() {
    let bench = bench(5);
    bench.nodes[0].hang();
    let ann = bench.reader().acquire().await.unwrap();
    bench.nodes[0].disconnect();
    bench.nodes[0].connect();
    ann.release().await.unwrap();
    bench.nodes[0].resume();
    bench.pass(SECOND).await;
    assert_eq!(bench.shares(), [0; 5], "a tombstone stops the late request");
}

#[tokio::test(start_paused = true)]
async fn s7_tokens_of_readers_are_above_every_writer_before_and_below_every_writer_after() {
    let bench = bench(5);
    let first = bench.lock().acquire().await.unwrap();
    let before = first.fencing_token();
    first.release().await.unwrap();
    let (ann, ben) = (bench.reader().acquire().await.unwrap(), bench.reader().acquire().await.unwrap());
    assert!(ann.fencing_token() > before);
    let during = ben.fencing_token().max(ann.fencing_token());
    drop((ann, ben));
    bench.settle().await;
    assert!(bench.lock().acquire().await.unwrap().fencing_token() > during);
}

/// A later writer may miss the node that drew most. It must meet the number all the same.
#[tokio::test(start_paused = true)]
async fn s7_a_reader_writes_back_a_number_few_nodes_have() {
    let bench = bench(5);
    let far = u64::try_from(bench.clock.wall().as_micros()).unwrap() + 60_000_000;
    let key = quorlock::protocol::fence_counter("", "r");
    bench.nodes[2].set_data(&key, far, quorlock::node::Expiry::In(TTL * 100));
    bench.nodes[3].disconnect();
    bench.nodes[4].disconnect();
    let ann = bench.reader().acquire().await.unwrap();
    assert!(ann.fencing_token().get() > far, "the largest number counts");
    let token = ann.fencing_token();
    ann.release().await.unwrap();
    bench.nodes[3].connect();
    bench.nodes[4].connect();
    bench.nodes[2].disconnect();
    bench.settle().await;
    assert!(bench.lock().wait(Wait::UpTo(SECOND)).acquire().await.unwrap().fencing_token() > token);
}

#[tokio::test(start_paused = true)]
async fn a_closed_coordinator_gives_the_shares_back() {
    let bench = bench(5);
    let ann = bench.reader().acquire().await.unwrap();
    bench.coordinator.close(SECOND).await;
    assert_eq!((ann.check().unwrap_err().reason, bench.keys()), (LossReason::Closed, 0));
}

/// Readers after the first ask in an attempt of their own.
#[tokio::test(start_paused = true)]
async fn i3_a_reader_granted_after_validity_ended_waits_on() {
    let bench = bench(3);
    let writer = bench.lock().acquire().await.unwrap();
    // The machine is suspended while the answers are on their way: its clock goes on.
    let (suspended, readers) = suspendable(&bench);
    let lock = readers.lock("r").ttl(TTL).wait(Wait::Forever).shared();
    let first = bench.waiting(lock.clone()).await;
    let second = bench.waiting(lock).await;
    bench.delay(Duration::from_millis(5), Duration::from_millis(5));
    writer.release().await.unwrap();
    let first = first.await.unwrap().unwrap();
    // The second is asking by now.
    bench.pass(Duration::from_millis(7)).await;
    suspended.jump_forward(TTL);
    assert!(first.check().is_err(), "all that was asked before is over");
    let second = second.await.unwrap().unwrap();
    second.check().expect("a lease that has begun and is not over");
}
