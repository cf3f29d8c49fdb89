//! Tests of the bytes between a node and its server: fragmented, delayed, and misplaced.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::{NO_SECRET, ONLY_SCRIPTS, UNNOTED, acquire, ask_now, claim, inspect, plain, settings};
use crate::address::Address;
use crate::node::max_ttls::{MaxTtlNotes, MaxTtls};
use crate::node::{Collect, Hint, HintListener, Node, NodeError, Responder, Response, Vote, ask};
use crate::redis::{RedisNode, Settings};
use crate::runtime::clock::{Clock, SystemClock};
use crate::transport::{Dial, Stream};
use quorlock_protocol::{Drift, Quorum, gate, max_ttl_note};
use quorlock_testkit::until;

pub(super) const FREE: &str = "*2\r\n$4\r\nfree\r\n:0\r\n";
/// For a lock without fencing, from a server that is sent scripts.
const GRANTED: &str = "*1\r\n$7\r\ngranted\r\n";
const HELD: &str = "*4\r\n$4\r\nheld\r\n$6\r\nsome\r\n\r\n:50\r\n:0\r\n";
pub(super) const CHANGED: &str = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$9\r\norders/42\r\n";

/// Sizes of the buffers between client and server: each read and each write is cut there.
pub(super) const CUTS: std::ops::Range<usize> = 1..40;

#[tokio::test]
async fn replies_and_changes_arrive_in_order_in_any_fragments() {
    for cut in CUTS {
        let reply = [CHANGED, FREE, CHANGED, HELD, HELD, CHANGED, CHANGED, FREE].concat();
        let (node, events) = node(cut, move |mut server| async move {
            server.hears(4).await?;
            server.says(&reply).await?;
            Ok(server)
        });
        (0..4).for_each(|_| ask_for(&node, &events));
        until("everything has arrived", async || events.entries().len() >= 9).await;
        let expected =
            ["Subscribed", "changed", "free", "changed", "held", "held", "changed", "changed", "free"];
        assert_eq!(events.entries(), expected, "cut into {cut}");
    }
}

#[tokio::test]
async fn a_change_within_a_reply_is_neither_hint_nor_vote() {
    let (node, events) = node(64, move |mut server| async move {
        server.hears(1).await?;
        server.says(&format!("*2\r\n+granted\r\n{CHANGED}")).await?;
        Ok(server)
    });
    let error = ask(&node, acquire(&claim("orders/42", 1))).await.unwrap_err();
    assert!(error.to_string().contains("unexpected answer"), "{error}");
    assert_eq!(events.entries(), ["Subscribed"]);
}

#[tokio::test]
async fn a_stray_reply_is_not_taken_for_the_next_one() {
    // A reply that arrives with the handshake, and one that follows the reply to a request.
    let (early, events) =
        introduced_to(1024, settings(), ONLY_SCRIPTS, GRANTED, |server| async move { Ok(server) });
    let error = ask(&early, plain(&claim("orders/42", 1))).await.unwrap_err();
    assert!(format!("{error:#}").contains("a reply without a request"), "{error:#}");
    until("the connection is ended", async || events.entries().contains(&"Unsubscribed".into())).await;

    let (late, events) = node(1024, |mut server| async move {
        server.hears(1).await?;
        server.says(&GRANTED.repeat(2)).await?;
        Ok(server)
    });
    assert_eq!(ask(&late, plain(&claim("orders/42", 1))).await.unwrap().vote, Vote::Granted);
    until("the connection is ended", async || events.entries().contains(&"Unsubscribed".into())).await;
    let error = ask_now(&late, plain(&claim("orders/43", 1)));
    assert!(!matches!(error, Some(Ok(_))), "{error:?}");
}

#[tokio::test]
async fn a_blocked_write_does_not_block_reads() {
    // Less than one request fits between the two.
    let (go_on, gone_on) = tokio::sync::oneshot::channel::<()>();
    let (node, events) = node(64, move |mut server| async move {
        server.hears(1).await?;
        server.says(&[CHANGED, HELD].concat()).await?;
        drop(gone_on.await);
        server.hears(2).await?;
        server.says(&[FREE, FREE].concat()).await?;
        Ok(server)
    });
    (0..3).for_each(|_| ask_for(&node, &events));
    until("the first is answered", async || events.entries().len() == 3).await;
    assert_eq!(events.entries(), ["Subscribed", "changed", "held"], "the others are in flight");
    drop(go_on);
    until("all are answered", async || events.entries().len() == 5).await;
}

#[tokio::test]
async fn ready_callers_share_one_write() {
    let (node, events) = node(4096, move |mut server| async move {
        server.heard.reserve(4096);
        server.reads().await?;
        let answers = FREE.repeat(begun(&server.heard));
        server.says(&answers).await?;
        Ok(server)
    });
    node.ready().await.unwrap();
    let node = Arc::new(node);
    let (first, expected) = (Arc::clone(&node), Arc::clone(&events));
    tokio::spawn(async move {
        ask_for(&first, &expected);
        // It is ready to run only now.
        tokio::spawn(async move { ask_for(&first, &expected) });
    });
    until("both are answered", async || events.entries().len() == 3).await;
    assert_eq!(events.entries(), ["Subscribed", "free", "free"]);
}

