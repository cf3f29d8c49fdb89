//! Semaphores: at most K holders, among clients that agree on K.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Bench, MS, TTL, VALIDITY, another, asked, bench, client};
use quorlock::protocol::semaphore_limit;
use quorlock::{
    ConfigError, LossReason, Lost, Permit, PermitError, Renewal, Semaphore, Wait, WithError,
    node::{Expiry, Hint, HintListener, Node as _, NodeError},
    runtime::Entropy as _,
    votes::VoteOutcome,
};
use quorlock_testkit::{MemoryNode, SeededEntropy, Value, WrappedNode};

const NAME: &str = "r";

/// A semaphore in a process of its own.
fn elsewhere(bench: &Bench, permits: usize) -> Semaphore {
    client(bench).semaphore(NAME, permits).ttl(TTL)
}

/// Keys of permits, at all nodes.
fn keys(bench: &Bench, permits: usize) -> usize {
    let names: Vec<String> = (0..permits).map(|number| format!("{NAME}#{number}")).collect();
    let at = |node: &MemoryNode| names.iter().filter(|name| node.holder(name).is_some()).count();
    bench.nodes.iter().map(at).sum()
}

/// Stores another number of permits at these nodes.
fn set_permits(nodes: &[MemoryNode], permits: usize) {
    for node in nodes {
        node.set_data(&semaphore_limit(NAME), Value::Text(permits.to_string().into()), Expiry::In(TTL * 100));
    }
}

async fn free_permit(semaphore: &Semaphore) -> Permit {
    semaphore.try_acquire().await.unwrap().expect("not all are taken")
}

