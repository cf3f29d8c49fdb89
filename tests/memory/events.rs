//! The log events of typical scenarios.

use std::fmt::{Debug, Write as _};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::common::{Bench, LATE, ReportedNode, TTL, VALIDITY, bench, client};
use futures::FutureExt as _;
use quorlock::doctor::{Check, Finding};
use quorlock::health::NodeStatus;
use quorlock::node::{Access, ConnectionState, Identity, NodeError, NodeErrorKind};
use quorlock::protocol::Moment;
use quorlock::{Coordinator, RestartGuard, Wait};
use quorlock_testkit::{Kind, MemoryNode, Servers, patience, until};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// All events, line by line.
#[derive(Clone, Default)]
struct Log {
    lines: Arc<Mutex<Vec<(Level, String)>>>,
}

impl Log {
    /// Captures everything on this thread from now on.
    fn start() -> (Log, DefaultGuard) {
        let log = Log::default();
        // A lone subscriber would miss events that other threads reach first: `tracing` would then ask only
        // the subscriber of that thread.
        drop(tracing::subscriber::set_global_default(NoSubscriber::default()));
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(log.clone()));
        (log, guard)
    }

    fn of(&self, level: Level) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|(at, _)| *at == level).map(|(_, line)| line.clone()).collect()
    }

    fn with(&self, words: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|(_, line)| line.contains(words)).map(|(_, line)| line.clone()).collect()
    }

    fn all(&self) -> String {
        self.lines.lock().unwrap().iter().fold(String::new(), |mut all, (level, line)| {
            writeln!(all, "{level} {line}").unwrap();
            all
        })
    }
}

/// The fields recorded in a span so far.
struct Fields(String);

struct Words<'a>(&'a mut String);

