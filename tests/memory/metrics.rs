//! Metrics, by the scenarios that they count; gauges return to zero.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common::{Bench, LATE, ReportedNode, TTL, VALIDITY, another, bench};
use futures::FutureExt as _;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use quorlock::metrics::{ALL, Kind};
use quorlock::node::{ConnectionState, Identity, NodeError};
use quorlock::{AcquireError, Fencing, Lock, Wait};
use quorlock_testkit::TokioClock;

/// The metrics recorded by a bench and its locks.
struct Counted {
    bench: Bench,
    /// It stays where it is: coordinators with one recorder share a gauge.
    recorder: Box<PrometheusRecorder>,
}

impl Counted {
    fn new(nodes: usize) -> Counted {
        let recorder = Box::new(PrometheusBuilder::new().build_recorder());
        let bench = metrics::with_local_recorder(&*recorder, || bench(nodes));
        Counted { bench, recorder }
    }

    fn lock(&self) -> Lock {
        self.bench.lock()
    }

    /// The sample whose series contains these words: the name and all labels.
    #[track_caller]
    fn sample(&self, series: &str) -> f64 {
        let samples = samples(&self.recorder.handle());
        *samples.get(series).unwrap_or_else(|| panic!("{series} is not among {samples:#?}"))
    }

    /// Asserts that the gauges of holders and waiters are zero.
    #[track_caller]
    fn at_rest(&self) {
        for (series, value) in samples(&self.recorder.handle()) {
            let gauge = ["quorlock_held", "quorlock_waiters", "quorlock_oldest", "quorlock_node_up"];
            if gauge.iter().any(|name| series.starts_with(name)) {
                assert!(value == 0.0, "{series} is {value}");
            }
        }
    }
}

/// Each series in the exporter's output, with its value.
pub(crate) fn samples(handle: &PrometheusHandle) -> BTreeMap<String, f64> {
    let text = handle.render();
    let line = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        (!line.starts_with('#')).then(|| (series.to_owned(), value.parse().unwrap()))
    };
    text.lines().filter_map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_counted_from_asking_to_release() {
    let counted = Counted::new(5);
    assert_eq!(counted.sample("quorlock_quorum"), 3.0);
    let lease = counted.lock().acquire().await.unwrap();
    assert_eq!(counted.sample("quorlock_held"), 1.0);
    counted.bench.pass(TTL / 3 + LATE).await;
    lease.release().await.unwrap();
    counted.bench.settle().await;
    for (series, value) in [
        ("quorlock_acquisitions_total{outcome=\"acquired\"}", 1.0),
        ("quorlock_renewals_total{outcome=\"confirmed\"}", 1.0),
        ("quorlock_releases_total{outcome=\"confirmed\"}", 1.0),
        ("quorlock_acquire_rounds_sum", 1.0),
        ("quorlock_acquire_duration_seconds_count", 1.0),
        ("quorlock_hold_duration_seconds_count", 1.0),
        ("quorlock_validity_remaining_ratio_count{at=\"acquire\"}", 1.0),
        ("quorlock_validity_remaining_ratio_count{at=\"renewal\"}", 1.0),
        ("quorlock_validity_remaining_ratio_count{at=\"release\"}", 1.0),
        ("quorlock_lost_total{reason=\"expired\"}", 0.0),
    ] {
        assert_eq!(counted.sample(series), value, "{series}");
    }
    let held = counted.sample("quorlock_hold_duration_seconds_sum");
    assert!(held >= (TTL / 3).as_secs_f64() && held < TTL.as_secs_f64() / 2.0, "{held}");
    let left = counted.sample("quorlock_validity_remaining_ratio_sum{at=\"renewal\"}");
    assert!((0.6..0.67).contains(&left), "a third had passed when it was renewed: {left}");
    counted.at_rest();
}