#[tokio::test(start_paused = true)]
async fn a_full_semaphore_names_its_holders() {
    for permits in [1, 2, 4, 10] {
        let bench = bench(5);
        let mut held = Vec::new();
        for _ in 0..permits {
            held.push(free_permit(&elsewhere(&bench, permits).label("exporter")).await);
        }
        let mut numbers: Vec<usize> = held.iter().map(Permit::number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..permits).collect::<Vec<_>>());
        let one_more = elsewhere(&bench, permits).wait(Wait::Never);
        assert!(one_more.try_acquire().await.unwrap().is_none(), "as for a lock that others have");
        let full = one_more.acquire().await.expect_err("one more than there are");
        let PermitError::Full { holders, .. } = &full else { panic!("{full}") };
        assert_eq!(holders.len(), permits);
        for permit in &held {
            let holder = holders[permit.number()].as_ref().unwrap();
            assert_eq!(holder.token, *permit.token());
            assert_eq!(permit.resource().as_str(), format!("{NAME}#{}", permit.number()));
        }
        assert!(
            full.remaining()
                .is_some_and(|remaining| Expiry::In(VALIDITY) < remaining && remaining <= Expiry::In(TTL)),
            "{full:?}"
        );
        assert!(full.to_string().contains(&format!("all {permits} permits of `r` are taken")), "{full}");
        assert_eq!(full.to_string().matches(" exporter").count(), permits, "{full}");
        let freed = held.remove(permits / 2);
        let number = freed.number();
        freed.release().await.unwrap();
        assert_eq!(free_permit(&elsewhere(&bench, permits)).await.number(), number);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_first_permit_to_end_without_polling() {
    let bench = bench(5);
    let holders = elsewhere(&bench, 4).ttl(TTL * 3).renewal(Renewal::Manual);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(holders.acquire().await.unwrap());
    }
    let semaphore = elsewhere(&bench, 4).wait(Wait::Forever);
    let waiting = tokio::spawn(async move { semaphore.acquire().await.unwrap() });
    bench.settle().await;
    let before = asked(&bench.nodes);
    bench.pass(Duration::from_secs(8)).await;
    let requests = asked(&bench.nodes) - before;
    // A heartbeat a second at the most for each permit, of one node, which is asked for the limit too.
    assert!(requests <= 4 * 8 * 2, "it does not poll: {requests} requests in 8 s");
    let permit = held.swap_remove(2);
    let (number, released) = (permit.number(), bench.clock.now());
    permit.release().await.unwrap();
    let permit = waiting.await.unwrap();
    assert_eq!(permit.number(), number);
    let took = bench.clock.now().since(released);
    assert!(took <= 10 * MS, "it is notified, and asks: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_process_are_served_in_the_order_they_came() {
    let bench = bench(5);
    let nodes = bench.nodes.iter().cloned().map(without_echo);
    let coordinator = another(&bench.clock, &[], |builder| builder.custom_nodes(nodes));
    let semaphore = || coordinator.semaphore(NAME, 3).ttl(TTL).wait(Wait::Forever);
    let clone = semaphore();
    served_in_order(&bench, || clone.clone()).await;
    drop(clone);
    // Each makes its own.
    served_in_order(&bench, semaphore).await;
}

/// A node that notifies no client of what this one changes itself, like a server its connection.
fn without_echo(node: MemoryNode) -> WrappedNode {
    let is_own = Arc::<AtomicBool>::default();
    let changes = is_own.clone();
    WrappedNode::new(node)
        .on_request(move |request, responder, inner| {
            let before = changes.swap(true, Ordering::Relaxed);
            inner.ask(request, responder);
            changes.store(before, Ordering::Relaxed);
        })
        .on_listen(move |listener, inner| inner.listen(Arc::new(Others { listener, is_own: is_own.clone() })))
}

/// Hears of the changes of others.
#[derive(Debug)]
struct Others {
    listener: Arc<dyn HintListener>,
    is_own: Arc<AtomicBool>,
}

impl HintListener for Others {
    fn on_hint(&self, hint: Hint<'_>) {
        if !(matches!(hint, Hint::Invalidated(_)) && self.is_own.load(Ordering::Relaxed)) {
            self.listener.on_hint(hint);
        }
    }
}

async fn served_in_order(bench: &Bench, semaphore: impl Fn() -> Semaphore) {
    let (order, inside) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let first: Vec<_> =
        [free_permit(&semaphore()).await, free_permit(&semaphore()).await, free_permit(&semaphore()).await]
            .into();
    let mut tasks = Vec::new();
    for number in 0..60 {
        let (semaphore, order, inside, clock) =
            (semaphore(), order.clone(), inside.clone(), bench.clock.clone());
        tasks.push(tokio::spawn(async move {
            let permit = semaphore.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            assert!(inside.fetch_add(1, Ordering::Relaxed) < 3, "more than there are permits");
            clock.sleep_until(clock.now() + MS * 7).await;
            inside.fetch_sub(1, Ordering::Relaxed);
            permit.release().await.unwrap();
        }));
        bench.settle().await;
    }
    let before = asked(&bench.nodes);
    drop(first);
    for task in tasks {
        task.await.unwrap();
    }
    let mut numbers = order.lock().unwrap().clone();
    // Three are served immediately.
    for (place, number) in numbers.iter().enumerate() {
        assert!(place.abs_diff(*number) <= 3, "{numbers:?}");
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..60).collect::<Vec<_>>());
    let per_grant = (asked(&bench.nodes) - before) / 60;
    assert!(per_grant <= 30, "{per_grant} requests for each grant");
    bench.pass(20 * MS).await;
    assert_eq!(keys(bench, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn a_wait_cancelled_at_any_point_leaves_no_key() {
    for taken in [0, 1, 2] {
        for step in 0..40 {
            let bench = bench(3);
            bench.delay(MS, MS);
            let mut held = Vec::new();
            for _ in 0..taken {
                held.push(free_permit(&elsewhere(&bench, 2)).await);
            }
            let semaphore = elsewhere(&bench, 2).wait(Wait::Forever);
            tokio::select! {
                biased;
                _ = semaphore.acquire() => {}
                () = bench.pass(MS * step / 2) => {}
            }
            bench.pass(30 * MS).await;
            assert_eq!(keys(&bench, 2), 3 * taken, "{taken} taken, given up after {step} half milliseconds");
            for permit in held {
                permit.release().await.unwrap();
            }
            bench.pass(30 * MS).await;
            assert_eq!(keys(&bench, 2), 0, "no waiter is left in a queue");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_names_the_holders() {
    let bench = bench(5);
    let _held = [free_permit(&elsewhere(&bench, 2)).await, free_permit(&elsewhere(&bench, 2)).await];
    let semaphore = elsewhere(&bench, 2);
    let began = bench.clock.now();
    let error = semaphore.clone().wait(Wait::UpTo(TTL)).acquire().await.unwrap_err();
    let PermitError::Full { waited, .. } = &error else { panic!("{error}") };
    assert!(*waited >= TTL && bench.clock.now().since(began) <= TTL + 100 * MS);
    assert!(error.to_string().contains("waited 10s"), "{error}");
    assert!(matches!(semaphore.clone().wait(Wait::Never).acquire().await, Err(PermitError::Full { .. })));
    let reports = semaphore.inspect().await.unwrap();
    assert!(reports.iter().all(|report| report.holder().is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_decides_nothing_is_not_waited_for() {
    let bench = bench(5);
    let permit = free_permit(&elsewhere(&bench, 4)).await;
    for node in &bench.nodes[3..] {
        node.delay(50 * MS, 50 * MS);
    }
    let error = elsewhere(&bench, 2).wait(Wait::Never).acquire().await.unwrap_err();
    let error = error.report().unwrap().to_string();
    assert!(error.contains("node-4, node-5: not waited for"), "three of five decide: {error}");
    assert!(!error.contains("had not answered"), "of a healthy node: {error}");
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn p1_another_number_of_permits_is_a_clear_error() {
    let bench = bench(5);
    let permit = free_permit(&elsewhere(&bench, 4)).await;
    for other in [1, 2, 5] {
        let error = elsewhere(&bench, other).wait(Wait::UpTo(TTL)).acquire().await.unwrap_err();
        let PermitError::OtherPermits { report, .. } = &error else { panic!("{error}") };
        let differs =
            |reply: &VoteOutcome| matches!(reply, VoteOutcome::Failed(NodeError::OtherLimit { .. }));
        assert!(report.votes().iter().filter(|vote| differs(&vote.outcome)).count() >= 3, "{error}");
        assert!(error.to_string().contains(&format!("has 4 permits, and {other} w")), "{error}");
    }
    bench.pass(20 * MS).await;
    assert_eq!(keys(&bench, 5), 5, "refused clients have left nothing");
    permit.release().await.unwrap();
    bench.pass(TTL / 2).await;
    assert!(elsewhere(&bench, 2).try_acquire().await.is_err(), "the number stands for one TTL");
    bench.pass(TTL).await;
    free_permit(&elsewhere(&bench, 2)).await.release().await.unwrap();
}

/// Each keeps its number at two of the nodes as long as it asks, and so none gets a permit.
#[tokio::test(start_paused = true)]
async fn p1_programs_that_differ_over_an_idle_semaphore_are_shown_each_others_number() {
    let bench = bench(4);
    set_permits(&bench.nodes[..2], 2);
    set_permits(&bench.nodes[2..4], 3);
    for (asked, found) in [(2, "3"), (3, "2")] {
        let error = elsewhere(&bench, asked).wait(Wait::Never).acquire().await.unwrap_err();
        assert!(
            matches!(&error, PermitError::OtherPermits { found: other, .. } if **other == *found),
            "{error}"
        );
    }
}

/// It may be this one, or the other: the node that is down would decide.
#[tokio::test(start_paused = true)]
async fn p1_a_number_that_is_open_while_a_node_is_down_is_no_quorum_and_the_other_one_is_shown() {
    let bench = bench(5);
    set_permits(&bench.nodes[..2], 2);
    set_permits(&bench.nodes[2..4], 3);
    bench.nodes[4].disconnect();
    let error = elsewhere(&bench, 2).wait(Wait::Never).acquire().await.unwrap_err();
    assert!(matches!(error, PermitError::Unavailable { .. }), "{error}");
    let shown = "the semaphore has 3 permits there, but this program asks for 2";
    assert!(error.to_string().contains(shown), "{error}");
}

#[tokio::test(start_paused = true)]
async fn p1_the_number_is_kept_while_a_permit_is_renewed() {
    let bench = bench(5);
    let permit = free_permit(&elsewhere(&bench, 4)).await;
    bench.pass(TTL * 5).await;
    permit.check().unwrap();
    assert!(elsewhere(&bench, 2).try_acquire().await.is_err());
    for node in &bench.nodes {
        assert!(matches!(node.expiry(&semaphore_limit(NAME)), Some(Expiry::In(left)) if left > TTL / 2));
    }
}

#[tokio::test(start_paused = true)]
async fn p1_a_permit_expires_if_a_quorum_has_another_number() {
    let bench = bench(5);
    let permit = free_permit(&elsewhere(&bench, 4)).await;
    let began = bench.clock.now();
    set_permits(&bench.nodes[..3], 2);
    tokio::select! {
        biased;
        lost = permit.lost() => assert_eq!(lost.reason, LossReason::Expired),
        () = bench.pass(TTL * 3) => panic!("it goes on being renewed"),
    }
    assert!(bench.clock.now().since(began) <= VALIDITY);
}

#[tokio::test(start_paused = true)]
async fn p1_clients_that_differ_never_hold_together() {
    let mut grants = [0, 0];
    for seed in 0..20 {
        let bench = bench(5);
        let chance = Arc::new(SeededEntropy::new(seed));
        for node in &bench.nodes {
            node.delay(MS * u32::try_from(chance.next_u64() % 9).unwrap(), MS);
        }
        let inside = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let tasks: Vec<_> = (0..6)
            .map(|client| {
                let semaphore = elsewhere(&bench, 1 + client % 2).ttl(Duration::from_secs(1));
                let (inside, clock, chance) = (inside.clone(), bench.clock.clone(), chance.clone());
                tokio::spawn(async move {
                    let mut granted = 0;
                    for _ in 0..30 {
                        let rest = MS * u32::try_from(chance.next_u64() % 400).unwrap();
                        clock.sleep_until(clock.now() + rest).await;
                        let Ok(Some(permit)) = semaphore.try_acquire().await else { continue };
                        granted += 1;
                        let before = inside[client % 2].fetch_add(1, Ordering::Relaxed);
                        assert!(before < 1 + client % 2, "seed {seed}: more than there are permits");
                        assert_eq!(inside[1 - client % 2].load(Ordering::Relaxed), 0, "seed {seed}: both");
                        clock.sleep_until(clock.now() + rest / 4).await;
                        inside[client % 2].fetch_sub(1, Ordering::Relaxed);
                        drop(permit.release().await);
                    }
                    granted
                })
            })
            .collect();
        for (client, task) in tasks.into_iter().enumerate() {
            grants[client % 2] += task.await.unwrap();
        }
    }
    assert!(grants.iter().all(|grants| *grants > 20), "each number has its time: {grants:?}");
}

#[tokio::test(start_paused = true)]
async fn asking_for_a_free_permit_is_two_requests_to_each_node_in_one_round_trip() {
    let bench = bench(5);
    bench.delay(5 * MS, 5 * MS);
    let semaphore = elsewhere(&bench, 4);
    free_permit(&semaphore).await.release().await.unwrap();
    bench.pass(20 * MS).await;
    let (before, began) = (asked(&bench.nodes), bench.clock.now());
    let permit = free_permit(&semaphore).await;
    assert_eq!(asked(&bench.nodes) - before, 2 * 5);
    assert!(bench.clock.now().since(began) <= 11 * MS);
    permit.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plain_lock_of_the_name_of_a_permit_takes_that_permit() {
    let bench = bench(5);
    let semaphore = bench.coordinator.semaphore(NAME, 2).ttl(TTL);
    let lock = bench.coordinator.lock("r#0").acquire().await.unwrap();
    let permit = semaphore.acquire().await.unwrap();
    assert_eq!(permit.number(), 1);
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    drop(lock);
}

#[tokio::test(start_paused = true)]
async fn work_runs_under_a_permit() {
    let bench = bench(5);
    let semaphore = elsewhere(&bench, 2);
    let value = semaphore
        .with(async |permit| {
            permit.check()?;
            assert_eq!(permit.resource().as_str(), format!("{NAME}#{}", permit.number()));
            Ok::<_, WithError<Infallible, PermitError>>(42)
        })
        .await
        .unwrap();
    assert_eq!(value, 42);
    let short = semaphore.max_hold(TTL / 2);
    let lost = short
        .with(async |_| -> Result<(), WithError<Infallible, PermitError>> { std::future::pending().await })
        .await;
    assert!(matches!(lost, Err(WithError::Lost(Lost { reason: LossReason::MaxHold, .. }))));
    bench.pass(20 * MS).await;
    assert_eq!(keys(&bench, 2), 0);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_number_is_refused_before_any_request() {
    let bench = bench(5);
    for permits in [0, 65, usize::MAX] {
        let semaphore = bench.coordinator.semaphore(NAME, permits);
        let refused = ConfigError::Permits { given: permits, most: 64 };
        assert_eq!(semaphore.validate(), Err(refused.clone()));
        assert_eq!(semaphore.acquire().await.unwrap_err(), PermitError::Config(refused));
    }
    let long = "x".repeat(1_023);
    assert!(matches!(bench.coordinator.semaphore(&long, 2).validate(), Err(ConfigError::Resource(_))));
    assert_eq!(asked(&bench.nodes), 0);
}

#[tokio::test(start_paused = true)]
async fn p1_a_permit_handed_off_in_a_process_needs_the_number() {
    let bench = bench(5);
    let semaphore = elsewhere(&bench, 1).wait(Wait::UpTo(TTL));
    let first = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { semaphore.acquire().await });
    bench.pass(10 * MS).await;
    set_permits(&bench.nodes[..3], 2);
    first.release().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, PermitError::OtherPermits { .. }), "{error}");
    bench.settle().await;
    assert_eq!(keys(&bench, 1), 0);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_permits_is_known_while_one_is_held() {
    let bench = bench(5);
    let coordinator = &bench.coordinator;
    assert_eq!(coordinator.permits("s").await, Ok(None));
    let permit = coordinator.semaphore("s", 3).acquire().await.unwrap();
    assert_eq!(coordinator.permits("s").await, Ok(Some(3)));
    assert_eq!(coordinator.permits("another").await, Ok(None));
    bench.nodes.iter().take(2).for_each(quorlock_testkit::MemoryNode::hang);
    assert_eq!(coordinator.permits("s").await, Ok(Some(3)), "those that answer");
    permit.release().await.unwrap();
    bench.nodes[2].hang();
    let unknown = coordinator.permits("another").await;
    assert!(matches!(unknown, Err(PermitError::Unavailable { .. })), "{unknown:?}");
    let nameless = coordinator.semaphore("", 3);
    assert!(coordinator.permits("").await.is_err() && nameless.validate().is_err());
}
