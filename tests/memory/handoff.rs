//! Without fencing, a handoff between tasks of a process sends no request.

use std::time::Duration;

use crate::common::{Bench, MS, TTL, VALIDITY, asked, bench};
use quorlock::lock::Single;
use quorlock::{Fencing, Lock, LossReason, Renewal, Wait};

const SECOND: Duration = Duration::from_secs(1);

fn plain(bench: &Bench) -> Lock<Single, Fencing> {
    bench.coordinator.lock("r").ttl(TTL).wait(Wait::Forever).fencing(Fencing::Off)
}

#[tokio::test(start_paused = true)]
async fn without_fencing_a_handoff_sends_no_request() {
    let bench = bench(5);
    let first = plain(&bench).acquire().await.unwrap();
    let (token, watch) = (first.token().clone(), first.watch());
    let waiting = bench.waiting(plain(&bench)).await;
    let before = asked(&bench.nodes);
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    assert_eq!(asked(&bench.nodes), before, "no request was sent");
    assert_eq!(watch.check().unwrap_err().reason, LossReason::Released, "the old lease is over");
    assert!(second.check().is_ok());
    assert_eq!(*second.token(), token, "the key is unchanged");
    second.release().await.unwrap();
    bench.settle().await;
    assert_eq!(bench.keys(), 0, "the last holder deletes the keys");
}

#[tokio::test(start_paused = true)]
async fn i21_a_handed_off_lease_keeps_the_first_deadline() {
    let bench = bench(5);
    let first = plain(&bench).acquire().await.unwrap();
    let waiting = bench.waiting(plain(&bench)).await;
    bench.pass(Duration::from_secs(3)).await;
    let left = first.remaining();
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    assert_eq!(second.remaining(), left);
    // From here on its renewals are not answered.
    bench.nodes.iter().for_each(quorlock_testkit::MemoryNode::hang);
    bench.pass(left).await;
    assert_eq!(second.check().unwrap_err().reason, LossReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_handed_off_lease_is_renewed_like_any() {
    let bench = bench(5);
    let mut lease = plain(&bench).acquire().await.unwrap();
    for _ in 0..10 {
        let waiting = bench.waiting(plain(&bench)).await;
        bench.pass(Duration::from_secs(2)).await;
        lease.release().await.unwrap();
        lease = waiting.await.unwrap().unwrap();
        assert!(lease.remaining() > VALIDITY / 2, "{:?}", lease.remaining());
        assert!(bench.nodes.iter().all(|node| node.holder("r").as_ref() == Some(lease.token())));
    }
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_with_other_options_asks_the_nodes() {
    let bench = bench(5);
    for (why, lock) in [
        ("it needs its own fencing token", plain(&bench).fencing(Fencing::On)),
        ("it asks for another TTL", plain(&bench).ttl(TTL / 2)),
        ("the remaining time is not renewed", plain(&bench).renewal(Renewal::Manual)),
    ] {
        let first = plain(&bench).acquire().await.unwrap();
        let token = first.token().clone();
        let waiting = bench.waiting(lock.clone()).await;
        let before = asked(&bench.nodes);
        first.release().await.unwrap();
        let second = waiting.await.unwrap().unwrap();
        assert!(asked(&bench.nodes) > before, "{why}");
        assert_ne!(*second.token(), token, "{why}");
        second.release().await.unwrap();
        bench.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_in_flight_belongs_to_its_lease() {
    for is_manual in [false, true] {
        let bench = bench(5);
        let first = plain(&bench).acquire().await.unwrap();
        let waiting = bench.waiting(plain(&bench)).await;
        bench.delay(20 * MS, 20 * MS);
        let before = asked(&bench.nodes);
        if is_manual {
            assert_eq!(futures::poll!(std::pin::pin!(first.renew())), std::task::Poll::Pending);
        } else {
            bench.pass(TTL / 3 + MS).await;
        }
        let token = first.token().clone();
        first.release().await.unwrap();
        let second = waiting.await.unwrap().unwrap();
        assert_ne!(*second.token(), token, "it acquires its own lease");
        assert!(asked(&bench.nodes) >= before + 10, "the renewal, and the acquisition");
        second.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_handed_off_lease_ends_after_its_own_max_hold() {
    let bench = bench(5);
    let first = plain(&bench).acquire().await.unwrap();
    let waiting = bench.waiting(plain(&bench).max_hold(2 * SECOND)).await;
    bench.pass(SECOND).await;
    let before = asked(&bench.nodes);
    let handed_over = bench.clock.now();
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    assert_eq!(asked(&bench.nodes), before, "no request was sent");
    tokio::select! {
        biased;
        lost = second.lost() => assert_eq!(lost.reason, LossReason::MaxHold),
        () = bench.pass(TTL) => panic!("it is still being renewed"),
    }
    let held = bench.clock.now().since(handed_over);
    assert!(held <= 2 * SECOND && held > SECOND, "{held:?}");
}