#[tokio::test(start_paused = true)]
async fn shared_leases_are_counted_as_plain_ones_and_a_downgrade_is_no_new_lease() {
    let counted = Counted::new(5);
    let writer = counted.lock().acquire().await.unwrap();
    let one = writer.downgrade().await.unwrap();
    let two = counted.lock().shared().acquire().await.unwrap();
    let three = counted.lock().shared().try_acquire().await.unwrap().unwrap();
    assert_eq!(counted.sample("quorlock_held"), 3.0);
    counted.bench.pass(TTL / 3 + LATE).await;
    for lease in [one, two, three] {
        lease.release().await.unwrap();
    }
    counted.bench.settle().await;
    for (series, value) in [
        ("quorlock_acquisitions_total{outcome=\"acquired\"}", 3.0),
        ("quorlock_renewals_total{outcome=\"confirmed\"}", 4.0),
        ("quorlock_releases_total{outcome=\"confirmed\"}", 3.0),
        ("quorlock_acquire_rounds_sum", 3.0),
        ("quorlock_acquire_duration_seconds_count", 3.0),
        ("quorlock_hold_duration_seconds_count", 3.0),
        ("quorlock_validity_remaining_ratio_count{at=\"acquire\"}", 3.0),
        ("quorlock_validity_remaining_ratio_count{at=\"release\"}", 3.0),
    ] {
        assert_eq!(counted.sample(series), value, "{series}");
    }
    let lost = counted.lock().shared().acquire().await.unwrap();
    counted.bench.nodes.iter().for_each(quorlock_testkit::MemoryNode::hang);
    lost.lost().await;
    counted.bench.pass(VALIDITY).await;
    assert_eq!(counted.sample("quorlock_lost_total{reason=\"expired\"}"), 1.0);
    counted.at_rest();
}

#[tokio::test(start_paused = true)]
async fn each_outcome_of_an_acquire_is_counted() {
    let counted = Counted::new(3);
    let lease = counted.lock().acquire().await.unwrap();
    assert!(counted.lock().try_acquire().await.unwrap().is_none());
    let other = another(&counted.bench.clock, &counted.bench.nodes, |builder| builder);
    lease.release().await.unwrap();
    let theirs = other.lock("r").ttl(TTL).acquire().await.unwrap();
    counted.lock().wait(Wait::UpTo(LATE)).acquire().await.unwrap_err();
    assert_eq!(counted.sample("quorlock_acquisitions_total{outcome=\"contended\"}"), 2.0);

    // Dropped while it waits.
    let waiting = counted.bench.waiting(counted.lock().wait(Wait::Forever)).await;
    assert_eq!(counted.sample("quorlock_waiters"), 1.0);
    let oldest = || counted.sample("quorlock_oldest_waiter_start_time_seconds");
    let began = oldest();
    counted.bench.pass(Duration::from_secs(2)).await;
    let second = counted.bench.waiting(counted.lock().wait(Wait::Forever)).await;
    assert!(began > 0.0 && (oldest() - began).abs() < 0.001, "the first waiter is the oldest");
    waiting.abort();
    counted.bench.settle().await;
    assert!((2.0..3.0).contains(&(oldest() - began)), "the second is the oldest now");
    second.abort();
    counted.bench.settle().await;
    assert_eq!(counted.sample("quorlock_acquisitions_total{outcome=\"cancelled\"}"), 2.0);
    // Dropped before completion, which nodes that answer immediately would not allow.
    counted.bench.delay(Duration::from_millis(1), Duration::ZERO);
    assert!(counted.lock().acquire().now_or_never().is_none());
    counted.bench.delay(Duration::ZERO, Duration::ZERO);
    assert_eq!(counted.sample("quorlock_acquisitions_total{outcome=\"cancelled\"}"), 3.0);
    drop(theirs);
    counted.bench.settle().await;

    counted.bench.nodes.iter().take(2).for_each(quorlock_testkit::MemoryNode::hang);
    counted.lock().acquire().await.unwrap_err();
    assert_eq!(counted.sample("quorlock_acquisitions_total{outcome=\"unavailable\"}"), 1.0);
    counted.lock().ttl(TTL * 10).acquire().await.unwrap_err();
    assert_eq!(counted.sample("quorlock_acquisitions_total{outcome=\"config\"}"), 1.0);
    counted.bench.coordinator.close(Duration::ZERO).await;
    counted.lock().acquire().await.unwrap_err();
    assert_eq!(counted.sample("quorlock_acquisitions_total{outcome=\"closed\"}"), 1.0);
    counted.at_rest();
}