#[tokio::test]
async fn i37_a_max_ttl_that_is_left_later_is_read() {
    let (node, max_ttls) = comparing(&noted(OURS), move |mut server| async move {
        server.hears(1).await?;
        server.says(&[FREE, &note_changed()].concat()).await?;
        server.hears(1).await?;
        server.says(&noted(OURS * 2)).await?;
        // Now as Redis 6.0 does, which pushes our own change to us, before its reply.
        server.says(&note_changed()).await?;
        server.hears(1).await?;
        server.says(&[note_changed(), noted(OURS * 3)].concat()).await?;
        server.hears(1).await?;
        server.says(FREE).await?;
        Ok(server)
    });
    assert_eq!(ask(&node, inspect()).await.unwrap().vote, Vote::Free);
    until("it reads the note twice", async || max_ttls.differing() == Some(OURS * 3)).await;
    // If it had asked for the note yet again, the server would have taken that for this request.
    assert_eq!(ask(&node, inspect()).await.unwrap().vote, Vote::Free);
    assert_eq!(max_ttls.differing(), Some(OURS * 3));
}

#[tokio::test]
async fn i37_a_change_during_the_handshake_is_read() {
    let (node, max_ttls) = comparing(&[noted(OURS), note_changed()].concat(), move |mut server| async move {
        server.hears(1).await?;
        server.says(&noted(OURS * 2)).await?;
        Ok(server)
    });
    node.ready().await.unwrap();
    until("it reads the note again", async || max_ttls.differing() == Some(OURS * 2)).await;
}

#[tokio::test]
async fn answered_requests_make_room_for_others() {
    let (node, _) = node(1024, move |mut server| async move {
        loop {
            server.hears(1).await?;
            server.says(GRANTED).await?;
        }
    });
    for number in 0..3000 {
        let answer = ask(&node, plain(&claim("orders/42", number))).await;
        assert_eq!(answer.unwrap().vote, Vote::Granted, "number {number}");
    }
}

#[tokio::test]
async fn a_connection_lost_within_a_reply_leaves_unknown_outcomes() {
    for expected in 0..FREE.len() {
        let (node, events) = node(1024, move |mut server| async move {
            server.hears(2).await?;
            server.says(&[HELD, &FREE[..expected]].concat()).await?;
            Err(io::ErrorKind::BrokenPipe.into())
        });
        (0..2).for_each(|_| ask_for(&node, &events));
        until("both are answered", async || events.entries().len() >= 4).await;
        let lines = events.entries();
        assert!(lines.contains(&"held".into()) && lines.contains(&"unknown".into()), "{expected}: {lines:?}");
    }
}

/// Asks for what the log is to record.
fn ask_for(node: &RedisNode, events: &Arc<EventLog>) {
    node.ask(inspect().into(), Responder::new(Arc::clone(events) as Arc<dyn Collect>, 0));
}

/// The `max_ttl` of the client in the tests of the note.
const OURS: Duration = Duration::from_secs(30);

/// Returns the push that the note of the largest `max_ttl` has changed.
fn note_changed() -> String {
    let key = max_ttl_note(&gate(""));
    format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{key}\r\n", key.len())
}

/// Returns the reply to the request for the note.
fn noted(max_ttl: Duration) -> String {
    format!(":{}\r\n", max_ttl.as_millis())
}

/// Returns a node whose server `says` this in the handshake, for the note, and then `behaves` as given; and what
/// the client knows of other clients.
fn comparing<B, F>(says: &str, behaves: B) -> (RedisNode, Arc<MaxTtls>)
where
    B: FnOnce(Server) -> F + Send + 'static,
    F: Future<Output = io::Result<Server>> + Send,
{
    let max_ttls = Arc::new(MaxTtls::new(OURS, Drift::default(), Quorum::majority(1)));
    let settings = Settings { max_ttls: Some(MaxTtlNotes::of(&max_ttls, 0)), ..settings() };
    let (node, _) = introduced_to(1024, settings, [says, ONLY_SCRIPTS].concat(), "", behaves);
    (node, max_ttls)
}

/// Returns a node whose server completes the handshake and then `behaves` as given, and a record of what
/// arrives.
fn node<B, F>(cut: usize, behaves: B) -> (RedisNode, Arc<EventLog>)
where
    B: FnOnce(Server) -> F + Send + 'static,
    F: Future<Output = io::Result<Server>> + Send,
{
    introduced_to(cut, settings(), ONLY_SCRIPTS, "", behaves)
}

