//! Tests with misbehaving servers, in memory and in virtual time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::{
    Log, NO_SECRET, ONLY_SCRIPTS, UNNOTED, Virtual, acquire, ask_now, claim, hangs, inspect, release,
    settings, spawn_ask,
};
use crate::address::Address;
use crate::node::catch_panic::Contained;
use crate::node::{
    Collect, ConnectionState, Hint, HintListener, Node, NodeError, NodeErrorKind, Request, Responder,
    Response, StatusListener, ask,
};
use crate::redis::home::{Home, Work};
use crate::redis::{PendingRequest, RedisNode, Settings};
use crate::runtime::clock::Clock;
use crate::runtime::entropy::Entropy;
use crate::transport::{Dial, Stream, go_past_the_runtime};
use quorlock_testkit::until;

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up_within_the_timeout() {
    let (node, _) = node(Behaviour::Mute);
    let began = Virtual.now();
    let error = ask(&node, inspect()).await.unwrap_err();
    assert!(
        matches!(&error, NodeError::Unresponsive { reason } if reason.to_string().contains("within 1s")),
        "{error:?}"
    );
    assert_eq!(Virtual.now().since(began).as_secs(), 1);
    assert!(ask_now(&node, inspect()).is_some(), "then it refuses immediately");
}

#[tokio::test(start_paused = true)]
async fn a_server_of_another_protocol_is_recognised() {
    let (node, _) = node(Behaviour::Foreign);
    let error = ask(&node, inspect()).await.unwrap_err();
    assert!(matches!(&error, NodeError::Failed { kind: NodeErrorKind::Other, .. }), "{error:?}");
    assert!(error.to_string().contains("does not speak"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_hung_node_reconnects_and_sends_nothing_again() {
    let (node, votes) = node(Behaviour::Hangs);
    let began = Virtual.now();
    let node = Arc::new(node);
    let vote = spawn_ask(&node, acquire(&claim("orders/42", 1)));
    until("it is seen to hang", async || hangs(&node)).await;
    assert_eq!(Virtual.now().since(began).as_secs(), 1);
    let clean_up = spawn_ask(&node, release(&claim("orders/42", 1)));
    for unknown in [vote, clean_up] {
        let error = unknown.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, NodeError::Disconnected { reason } if reason.to_string().contains("30s")),
            "{error:?}"
        );
    }
    assert_eq!(Virtual.now().since(began).as_secs(), 30);
    until("it reconnects", async || votes.lock().unwrap().len() == 2 && !hangs(&node)).await;
    assert_eq!(*votes.lock().unwrap(), [2, 0], "rule I-14: requests sent on each connection");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_node_waits_a_second_for_its_clean_up() {
    let (node, votes) = node(Behaviour::Hangs);
    drop(node.ready().await);
    let began = Virtual.now();
    let log = Arc::new(Log::default());
    node.ask(release(&claim("orders/42", 1)).into(), Responder::new(Arc::clone(&log) as Arc<dyn Collect>, 0));
    drop(node);
    until("it gives up", async || !log.answers.lock().unwrap().is_empty()).await;
    assert_eq!(Virtual.now().since(began).as_secs(), 1);
    assert_eq!(*votes.lock().unwrap(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_node_reconnects_after_a_failed_handshake() {
    let (node, votes) = node(Behaviour::LeavesAtOnce);
    for _ in 0..3 {
        let error = ask(&node, inspect()).await.unwrap_err();
        assert!(matches!(&error, NodeError::Unreachable { .. }), "{error:?}");
        let known = votes.lock().unwrap().len();
        until("it reconnects", async || votes.lock().unwrap().len() > known).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_down_is_found_within_a_second() {
    let away = Arc::new(AtomicBool::new(true));
    let dial = Arc::new(Away {
        away: Arc::clone(&away),
        behind: Scripted { behaviour: Behaviour::Hangs, votes: Votes::default() },
    });
    let node = node_over("scripted", dial);
    assert!(node.ready().await.is_err(), "no server is there");
    Virtual.sleep_until(Virtual.now() + Duration::from_secs(600)).await;
    away.store(false, Ordering::Relaxed);
    let back = Virtual.now();
    until("it reconnects", async || node.ready().await.is_ok()).await;
    // Plus some time for the handshake.
    assert!(Virtual.now().since(back) <= Duration::from_millis(1100), "{:?}", Virtual.now().since(back));
}

/// If the login fails, they would be carried out as another user, or in another database.
#[tokio::test(start_paused = true)]
async fn no_question_is_sent_with_a_login_that_may_fail() {
    for (address, together) in [
        ("redis://scripted", true),
        ("redis://scripted/0", true),
        ("redis://:password@scripted", false),
        ("redis://scripted/1", false),
    ] {
        let records = Records::default();
        let node = node_over(address, Arc::new(records.clone()));
        assert!(node.ready().await.is_err(), "the server is silent");
        let heard = String::from_utf8_lossy(&records.heard.lock().unwrap()).into_owned();
        assert!(heard.contains("HELLO"), "{heard}");
        assert_eq!(heard.contains("$4\r\nINFO\r\n"), together, "{address}: {heard}");
    }
}

#[test]
fn a_node_without_a_runtime_fails_with_that_reason() {
    let node = RedisNode::with(Address::parse("redis://127.0.0.1:1").unwrap(), settings());
    let error = ask_now(&node, inspect()).unwrap().unwrap_err();
    assert!(error.to_string().contains("no Tokio runtime"), "{error}");
}

#[test]
fn a_node_reconnects_after_its_runtime_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let node = RedisNode::with(Address::parse("redis://127.0.0.1:1").unwrap(), settings());
    // The runtime ends before it has polled the node's task.
    runtime().block_on(async { drop(node.ready()) });
    for _ in 0..3 {
        runtime().block_on(async {
            let error = ask(&node, inspect()).await.unwrap_err();
            assert!(format!("{error:#}").contains("refused"), "it was dialled: {error:#}");
        });
    }
}

/// Work that waits for ever, and counts how often it was begun.
struct Waits(Arc<AtomicUsize>);

impl Work for Waits {
    fn begin(&self, _: Option<&str>) -> Option<BoxFuture<'static, ()>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(Box::pin(std::future::pending()))
    }

    fn ended(&self) {}
}

#[test]
fn i30_a_thread_that_stands_in_for_a_blocked_runtime_keeps_no_other_from_taking_a_connection_over() {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let home = Home::new("node".into(), Arc::new(Virtual), Box::new(Waits(Arc::clone(&begun))));
    let (blocked, still, driven) = (runtime(), runtime(), runtime());
    still.block_on(async {
        home.begin().unwrap();
        tokio::task::yield_now().await;
    });
    // The lease is one of a runtime that is blocked, the connection is another one's.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            go_past_the_runtime();
            let _entered = blocked.enter();
            home.poll_here();
            home.wake().unwrap();
        });
    });
    driven.block_on(async {
        home.wake().unwrap();
        until("the work is taken over", async || begun.load(Ordering::Relaxed) == 2).await;
    });
}

/// Panics a few times, and forwards to the other transport after that.
#[derive(Debug)]
struct Panics {
    left: AtomicUsize,
    behind: Scripted,
}

impl Panics {
    fn count_down(&self) {
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left.is_err(), "a panic that the test wants");
    }
}