#[tokio::test(start_paused = true)]
async fn the_oldest_waiter_is_that_of_all_coordinators() {
    let counted = Counted::new(3);
    let Bench { clock, nodes, .. } = &counted.bench;
    let second =
        metrics::with_local_recorder(&*counted.recorder, || another(clock, nodes, |builder| builder));
    let theirs = another(clock, nodes, |builder| builder).lock("r").ttl(TTL).acquire().await.unwrap();
    let waiting = counted.bench.waiting(counted.lock().wait(Wait::Forever)).await;
    let oldest = || counted.sample("quorlock_oldest_waiter_start_time_seconds");
    let began = oldest();
    assert!(began > 0.0);
    counted.bench.pass(Duration::from_secs(2)).await;
    drop(second.lock("free").acquire().await.unwrap());
    assert_eq!(oldest(), began, "the first coordinator's caller waits still");
    waiting.abort();
    counted.bench.settle().await;
    drop(theirs);
    drop(second);
    counted.bench.settle().await;
    counted.at_rest();
}

/// Of one caller that waits for the nodes, the others see only that it came before them.
#[tokio::test(start_paused = true)]
async fn an_outage_is_counted_as_one_behind_a_waiter_of_the_process() {
    let counted = Counted::new(5);
    counted.bench.nodes.iter().take(3).for_each(quorlock_testkit::MemoryNode::disconnect);
    let waiting = counted.bench.waiting(counted.lock().wait(Wait::Forever)).await;
    assert!(matches!(counted.lock().try_acquire().await, Err(AcquireError::Unavailable { .. })));
    let refused = counted.lock().wait(Wait::Never).acquire().await;
    assert!(matches!(refused, Err(AcquireError::Unavailable { .. })), "{refused:?}");
    for (outcome, calls) in [("unavailable", 2.0), ("contended", 0.0)] {
        let series = format!("quorlock_acquisitions_total{{outcome=\"{outcome}\"}}");
        assert_eq!(counted.sample(&series), calls, "{series}");
    }
    waiting.abort();
    counted.bench.settle().await;
    counted.at_rest();
}

#[tokio::test(start_paused = true)]
async fn a_lease_ended_in_any_way_leaves_no_gauge_up() {
    let counted = Counted::new(3);
    drop(counted.lock().acquire().await.unwrap());
    counted.bench.settle().await;
    counted.at_rest();

    let lease = counted.lock().acquire().await.unwrap();
    counted.bench.nodes.iter().for_each(quorlock_testkit::MemoryNode::flush);
    counted
        .bench
        .nodes
        .iter()
        .for_each(|node| node.set_data("r", "theirs", quorlock::node::Expiry::In(LATE)));
    lease.lost().await;
    counted.bench.settle().await;
    assert_eq!(counted.sample("quorlock_lost_total{reason=\"quorum_lost\"}"), 1.0);
    assert_eq!(counted.sample("quorlock_renewals_total{outcome=\"quorum_lost\"}"), 1.0);
    counted.at_rest();
    drop(lease);
    counted.bench.pass(TTL).await;

    let limited = counted.lock().max_hold(LATE).acquire().await.unwrap();
    limited.lost().await;
    counted.bench.pass(LATE).await;
    assert_eq!(counted.sample("quorlock_lost_total{reason=\"max_hold\"}"), 1.0);

    let lease = counted.lock().acquire().await.unwrap();
    counted.bench.nodes.iter().for_each(quorlock_testkit::MemoryNode::hang);
    lease.lost().await;
    counted.bench.pass(VALIDITY).await;
    assert_eq!(counted.sample("quorlock_lost_total{reason=\"expired\"}"), 1.0);
    assert!(counted.sample("quorlock_renewals_total{outcome=\"unconfirmed\"}") > 1.0);
    counted.bench.nodes.iter().for_each(quorlock_testkit::MemoryNode::resume);
    counted.bench.pass(TTL).await;

    let lease = counted.lock().acquire().await.unwrap();
    counted.bench.coordinator.close(Duration::from_secs(1)).await;
    assert!(lease.check().is_err());
    assert_eq!(counted.sample("quorlock_lost_total{reason=\"closed\"}"), 1.0);
    counted.at_rest();
}