/// Like [`node`], with a server that supports acquiring without a script.
pub(super) fn plain_node<B, F>(cut: usize, behaves: B) -> (RedisNode, Arc<EventLog>)
where
    B: FnOnce(Server) -> F + Send + 'static,
    F: Future<Output = io::Result<Server>> + Send,
{
    // It assigns a connection ID, and its clock is a few seconds ahead of ours.
    let clock = SystemClock.wall().as_secs() + 5;
    let means = format!(":7\r\n:0\r\n*2\r\n$10\r\n{clock}\r\n$1\r\n0\r\n:1\r\n-ERR no\r\n-ERR no\r\n");
    introduced_to(cut, settings(), means, "", behaves)
}

/// Like [`node`], for a client with these settings, with the replies for the supported commands, and `more` in the same
/// write.
fn introduced_to<B, F>(
    cut: usize,
    settings: Settings,
    means: impl Into<String>,
    more: &'static str,
    behaves: B,
) -> (RedisNode, Arc<EventLog>)
where
    B: FnOnce(Server) -> F + Send + 'static,
    F: Future<Output = io::Result<Server>> + Send,
{
    let (near, far) = tokio::io::duplex(cut);
    let means = means.into();
    tokio::spawn(async move {
        let mut server = Server { stream: far, heard: Vec::new() };
        server.introduces_itself(&means, more).await?;
        let mut server = behaves(server).await?;
        // It stays until its client closes the connection.
        server.hears(usize::MAX).await
    });
    let dial = Arc::new(Once { stream: Mutex::new(Some(near)) });
    let node = RedisNode::with(Address::parse("scripted").unwrap(), Settings { dial, ..settings });
    let events = Arc::new(EventLog::default());
    node.listen(Arc::clone(&events) as Arc<dyn HintListener>);
    (node, events)
}

/// A transport with one connection, and then none.
#[derive(Debug)]
struct Once {
    stream: Mutex<Option<DuplexStream>>,
}

impl Dial for Once {
    fn dial(&self, _: &Address) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let stream = self.stream.lock().unwrap().take();
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        Box::pin(async move { Ok(Box::new(stream.ok_or_else(refused)?) as Box<dyn Stream>) })
    }
}

pub(super) struct Server {
    stream: DuplexStream,
    heard: Vec<u8>,
}

impl Server {
    async fn introduces_itself(&mut self, means: &str, more: &str) -> io::Result<()> {
        const INFO: &str = "run_id:abc\r\nuptime_in_seconds:9000\r\nrole:master\r\n";

        // The introduction comes with the login, and does not wait for its answer.
        self.reads_on("$4\r\nINFO\r\n").await?;
        let greeting = "%1\r\n$2\r\nid\r\n:7\r\n+OK\r\n+OK\r\n";
        let info = format!("${}\r\n{INFO}\r\n{more}", INFO.len());
        self.says(&[greeting, UNNOTED, "+OK\r\n+OK\r\n", means, NO_SECRET, &info].concat()).await
    }

    async fn reads_on(&mut self, word: &str) -> io::Result<()> {
        while !self.heard.windows(word.len()).any(|heard| heard == word.as_bytes()) {
            self.reads().await?;
        }
        self.heard.clear();
        Ok(())
    }

    /// Reads until this many requests have begun.
    pub(super) async fn hears(&mut self, requests: usize) -> io::Result<()> {
        while begun(&self.heard) < requests {
            self.reads().await?;
        }
        self.heard.clear();
        Ok(())
    }

    async fn reads(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.heard).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    pub(super) async fn says(&mut self, words: &str) -> io::Result<()> {
        self.stream.write_all(words.as_bytes()).await
    }
}

/// Returns how many requests have begun.
fn begun(heard: &[u8]) -> usize {
    let begins = |word: &&[u8]| [b"\r\nEVAL", b"\r\nSET\r"].contains(&(*word).try_into().unwrap());
    heard.windows(6).filter(begins).count()
}

/// Votes and hints, in the order in which they arrived.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    entries: Mutex<Vec<String>>,
}

impl EventLog {
    pub(super) fn entries(&self) -> Vec<String> {
        self.entries.lock().unwrap().clone()
    }

    fn note(&self, entry: &str) {
        self.entries.lock().unwrap().push(entry.into());
    }
}

impl Collect for EventLog {
    fn answer(&self, _: usize, answer: Result<Response, NodeError>) {
        self.note(match answer.map(|answer| answer.vote) {
            Ok(Vote::Free) => "free",
            Ok(Vote::Held(_)) => "held",
            Ok(_) => "something else",
            Err(error) if error.may_have_acted() => "unknown",
            Err(_) => "not asked",
        });
    }

    fn wanted(&self) -> bool {
        true
    }
}

impl HintListener for EventLog {
    fn on_hint(&self, hint: Hint<'_>) {
        match hint {
            Hint::Invalidated(b"orders/42") => self.note("changed"),
            Hint::Subscribed | Hint::Invalidated(_) | Hint::Flushed | Hint::Unsubscribed => {
                self.note(&format!("{hint:?}"));
            }
        }
    }
}