impl Dial for Panics {
    fn dial(&self, address: &Address) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
        self.count_down();
        self.behind.dial(address)
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_reconnects_after_a_panic_of_its_task() {
    let scripted = Scripted { behaviour: Behaviour::Hangs, votes: Votes::default() };
    let dial = Arc::new(Panics { left: AtomicUsize::new(3), behind: scripted });
    let settings = Settings { clock: Arc::new(Virtual), entropy: Arc::new(LongestWaits), dial, ..settings() };
    let node = RedisNode::with(Address::parse("scripted").unwrap(), settings);
    let began = Virtual.now();
    let error = node.ready().await.unwrap_err();
    assert!(error.to_string().contains("a panic that the test wants"), "{error}");
    until("it reconnects", async || node.ready().await.is_ok()).await;
    let waited = Virtual.now().since(began);
    let pauses = Duration::from_millis(50 + 100 + 200);
    assert!(waited >= pauses && waited < Duration::from_secs(1), "{waited:?}");
}

/// Always the longest random wait.
#[derive(Debug)]
struct LongestWaits;

impl Entropy for LongestWaits {
    fn next_u128(&self) -> u128 {
        u128::MAX
    }
}

/// A listener, observer and receiver that panics each time.
#[derive(Debug)]
struct Panicking;

impl StatusListener for Panicking {
    fn on_status(&self, _: ConnectionState) {
        panic!("a panic that the test wants");
    }
}

impl HintListener for Panicking {
    fn on_hint(&self, _: Hint<'_>) {
        panic!("a panic that the test wants");
    }
}

impl Collect for Panicking {
    fn answer(&self, _: usize, _: Result<Response, NodeError>) {
        panic!("a panic that the test wants");
    }