impl Visit for Words<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Log {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = String::new();
        attributes.record(&mut Words(&mut fields));
        context.span(id).unwrap().extensions_mut().insert(Fields(fields));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        values.record(&mut Words(&mut span.extensions_mut().get_mut::<Fields>().unwrap().0));
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().starts_with("quorlock") {
            let mut line = String::new();
            event.record(&mut Words(&mut line));
            self.lines.lock().unwrap().push((*event.metadata().level(), line));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        if span.metadata().target().starts_with("quorlock") {
            let line = format!("span {}{}", span.name(), span.extensions().get::<Fields>().unwrap().0);
            self.lines.lock().unwrap().push((*span.metadata().level(), line));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_hold_logs_at_debug_and_never_its_token() {
    let bench = bench(5);
    let (log, _guard) = Log::start();
    let lease = bench.lock().label("worker").acquire().await.unwrap();
    let (token, short) =
        (String::from_utf8_lossy(lease.token().as_bytes()).into_owned(), lease.token().short());
    let fencing_token = lease.fencing_token();
    bench.pass(TTL / 2).await;
    lease.release().await.unwrap();
    bench.settle().await;
    for level in [Level::ERROR, Level::WARN, Level::INFO] {
        assert_eq!(log.of(level), Vec::<String>::new(), "at {level}");
    }
    for event in ["message=acquired", "message=renewed", "message=released"] {
        let lines = log.with(event);
        assert!(
            lines.len() == 1 && lines[0].contains(&short) && lines[0].contains("resource=r"),
            "{event} {lines:?}"
        );
    }
    let number = format!(" fencing_token={fencing_token}");
    assert!(log.with("message=acquired")[0].contains(&number), "{:?}", log.with("message=acquired"));
    let all = log.all();
    let random = token.split(' ').next().unwrap().get(..32).unwrap_or(&token);
    assert!(!all.contains(random), "the token is the right to release:\n{all}");
    let span = log.with("span acquire");
    assert_eq!(span.len(), 1, "{all}");
    for field in [
        "resource=\"r\"",
        "worker",
        "outcome=\"acquired\"",
        "rounds=1",
        "elapsed=",
        &format!("token=\"{short}\""),
    ] {
        assert!(span[0].contains(field), "{field} in {span:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_logs_like_a_lock_and_a_downgrade_logs_its_mode() {
    let bench = bench(3);
    let (log, _guard) = Log::start();
    let writer = bench.lock().acquire().await.unwrap();
    let one = writer.downgrade().await.unwrap();
    let two = bench.lock().shared().acquire().await.unwrap();
    let short = two.token().short();
    one.release().await.unwrap();
    two.release().await.unwrap();
    bench.settle().await;
    for (event, times) in
        [("message=acquired", 2), ("message=shared from now on", 1), ("message=released", 2)]
    {
        assert_eq!(log.with(event).len(), times, "{event}: {}", log.all());
    }
    for level in [Level::ERROR, Level::WARN, Level::INFO] {
        assert_eq!(log.of(level), Vec::<String>::new(), "at {level}");
    }
    let spans = log.with("span acquire");
    assert!(spans.len() == 2, "{spans:?}");
    assert!(spans[1].contains("rounds=1") && spans[1].contains(&format!("token=\"{short}\"")), "{spans:?}");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_or_failed_attempt_says_so_in_its_span() {
    let bench = bench(3);
    let other = client(&bench);
    let _theirs = other.lock("r").ttl(TTL).acquire().await.unwrap();
    let (log, _guard) = Log::start();
    bench.lock().wait(Wait::UpTo(LATE)).acquire().await.unwrap_err();
    let waiting = bench.waiting(bench.lock().wait(Wait::Forever)).await;
    waiting.abort();
    bench.settle().await;
    let spans = log.with("span acquire");
    assert!(spans.len() == 2 && spans[0].contains("outcome=\"contended\""), "{spans:?}");
    assert!(spans[1].contains("outcome=\"cancelled\""), "{spans:?}");
    assert_eq!(log.of(Level::WARN), Vec::<String>::new(), "waiting is no reason for a warning");
    assert!(log.of(Level::TRACE).iter().any(|line| line.contains("not acquired")), "each round, at trace");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_warns_once_after_one_warning_of_renewals() {
    let bench = bench(3);
    let (log, _guard) = Log::start();
    let lease = bench.lock().acquire().await.unwrap();
    bench.nodes.iter().for_each(MemoryNode::hang);
    lease.lost().await;
    drop(lease);
    bench.pass(VALIDITY).await;
    let warnings = log.of(Level::WARN);
    assert_eq!(warnings.len(), 2, "{}", log.all());
    assert!(warnings[0].contains("renewal not confirmed") && warnings[0].contains("votes="), "{warnings:?}");
    assert!(warnings[1].contains("lease lost") && warnings[1].contains("reason="), "{warnings:?}");
    assert!(log.with("renewal still not confirmed").len() > 1, "the others are logged at a lower level");
}

#[tokio::test(start_paused = true)]
async fn closing_a_coordinator_logs_no_warning() {
    let bench = bench(3);
    let (log, _guard) = Log::start();
    let lease = bench.lock().acquire().await.unwrap();
    bench.coordinator.close(Duration::from_secs(1)).await;
    assert!(lease.check().is_err());
    assert_eq!(log.of(Level::WARN), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_answers_in_part_warns_once() {
    let node = ReportedNode::new(quorlock_testkit::memory_nodes(1).remove(0));
    let (log, _guard) = Log::start();
    let _coordinator = Coordinator::builder().custom_nodes([node.clone()]).build().unwrap();
    for reason in ["connection ended", "connection refused", "connection timed out"] {
        node.report(ConnectionState::Partial(NodeError::Unreachable { reason: reason.into() }));
    }
    assert_eq!(log.of(Level::WARN).len(), 1, "{}", log.all());
    assert_eq!(log.with("still partially available").len(), 2, "{}", log.all());
}

/// Asks for the health of the nodes at each event.
struct Asks {
    coordinator: Coordinator,
    heard: Arc<Mutex<usize>>,
}

impl<S: Subscriber> Layer<S> for Asks {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().starts_with("quorlock") {
            drop(self.coordinator.health().now());
            *self.heard.lock().unwrap() += 1;
        }
    }
}

#[tokio::test]
async fn a_program_that_hears_of_an_event_may_ask_for_the_health_of_the_nodes() {
    let (node, heard) =
        (ReportedNode::new(quorlock_testkit::memory_nodes(1).remove(0)), Arc::<Mutex<usize>>::default());
    let coordinator = Coordinator::builder().custom_nodes([node.clone()]).build().unwrap();
    drop(tracing::subscriber::set_global_default(NoSubscriber::default()));
    let (asks, (done, reported)) = (Asks { coordinator, heard: heard.clone() }, channel());
    // On a thread of its own, since it waited for itself.
    thread::spawn(move || {
        tracing::subscriber::with_default(tracing_subscriber::registry().with(asks), || {
            (0..2).for_each(|_| node.report(ConnectionState::Lost(NodeError::NotAsked)));
        });
        done.send(()).unwrap();
    });
    reported.recv_timeout(patience()).expect("both reports are heard");
    assert_eq!(*heard.lock().unwrap(), 2, "a change, and that there was none");
}

#[tokio::test(start_paused = true)]
async fn two_addresses_of_one_server_warn() {
    let nodes: Vec<_> = quorlock_testkit::memory_nodes(3).into_iter().map(ReportedNode::new).collect();
    let (log, _guard) = Log::start();
    let coordinator = Coordinator::builder().custom_nodes(nodes.clone()).build().unwrap();
    let is = |id: &str| ConnectionState::Connected(Identity::new(id, Moment::ORIGIN, TTL * 999).into());
    nodes.iter().zip(["one", "other", "other"]).for_each(|(node, id)| node.report(is(id)));
    assert_eq!(log.of(Level::WARN).len(), 1, "{}", log.all());
    for words in ["node-2 and node-3 are one server", "same-server", "remove one of the addresses"] {
        assert!(log.of(Level::WARN)[0].contains(words), "{}", log.all());
    }
    let warned = |found: Vec<Finding>| found.into_iter().map(|finding| finding.check).collect::<Vec<_>>();
    assert_eq!(warned(coordinator.warnings()), [Check::SameServer]);
    nodes[2].report(is("third"));
    assert_eq!((warned(coordinator.warnings()).len(), log.of(Level::WARN).len()), (0, 1), "{}", log.all());
}

/// Acquires and releases on three nodes, of which one may refuse.
async fn hold(bench: &Bench) {
    bench.lock().acquire().await.unwrap().release().await.unwrap();
    bench.settle().await;
}

const NO_RIGHT: NodeErrorKind = NodeErrorKind::PermissionDenied(Access::Operation);

#[tokio::test(start_paused = true)]
async fn a_node_that_answers_with_errors_warns_once_until_it_has_granted_for_a_minute() {
    let bench = bench(3);
    let (log, _guard) = Log::start();
    let mut health = bench.coordinator.health();
    for _ in 0..5 {
        // As if it refused some keys only.
        bench.nodes[0].fail(NO_RIGHT, "it may not run EVAL");
        hold(&bench).await;
        bench.nodes[0].recover();
        hold(&bench).await;
        bench.pass(Duration::from_secs(59)).await;
    }
    let warnings = log.of(Level::WARN);
    assert_eq!(warnings.len(), 1, "{}", log.all());
    for words in ["answers, but refuses requests", "node=", "it may not run EVAL"] {
        assert!(warnings[0].contains(words), "{warnings:?}");
    }
    assert_eq!(log.with("grants again").len(), 0, "{}", log.all());
    let nodes = health.changed().now_or_never().expect("the status has changed").unwrap();
    assert!(
        nodes[0].to_string().contains("connected, but refuses requests: it may not run EVAL"),
        "{nodes:?}"
    );
    assert!(nodes[0].lasted >= Duration::from_secs(290), "since the first refusal: {nodes:?}");
    assert!(nodes[1..].iter().all(|node| node.status == NodeStatus::Unknown), "{nodes:?}");
    bench.pass(Duration::from_secs(1)).await;
    hold(&bench).await;
    hold(&bench).await;
    assert_eq!(log.with("grants again").len(), 1, "{}", log.all());
    let nodes = health.changed().now_or_never().expect("the status has changed").unwrap();
    assert_eq!(nodes[0].status, NodeStatus::Unknown, "a node in memory reports no connection");
    bench.nodes[0].fail(NO_RIGHT, "it may not run EVAL");
    hold(&bench).await;
    assert_eq!(log.of(Level::WARN).len(), 2, "it is another change: {}", log.all());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_refuses_while_a_lease_is_renewed_warns() {
    let bench = bench(3);
    let (log, _guard) = Log::start();
    let lease = bench.lock().acquire().await.unwrap();
    bench.nodes[0].fail(NodeErrorKind::OutOfSpace, "its disk is full");
    bench.pass(TTL * 3).await;
    assert_eq!(log.of(Level::WARN).len(), 1, "{}", log.all());
    bench.nodes[0].fail(NO_RIGHT, "it may not run EVAL");
    bench.pass(TTL * 3).await;
    assert_eq!(log.of(Level::WARN).len(), 2, "another one, as it is permanent: {}", log.all());
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_busy_warns_only_if_that_lasts() {
    let bench = bench(3);
    let (log, _guard) = Log::start();
    for seconds in [1, 9, 9] {
        bench.nodes[0].fail(NodeErrorKind::Busy, "it is loading its data");
        hold(&bench).await;
        bench.pass(Duration::from_secs(seconds)).await;
        hold(&bench).await;
        bench.nodes[0].recover();
        hold(&bench).await;
    }
    assert!(log.of(Level::WARN).is_empty() && log.of(Level::INFO).is_empty(), "{}", log.all());
    bench.nodes[0].fail(NodeErrorKind::Busy, "it has too few replicas");
    hold(&bench).await;
    bench.pass(Duration::from_secs(10)).await;
    hold(&bench).await;
    hold(&bench).await;
    assert_eq!(log.of(Level::WARN).len(), 1, "{}", log.all());
}

#[tokio::test(start_paused = true)]
async fn what_the_status_of_a_node_says_is_not_repeated_for_its_answers() {
    let node = quorlock_testkit::memory_nodes(1).remove(0);
    node.fail(NodeErrorKind::Login, "it requires a password");
    let node = ReportedNode::new(node);
    let (log, _guard) = Log::start();
    let coordinator = Coordinator::builder().custom_nodes([node.clone()]).build().unwrap();
    let error = NodeError::Failed { kind: NodeErrorKind::Login, reason: "it requires a password".into() };
    node.report(ConnectionState::Lost(error));
    for _ in 0..3 {
        coordinator.lock("r").wait(Wait::Never).acquire().await.unwrap_err();
    }
    assert_eq!(log.of(Level::WARN).len(), 1, "{}", log.all());
}

/// Single-threaded, so that everything is logged on this thread.
#[tokio::test]
async fn a_dead_server_warns_once_and_its_return_is_logged() {
    let servers = Servers::setup().kind(Kind::builtin()).start(3).await.unwrap();
    let (log, _guard) = Log::start();
    let coordinator =
        Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off).build().unwrap();
    let hold = async || drop(coordinator.lock("r").acquire().await.unwrap());
    hold().await;
    assert_eq!(log.with("message=connected").len(), 3, "{}", log.all());
    servers[0].kill();
    until("the event that it is down", async || !log.with("unreachable, reconnecting").is_empty()).await;
    for _ in 0..20 {
        hold().await;
    }
    assert_eq!(log.of(Level::WARN).len(), 1, "{}", log.all());
    servers[0].restart_empty().await.unwrap();
    until("its return", async || log.with("restarted=true").len() == 1).await;
    assert_eq!(log.of(Level::WARN).len(), 1, "{}", log.all());
    drop(coordinator);
    until("the end", async || log.with("disconnected").len() == 3).await;
    assert_eq!(log.of(Level::WARN).len(), 1, "closing must not warn: {}", log.all());
}
