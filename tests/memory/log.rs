//! The log of the holds that have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::lock::SeenHold;
use quorlock::node::{Capabilities, Capability, Node as _, Request};
use quorlock::protocol::{HoldEnd, LOG_EXPIRY, MOST_LOGGED};
use quorlock::runtime::Clock;
use quorlock::{ConfigError, Coordinator, Fencing, Lock, LossReason, Renewal, RetainError, Wait};
use quorlock_testkit::{MemoryNode, SkewedClock, WrappedNode};

use metrics_exporter_prometheus::PrometheusBuilder;

use crate::common::{Bench, TTL, VALIDITY, another, asked, bench, bench_with, client};
use crate::metrics::samples;

const SECOND: Duration = Duration::from_secs(1);

fn logging(holds: usize) -> Bench {
    bench_with(5, |builder| builder.log(holds).label("nightly"))
}

async fn log(client: &Coordinator) -> Vec<SeenHold> {
    client.lock("r").log().await.unwrap().holds
}

async fn ends(bench: &Bench) -> Vec<HoldEnd> {
    bench.settle().await;
    log(&bench.coordinator).await.iter().map(|seen| seen.hold.end).collect()
}

fn written(nodes: &[MemoryNode]) -> usize {
    nodes.iter().map(|node| node.requests().log_hold).sum()
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_nothing_is_logged() {
    let bench = bench(5);
    bench.lock().acquire().await.unwrap().release().await.unwrap();
    bench.settle().await;
    assert_eq!(written(&bench.nodes), 0);
    assert_eq!(log(&bench.coordinator).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_logged_at_every_node_once_it_has_ended() {
    let bench = logging(10);
    let acquired = bench.clock.wall();
    let lease = bench.lock().acquire().await.unwrap();
    assert_eq!(written(&bench.nodes), 0, "it has not ended");
    bench.pass(3 * SECOND).await;
    let (fencing_token, token) = (lease.fencing_token(), lease.token().short());
    lease.release().await.unwrap();
    bench.settle().await;
    // Another client reads it, which logs nothing itself.
    let reader = client(&bench);
    let log = reader.lock("r").log().await.unwrap();
    let [SeenHold { hold, nodes, .. }] = &log.holds[..] else { panic!("{log:?}") };
    assert_eq!((*nodes, hold.end), (5, HoldEnd::Released));
    assert_eq!((hold.acquired, hold.held_for), (acquired, 3 * SECOND));
    assert_eq!(hold.fencing_token, Some(fencing_token));
    assert!(hold.id.starts_with(&token) && hold.context.ends_with(" nightly"), "{hold:?}");
    assert_eq!(reader.lock("other").log().await.unwrap().holds, []);
}

#[tokio::test(start_paused = true)]
async fn it_says_how_a_hold_ended() {
    let bench = logging(10);
    let manual = || bench.lock().renewal(Renewal::Manual);
    let lost = manual().acquire().await.unwrap();
    bench.pass(VALIDITY).await;
    assert!(lost.check().is_err());
    bench.pass(SECOND).await;
    let held = bench.lock().max_hold(2 * SECOND).acquire().await.unwrap();
    bench.pass(3 * SECOND).await;
    drop(held);
    let deleted = manual().acquire().await.unwrap();
    bench.nodes.iter().for_each(|node| node.remove("r"));
    assert!(deleted.release().await.is_err(), "another client may have held it");
    let retained = bench.lock().acquire().await.unwrap();
    retained.retain(SECOND, "done").await.unwrap();
    assert_eq!(
        ends(&bench).await,
        [HoldEnd::Expired, HoldEnd::MaxHold, HoldEnd::QuorumLost, HoldEnd::Retained]
    );
}

/// A clock of a client, which the test may set forward as if the process had been stopped.
fn stoppable(bench: &Bench) -> (Arc<SkewedClock>, Arc<dyn Clock>) {
    let clock = Arc::new(SkewedClock::new(bench.clock.clone(), 1.0));
    (clock.clone(), clock)
}

/// Others may hold the lock by the time that its former holder notices.
#[tokio::test(start_paused = true)]
async fn a_lost_hold_ends_with_its_validity_however_late_that_is_noticed() {
    for (is_renewed, is_handed_over, longest) in [
        (false, false, None),
        (false, false, Some(2 * SECOND)),
        (true, false, None),
        (true, false, Some(6 * SECOND)),
        (true, true, None),
        (true, true, Some(2 * SECOND)),
    ] {
        let case = format!("renewed: {is_renewed}, handed over: {is_handed_over}, at most {longest:?}");
        let bench = bench(5);
        let (clock, its) = stoppable(&bench);
        let recorder = PrometheusBuilder::new().build_recorder();
        let client = metrics::with_local_recorder(&recorder, || {
            another(&its, &bench.nodes, |builder| builder.log(10))
        });
        let seconds =
            || samples(&recorder.handle()).remove("quorlock_hold_duration_seconds_sum").unwrap_or(0.0);
        let unlimited = client.lock("r").ttl(TTL).wait(Wait::Forever).fencing(Fencing::Off);
        let lock = longest.into_iter().fold(unlimited.clone(), Lock::max_hold);
        let mut begun = clock.now();
        let mut lease = if is_handed_over { unlimited } else { lock.clone() }.acquire().await.unwrap();
        if is_renewed {
            bench.pass(TTL / 2).await;
        }
        if is_handed_over {
            let next = bench.waiting(lock).await;
            begun = clock.now();
            lease.release().await.unwrap();
            lease = next.await.unwrap().unwrap();
        }
        let (held, asked) = (clock.now().since(begun) + lease.remaining(), asked(&bench.nodes));
        let counted = seconds();
        clock.jump_forward(10 * TTL);
        bench.pass(2 * SECOND).await;
        let (reason, end) = match longest {
            Some(_) => (LossReason::MaxHold, HoldEnd::MaxHold),
            None => (LossReason::Expired, HoldEnd::Expired),
        };
        assert_eq!(lease.check().unwrap_err().reason, reason, "{case}");
        assert!(asked > 5 || !is_renewed, "it was not renewed, {case}");
        let holds = log(&client).await;
        let SeenHold { hold, .. } = holds.last().unwrap();
        assert_eq!((hold.end, hold.held_for), (end, held), "{case}");
        let counted = seconds() - counted;
        assert!((counted - held.as_secs_f64()).abs() < 1e-3, "{counted} s of {held:?} are counted, {case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_left_taken_by_the_log_only_if_a_quorum_has_confirmed_that() {
    let bench = logging(10);
    let lease = bench.lock().acquire().await.unwrap();
    bench.nodes[..3].iter().for_each(MemoryNode::disconnect);
    let error = lease.retain(60 * SECOND, "done").await.unwrap_err();
    assert!(matches!(error, RetainError::Unconfirmed { .. }), "{error}");
    assert_eq!(ends(&bench).await, [HoldEnd::Released]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_passed_on_by_the_log_only_if_the_next_holder_got_it_in_time() {
    let bench = bench(5);
    let (clock, its) = stoppable(&bench);
    let transfers = Arc::new(AtomicUsize::new(0));
    // The process is stopped after all nodes have answered, and before it reads the time.
    let stops = bench.nodes.iter().map(|node| {
        let (clock, transfers) = (clock.clone(), transfers.clone());
        WrappedNode::new(node.clone()).on_request(move |request, responder, inner| {
            let transfer = matches!(*request, Request::Transfer { .. });
            inner.ask(request, responder);
            if transfer && transfers.fetch_add(1, Ordering::Relaxed) == 4 {
                clock.jump_forward(2 * TTL);
            }
        })
    });
    let client = Coordinator::builder().custom_nodes(stops.collect::<Vec<_>>()).clock(its).log(10);
    let client = client.ttl(TTL).build().unwrap();
    let lock = client.lock("r").wait(Wait::Forever);
    let first = lock.acquire().await.unwrap();
    let next = bench.waiting(lock).await;
    first.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    bench.settle().await;
    assert_eq!(transfers.load(Ordering::Relaxed), 5);
    assert_eq!(log(&client).await.iter().map(|seen| seen.hold.end).collect::<Vec<_>>(), [HoldEnd::Released]);
    assert_eq!(next.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_passed_on_within_a_process_has_an_entry_for_each_hold() {
    for fencing in [Fencing::On, Fencing::Off] {
        let bench = logging(10);
        let lock = bench.lock().fencing(fencing).wait(Wait::Forever);
        let first = lock.acquire().await.unwrap();
        let next = bench.waiting(lock).await;
        bench.pass(SECOND).await;
        first.release().await.unwrap();
        let next = next.await.unwrap().unwrap();
        bench.pass(2 * SECOND).await;
        next.release().await.unwrap();
        assert_eq!(ends(&bench).await, [HoldEnd::PassedOn, HoldEnd::Released]);
        let holds = log(&bench.coordinator).await;
        let [first, next] = &holds[..] else { panic!("{holds:?}") };
        assert_eq!((first.hold.held_for.as_secs(), next.hold.held_for.as_secs()), (1, 2));
        let is_replaced = fencing == Fencing::On;
        assert_eq!(first.hold.id != next.hold.id, is_replaced, "a round replaces the token: {fencing:?}");
        assert_eq!(next.hold.fencing_token > first.hold.fencing_token, is_replaced, "{holds:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_latest_holds_are_kept_and_for_a_week() {
    let bench = logging(2);
    for _ in 0..3 {
        bench.lock().acquire().await.unwrap().release().await.unwrap();
        bench.pass(SECOND).await;
    }
    assert_eq!(ends(&bench).await.len(), 2);
    bench.pass(LOG_EXPIRY).await;
    assert_eq!(ends(&bench).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_answer_delays_no_release() {
    let bench = logging(10);
    let lease = bench.lock().acquire().await.unwrap();
    bench.nodes[0].disconnect();
    bench.nodes[1].hang();
    let before = bench.clock.now();
    lease.release().await.unwrap();
    assert_eq!(bench.clock.now(), before, "it waits for a quorum of the release alone");
    bench.pass(SECOND).await;
    let log = bench.coordinator.lock("r").log().await.unwrap();
    assert_eq!(log.holds[0].nodes, 3, "{log:?}");
    assert_eq!(log.report.votes().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_keep_no_log_are_not_asked() {
    let bench = logging(10);
    let unable =
        |node: &MemoryNode| node.clone().with_capabilities(Capabilities::all().without(Capability::Log));
    let some: Vec<_> =
        bench.nodes.iter().take(2).map(unable).chain(bench.nodes[2..].iter().cloned()).collect();
    let client = another(&bench.clock, &some, |builder| builder.log(10));
    client.lock("r").ttl(TTL).acquire().await.unwrap().release().await.unwrap();
    bench.settle().await;
    assert_eq!(written(&bench.nodes), 3);
    assert_eq!(log(&client).await[0].nodes, 3);

    let none: Vec<_> = bench.nodes.iter().map(unable).collect();
    let client = another(&bench.clock, &none, |builder| builder.log(10));
    client.lock("r").ttl(TTL).acquire().await.unwrap().release().await.unwrap();
    let before = asked(&bench.nodes);
    let error = client.lock("r").log().await.unwrap_err();
    assert!(matches!(error, ConfigError::Unsupported { capability: Capability::Log, .. }), "{error}");
    assert_eq!(asked(&bench.nodes), before);
}

#[test]
fn a_log_has_a_limit() {
    let build = |holds| Coordinator::builder().nodes(["a", "b", "c"]).log(holds).build();
    assert!(build(MOST_LOGGED).is_ok());
    let error = build(MOST_LOGGED + 1).unwrap_err();
    assert!(matches!(error, ConfigError::LogTooLong { .. }) && error.to_string().contains("200"), "{error}");
}