    fn wanted(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_callback_ends_no_connection() {
    type Change = fn(&RedisNode);
    let all: [(&str, Change); 3] = [
        ("a status listener", |node| node.observe(Arc::new(Contained(Arc::new(Panicking))))),
        ("a listener", |node| node.listen(Arc::new(Contained(Panicking)))),
        ("a caller", |node| node.ask(inspect().into(), Responder::new(Arc::new(Panicking), 0))),
    ];
    for (who, change) in all {
        let ((node, votes), hints) = (node(Behaviour::Answers), Arc::new(super::HintLog::default()));
        change(&node);
        node.listen(Arc::clone(&hints) as Arc<dyn HintListener>);
        for _ in 0..2 {
            assert!(ask(&node, inspect()).await.is_ok(), "{who}");
        }
        assert_eq!(votes.lock().unwrap().len(), 1, "connections: {who} has ended one");
        assert_eq!(hints.heard(), ["Subscribed"], "others are still notified: {who}");
    }
}

/// A receiver that panics when the node's task asks whether the request is still wanted.
#[derive(Debug)]
struct PanicsIfWanted;

impl Collect for PanicsIfWanted {
    fn answer(&self, _: usize, _: Result<crate::node::Response, NodeError>) {}

    fn wanted(&self) -> bool {
        panic!("a panic that the test wants");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_gives_back_the_place_of_its_request() {
    let (node, votes) = node(Behaviour::Hangs);
    node.ready().await.unwrap();
    // All but one of the places for votes.
    let vote = acquire(&claim("orders/42", 1));
    let others: Vec<_> = (1..512).map(|_| node.state.admit(&vote).unwrap()).collect();
    node.ask(vote.into(), Responder::new(Arc::new(PanicsIfWanted), 0));
    until("it reconnects", async || votes.lock().unwrap().len() == 2 && node.ready().await.is_ok()).await;
    assert!(!super::refuses(&node, &super::probe()), "the place is free again");
    drop(others);
}

/// Its connection ends, and there is another one, between the admission of a release and its queueing: the
/// request that it undoes may arrive after it.
#[tokio::test(start_paused = true)]
async fn i5_a_release_admitted_on_an_earlier_connection_is_not_sent() {
    let claim = claim("orders/42", 1);
    let cancel = Request::Cancel { claim: claim.clone(), linger: Duration::ZERO };
    for taking_back in [release(&claim), cancel] {
        let (node, votes) = node(Behaviour::Hangs);
        node.ready().await.unwrap();
        let permit = node.state.admit(&taking_back).unwrap();
        let log = Arc::new(Log::default());
        let responder = |index| Responder::new(Arc::clone(&log) as Arc<dyn Collect>, index);
        node.ask(acquire(&claim).into(), responder(0));
        let is_there = async || votes.lock().unwrap().len() == 2 && node.ready().await.is_ok();
        until("the next connection", is_there).await;
        let (request, responder) = (taking_back.into(), responder(1));
        node.queue.send(PendingRequest { request, permit, responder, step: None }).unwrap();
        until("an answer", async || log.answers.lock().unwrap().len() == 2).await;
        let (_, answer) = log.answers.lock().unwrap().pop().unwrap();
        assert!(answer.unwrap_err().may_have_acted(), "the clean-up leaves a tombstone");
        assert_eq!(*votes.lock().unwrap(), [1, 0], "it was sent on neither");
    }
}

#[tokio::test(start_paused = true)]
async fn i23_a_proxy_with_several_connections_may_not_vote() {
    let (sound, _) = node(Behaviour::Numbered { later: 7 });
    sound.ready().await.unwrap();
    let (shared, _) = node(Behaviour::Numbered { later: 8 });
    let error = shared.ready().await.unwrap_err();
    assert!(matches!(error, NodeError::Unfit { .. }), "{error:?}");
    assert!(error.to_string().contains("over several (first with ID 7, then 8)"), "{error}");
}

/// Until the server has ended an earlier connection, or says that it cannot, a request on it may follow those of a later
/// one.
#[tokio::test(start_paused = true)]
async fn i5_a_server_that_fails_to_end_a_connection_is_asked_again() {
    let (node, votes) = node(Behaviour::EndsNone);
    let node = Arc::new(node);
    drop(spawn_ask(&node, acquire(&claim("orders/42", 1))));
    until("two more connections", async || votes.lock().unwrap().len() > 3).await;
    assert_eq!(votes.lock().unwrap()[..3], [1, 1, 1], "an acquisition, and then an ID on each connection");
    assert!(node.ready().await.is_err(), "it may not vote");
}

/// How a server misbehaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behaviour {
    /// Accepts connections and sends nothing.
    Mute,
    /// Uses another protocol.
    Foreign,
    /// Completes the handshake, and then reads without ever replying.
    Hangs,
    /// Completes the handshake, and closes the connection immediately.
    LeavesAtOnce,
    /// Completes the handshake, and replies that each lock is free.
    Answers,
    /// Reports connection ID 7 in its greeting and `later` afterwards, like a proxy with several connections.
    Numbered { later: u8 },
    /// Says that it ends connections, never replies to an acquisition, and ends no connection.
    EndsNone,
}

/// The number of requests on each connection, in the order of the connections.
type Votes = Arc<Mutex<Vec<usize>>>;

#[derive(Debug)]
struct Scripted {
    behaviour: Behaviour,
    votes: Votes,
}

fn node(behaviour: Behaviour) -> (RedisNode, Votes) {
    let votes = Votes::default();
    (node_over("scripted", Arc::new(Scripted { behaviour, votes: Arc::clone(&votes) })), votes)
}

fn node_over(address: &str, dial: Arc<dyn Dial>) -> RedisNode {
    let settings = Settings { clock: Arc::new(Virtual), dial, ..settings() };
    RedisNode::with(Address::parse(address).unwrap(), settings)
}

impl Dial for Scripted {
    fn dial(&self, _: &Address) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        tokio::spawn(serve(far, self.behaviour, Arc::clone(&self.votes)));
        Box::pin(async { Ok(Box::new(near) as Box<dyn Stream>) })
    }
}

/// A server that reads, and says nothing.
#[derive(Clone, Debug, Default)]
struct Records {
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Dial for Records {
    fn dial(&self, _: &Address) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let heard = Arc::clone(&self.heard);
        tokio::spawn(async move {
            let mut read = [0; 16 * 1024];
            while let Ok(length @ 1..) = far.read(&mut read).await {
                heard.lock().unwrap().extend(&read[..length]);
            }
        });
        Box::pin(async { Ok(Box::new(near) as Box<dyn Stream>) })
    }
}

/// A server that cannot be reached for now.
#[derive(Debug)]
struct Away {
    away: Arc<AtomicBool>,
    behind: Scripted,
}

impl Dial for Away {
    fn dial(&self, address: &Address) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
        if self.away.load(Ordering::Relaxed) {
            return Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) });
        }
        self.behind.dial(address)
    }
}