#[derive(Clone, Copy, Debug)]
enum End {
    Released,
    Dropped,
    Retained,
}

/// A hold that is too short for a renewal: nothing else notices.
#[tokio::test(start_paused = true)]
async fn a_lease_that_its_release_finds_lost_is_counted_once() {
    let counted = Counted::new(3);
    for (already, (end, has_waiter)) in [
        (End::Released, false),
        (End::Dropped, false),
        (End::Released, true),
        (End::Dropped, true),
        (End::Retained, false),
    ]
    .into_iter()
    .enumerate()
    {
        let already = u32::try_from(already).unwrap();
        let lease = counted.lock().acquire().await.unwrap();
        let waiter = if has_waiter {
            Some(counted.bench.waiting(counted.lock().wait(Wait::Forever)).await)
        } else {
            None
        };
        for node in &counted.bench.nodes {
            node.flush();
            node.set_data("r", "theirs", quorlock::node::Expiry::In(LATE));
        }
        match end {
            End::Dropped => drop(lease),
            End::Released => drop(lease.release().await.unwrap_err()),
            End::Retained => drop(lease.retain(LATE, "").await.unwrap_err()),
        }
        counted.bench.pass(LATE * 2).await;
        let lost = counted.sample("quorlock_lost_total{reason=\"quorum_lost\"}");
        assert_eq!(lost, f64::from(already + 1), "{end:?}, a waiter: {has_waiter}");
        if let Some(waiter) = waiter {
            counted.bench.pass(TTL).await;
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
        counted.bench.pass(TTL).await;
        counted.at_rest();
    }
}

#[test]
fn a_runtime_shut_down_leaves_no_gauge_up() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let counted = runtime.block_on(async { Counted::new(3) });
    let lease = runtime.block_on(counted.lock().acquire()).unwrap();
    let _waiting = runtime.block_on(counted.bench.waiting(counted.lock().wait(Wait::Forever)));
    assert_eq!((counted.sample("quorlock_held"), counted.sample("quorlock_waiters")), (1.0, 1.0));
    drop(runtime);
    assert_eq!((counted.sample("quorlock_held"), counted.sample("quorlock_waiters")), (1.0, 0.0));
    drop(lease);
    // The pending work is done by the next call, from any runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { counted.lock().acquire().await.unwrap().release().await.unwrap() });
    counted.at_rest();
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_handoff_is_counted_apart() {
    let counted = Counted::new(5);
    let first = counted.lock().acquire().await.unwrap();
    let second = counted.bench.waiting(counted.lock().wait(Wait::Forever)).await;
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(counted.sample("quorlock_handoffs_total{outcome=\"by_round\"}"), 1.0);
    // Without a quorum the next one has to contend.
    let third = counted.bench.waiting(counted.lock().wait(Wait::Forever)).await;
    counted.bench.nodes.iter().for_each(quorlock_testkit::MemoryNode::hang);
    second.release().await.unwrap();
    counted.bench.pass(LATE).await;
    assert_eq!(counted.sample("quorlock_handoffs_total{outcome=\"failed\"}"), 1.0);
    counted.bench.nodes.iter().for_each(quorlock_testkit::MemoryNode::resume);
    drop(third.await.unwrap().unwrap());
    counted.bench.settle().await;

    let plain = counted.lock().fencing(Fencing::Off);
    let first = plain.acquire().await.unwrap();
    let rounds = counted.sample("quorlock_acquire_rounds_sum");
    let second = counted.bench.waiting(plain.wait(Wait::Forever)).await;
    first.release().await.unwrap();
    drop(second.await.unwrap().unwrap());
    counted.bench.settle().await;
    assert_eq!(counted.sample("quorlock_handoffs_total{outcome=\"locally\"}"), 1.0);
    assert_eq!(counted.sample("quorlock_acquire_rounds_sum"), rounds, "it needed no round");
    counted.at_rest();
}

#[tokio::test(start_paused = true)]
async fn answers_are_counted_by_outcome_and_delay() {
    let counted = Counted::new(3);
    counted.bench.nodes[2].delay(LATE, Duration::ZERO);
    drop(counted.lock().acquire().await.unwrap());
    counted.bench.pass(LATE * 3).await;
    let of = |node: usize, metric: &str, rest: &str| {
        let name = quorlock::node::Node::name(&counted.bench.nodes[node]).to_owned();
        counted.sample(&format!("quorlock_node_{metric}{{node=\"{name}\"{rest}}}"))
    };
    assert_eq!(of(0, "answers_total", ",answer=\"granted\""), 2.0, "an acquisition and a release");
    assert_eq!(of(0, "late_answers_total", ""), 0.0);
    assert!(of(2, "late_answers_total", "") >= 1.0, "it was slower than the timeout");
    assert_eq!(of(0, "request_duration_seconds_count", ",op=\"acquire\""), 1.0);
    assert!(of(2, "request_duration_seconds_sum", ",op=\"acquire\"") >= LATE.as_secs_f64());
    counted.bench.nodes[2].delay(Duration::ZERO, Duration::ZERO);
    counted.bench.nodes[1].disconnect();
    drop(counted.lock().acquire().await.unwrap());
    assert_eq!(of(1, "errors_total", ",kind=\"unreachable\""), 1.0);
}

/// A cluster that loses one master after another keeps its other connections.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_answers_in_part_is_no_new_connection() {
    let clock: std::sync::Arc<dyn quorlock::runtime::Clock> = std::sync::Arc::new(TokioClock::new());
    let node = ReportedNode::new(quorlock_testkit::memory_nodes_on(&clock, 1).remove(0));
    let recorder = PrometheusBuilder::new().build_recorder();
    let builder = quorlock::Coordinator::builder().custom_nodes([node.clone()]).clock(clock.clone());
    let _coordinator = metrics::with_local_recorder(&recorder, || builder.build().unwrap());
    let sample = |metric: &str| {
        let start = format!("quorlock_node_{metric}{{");
        let samples = samples(&recorder.handle());
        samples.into_iter().find_map(|(series, value)| series.starts_with(&start).then_some(value)).unwrap()
    };
    let identity = std::sync::Arc::new(Identity::new("one", clock.now(), TTL * 100));
    let connected = || ConnectionState::Connected(identity.clone());
    let gone = |reason: &'static str| NodeError::Unreachable { reason: reason.into() };
    for (state, up, connects) in [
        (connected(), 1.0, 1.0),
        (ConnectionState::Partial(gone("connection ended")), 1.0, 1.0),
        (ConnectionState::Partial(gone("connection refused")), 1.0, 1.0),
        (connected(), 1.0, 1.0),
        (ConnectionState::Lost(gone("connection refused")), 0.0, 1.0),
        (ConnectionState::Partial(gone("connection refused")), 1.0, 2.0),
        (ConnectionState::Stalled(gone("no answer")), 0.0, 2.0),
        (ConnectionState::Partial(gone("connection refused")), 1.0, 2.0),
        (connected(), 1.0, 2.0),
    ] {
        let shown = format!("{state:?}");
        node.report(state);
        assert_eq!((sample("up"), sample("connects_total")), (up, connects), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disputed_number_is_counted_as_written_back() {
    let counted = Counted::new(3);
    let clock = &counted.bench.clock;
    // One node is ahead, and the others have to follow.
    let ahead = u64::try_from((clock.wall() + TTL).as_micros()).unwrap();
    let key = quorlock::protocol::fence_counter("", "r");
    counted.bench.nodes[0].set_data(&key, ahead, quorlock::node::Expiry::In(TTL));
    drop(counted.lock().acquire().await.unwrap());
    assert_eq!(counted.sample("quorlock_write_backs_total"), 1.0);
    assert_eq!(counted.sample("quorlock_acquire_rounds_sum"), 2.0, "which takes a second round");
}

#[tokio::test(start_paused = true)]
async fn a_class_is_counted_apart_and_a_resource_is_never_named() {
    let counted = Counted::new(3);
    let lock = || {
        let lock = counted.bench.coordinator.lock("secret-resource").ttl(TTL);
        metrics::with_local_recorder(&*counted.recorder, || lock.metrics_class("orders"))
    };
    let lease = lock().acquire().await.unwrap();
    assert_eq!(counted.sample("quorlock_held{class=\"orders\"}"), 1.0);
    assert_eq!(counted.sample("quorlock_held"), 0.0, "another class");
    drop(lease);
    counted.bench.settle().await;
    assert_eq!(counted.sample("quorlock_acquisitions_total{class=\"orders\",outcome=\"acquired\"}"), 1.0);
    counted.at_rest();
    let all = counted.recorder.handle().render();
    assert!(!all.contains("secret-resource"), "{all}");
}

#[cfg(feature = "blocking")]
#[test]
fn a_class_is_counted_apart_without_async_as_well() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let lease = metrics::with_local_recorder(&recorder, || {
        let nodes = quorlock_testkit::memory_nodes(3);
        let coordinator = quorlock::Builder::default().custom_nodes(nodes).build_blocking().unwrap();
        coordinator.lock("r").metrics_class("orders").acquire().unwrap()
    });
    assert_eq!(samples(&recorder.handle())["quorlock_held{class=\"orders\"}"], 1.0);
    lease.release().unwrap();
}

/// The list in the library is complete, with the right labels.
#[tokio::test(start_paused = true)]
async fn the_listed_metrics_are_the_counted_metrics() {
    let counted = Counted::new(3);
    let lock = metrics::with_local_recorder(&*counted.recorder, || counted.lock().metrics_class("orders"));
    let lease = lock.acquire().await.unwrap();
    counted.bench.pass(TTL / 2).await;
    drop(lease);
    counted.bench.settle().await;
    let text = counted.recorder.handle().render();
    let mut recorded: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for series in samples(&counted.recorder.handle()).keys() {
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let name =
            ["_sum", "_count", "_bucket"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let labels = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        recorded.entry(name.to_owned()).or_default().extend(labels.filter(|name| name != "quantile"));
    }
    for metric in ALL {
        let labels = recorded.remove(metric.name).unwrap_or_else(|| panic!("{} is not counted", metric.name));
        let listed: BTreeSet<String> = metric.labels.iter().map(|label| (*label).to_owned()).collect();
        assert_eq!(labels, listed, "the labels of {}", metric.name);
        assert!(text.contains(&format!("# HELP {} {}", metric.name, metric.help)), "{}", metric.name);
        assert_eq!(metric.kind == Kind::Histogram, !metric.buckets.is_empty(), "{}", metric.name);
    }
    assert_eq!(recorded, BTreeMap::new(), "these are not listed");
}

/// Every value that a counter is registered with is in `docs/observability.md`, and no other; of histograms, every value
/// that is recorded.
#[tokio::test(start_paused = true)]
async fn the_values_of_labels_are_those_of_the_page() {
    let counted = Counted::new(3);
    let lease = metrics::with_local_recorder(&*counted.recorder, || counted.lock()).acquire().await.unwrap();
    counted.bench.pass(TTL / 2).await;
    drop(lease);
    counted.bench.settle().await;
    let mut emitted: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for series in samples(&counted.recorder.handle()).keys() {
        let Some((name, labels)) = series.trim_end_matches('}').split_once('{') else { continue };
        let name = name.trim_end_matches("_sum").trim_end_matches("_count").trim_end_matches("_bucket");
        for (label, value) in labels.split(',').filter_map(|label| label.split_once('=')) {
            if !["class", "node", "quantile", "le"].contains(&label) {
                let values = emitted.entry((name.to_owned(), label.to_owned())).or_default();
                values.insert(value.trim_matches('"').to_owned());
            }
        }
    }
    assert!(emitted.len() > 6, "{emitted:?}");
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/observability.md")).unwrap();
    for ((name, label), values) in emitted {
        let begins = [format!("- `{label}` of `{name}`: "), format!("- `{label}`: ")];
        let line =
            page.lines().find_map(|line| begins.iter().find_map(|begin| line.strip_prefix(begin.as_str())));
        let line = line.unwrap_or_else(|| panic!("the page lists no values of `{label}` of `{name}`"));
        let words = line.split('`').skip(1).step_by(2).filter(|word| !word.contains(' '));
        let listed: BTreeSet<String> = words.map(str::to_owned).collect();
        if name.ends_with("_total") {
            assert_eq!(listed, values, "`{label}` of `{name}`");
        } else {
            assert!(listed.is_superset(&values), "`{label}` of `{name}`: {listed:?}, {values:?}");
        }
    }
}