async fn serve(mut stream: DuplexStream, behaviour: Behaviour, votes: Votes) {
    const INFO: &str = "run_id:abc\r\nuptime_in_seconds:9000\r\nrole:master\r\n";

    let connection = {
        let mut votes = votes.lock().unwrap();
        votes.push(0);
        votes.len() - 1
    };
    let mut heard = [0; 16 * 1024];
    while let Ok(length @ 1..) = stream.read(&mut heard).await {
        let heard = String::from_utf8_lossy(&heard[..length]);
        let has_id = matches!(behaviour, Behaviour::Numbered { .. } | Behaviour::EndsNone);
        let greeting = match (heard.contains("HELLO"), has_id) {
            (false, _) => "",
            (true, true) => "%1\r\n$2\r\nid\r\n:7\r\n+OK\r\n+OK\r\n",
            (true, false) => "%0\r\n+OK\r\n+OK\r\n",
        };
        let answer = match behaviour {
            Behaviour::Mute => String::new(),
            Behaviour::Foreign => "SSH-2.0-OpenSSH_9.6\r\n".into(),
            _ if heard.contains("$4\r\nINFO\r\n") => {
                let mut introduced = String::from(ONLY_SCRIPTS);
                if let Behaviour::Numbered { later } = behaviour {
                    // The first is the reply to `CLIENT ID`.
                    introduced = introduced.replacen("-NOPERM no", &format!(":{later}"), 1);
                }
                if behaviour == Behaviour::EndsNone {
                    introduced = introduced.replacen("-NOPERM no", ":7", 1).replacen("-NOPERM no", ":0", 1);
                }
                let tracking = if heard.contains("TRACKING") { "+OK\r\n" } else { "" };
                let info = format!("${}\r\n{INFO}\r\n", INFO.len());
                [greeting, UNNOTED, "+OK\r\n", tracking, &introduced, NO_SECRET, &info].concat()
            }
            Behaviour::Answers => "*1\r\n$4\r\nfree\r\n".repeat(heard.matches("EVAL").count()),
            Behaviour::EndsNone if heard.contains("KILL") => {
                votes.lock().unwrap()[connection] += heard.matches("KILL").count();
                "-BUSY Redis is busy running a script\r\n".into()
            }
            Behaviour::EndsNone if heard.contains("NX") => {
                votes.lock().unwrap()[connection] += 1;
                String::new()
            }
            Behaviour::Hangs | Behaviour::LeavesAtOnce | Behaviour::Numbered { .. } | Behaviour::EndsNone => {
                votes.lock().unwrap()[connection] += heard.matches("EVAL").count();
                String::new()
            }
        };
        drop(stream.write_all(answer.as_bytes()).await);
        if behaviour == Behaviour::LeavesAtOnce && heard.contains("SETNAME") {
            return;
        }
    }
}
