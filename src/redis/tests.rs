//! Tests of the node as a whole, and their helpers.

mod granted;
#[cfg(unix)]
mod plain;
#[cfg(unix)]
mod real;
mod recorded;
mod scripted;
#[cfg(unix)]
mod scripts;
#[cfg(unix)]
mod server;
mod stream;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::connect_timeout::ConnectTimeout;
use super::{RedisNode, Settings};
use crate::node::{Collect, Hint, HintListener, Node, NodeError, Request, Responder, Response, Vote, ask};
use crate::runtime::clock::{Clock, Sleep, SystemClock};
use quorlock_protocol::{Claim, FenceHint, FencingToken, Moment, Token, WaiterId};

const LONG: Duration = Duration::from_secs(60);

/// The replies to `CLIENT ID`, `CLIENT KILL`, `TIME`, a script, `EXEC`, `DELIFEQ` and `DELEX` of a server
/// that ends no connection for us and lacks the last two commands: it is sent scripts.
const ONLY_SCRIPTS: &str = "-NOPERM no\r\n-NOPERM no\r\n*2\r\n$1\r\n1\r\n$1\r\n0\r\n:1\r\n\
                            -ERR no\r\n-ERR no\r\n";
/// The reply before that, to the request for the note of its start: the user may neither read nor write one.
const UNNOTED: &str = "-NOPERM no\r\n";
/// The replies after them, to the requests for the secret of the inboxes: the user may neither leave nor read one.
const NO_SECRET: &str = "-NOPERM no\r\n-NOPERM no\r\n";

pub(super) fn settings() -> Settings {
    let connect_timeout = ConnectTimeout::Whole(Duration::from_secs(1));
    Settings { connect_timeout, ..Settings::default() }
}

/// A claim, where it does not matter which.
pub(super) fn any_claim() -> Arc<Claim> {
    claim("orders/42", 7)
}

fn claim(key: &str, random: u128) -> Arc<Claim> {
    Arc::new(Claim::new(key.into(), Token::new(random, "tests:1")))
}

fn acquire(claim: &Arc<Claim>) -> Request {
    Request::Acquire { claim: Arc::clone(claim), ttl: LONG, fence_hint: Some(fence_hint()) }
}

/// An acquisition of a contended lock, which is sent as a script.
fn contend(claim: &Arc<Claim>) -> Request {
    let fence_hint = FenceHint::at(SystemClock.wall(), Some(FencingToken::ZERO), LONG);
    Request::Acquire { claim: Arc::clone(claim), ttl: LONG, fence_hint: Some(fence_hint) }
}

fn enqueue(waiter: WaiterId) -> Request {
    enqueue_at("orders/42", waiter, LONG)
}

fn enqueue_at(key: &str, waiter: WaiterId, turn: Duration) -> Request {
    Request::enqueue(key.into(), waiter, Duration::ZERO, LONG, turn)
}

fn transfer(from: &Arc<Claim>, to: &Arc<Claim>) -> Request {
    Request::Transfer {
        from: Arc::clone(from),
        to: Arc::clone(to),
        ttl: LONG,
        fence_hint: Some(fence_hint()),
    }
}

fn renew(claim: &Arc<Claim>) -> Request {
    Request::Renew { claim: Arc::clone(claim), ttl: LONG, fencing_token: FencingToken::new(1) }
}

fn fence_hint() -> FenceHint {
    FenceHint::at(SystemClock.wall(), None, LONG)
}

pub(super) fn plain(claim: &Arc<Claim>) -> Request {
    Request::Acquire { claim: Arc::clone(claim), ttl: LONG, fence_hint: None }
}

fn write_back(claim: &Arc<Claim>) -> Request {
    Request::WriteBack {
        claim: Arc::clone(claim),
        fencing_token: FenceHint::at(SystemClock.wall() + LONG, None, LONG).hint,
    }
}

pub(super) fn release(claim: &Arc<Claim>) -> Request {
    Request::Release { claim: Arc::clone(claim) }
}

fn cancel(claim: &Arc<Claim>) -> Request {
    Request::Cancel { claim: Arc::clone(claim), linger: LONG }
}

pub(super) fn inspect() -> Request {
    Request::inspect("orders/42")
}

/// A request that a stalled node refuses.
fn probe() -> Request {
    acquire(&claim("a-probe", 9))
}

async fn vote(node: &RedisNode, request: Request) -> Vote {
    ask(node, request).await.unwrap().vote
}

fn spawn_ask(
    node: &Arc<RedisNode>,
    request: Request,
) -> tokio::task::JoinHandle<Result<Response, NodeError>> {
    let log = Arc::clone(node);
    tokio::spawn(async move { ask(&*log, request).await })
}

/// Returns whether votes are refused because one is unanswered.
fn hangs(node: &RedisNode) -> bool {
    refuses(node, &probe())
}

/// Returns whether the request is not admitted.
fn refuses(node: &RedisNode, request: &Request) -> bool {
    node.state.admit(request).is_err()
}

/// Returns the response, if it is there immediately.
fn ask_now(node: &RedisNode, request: Request) -> Option<Result<Vote, NodeError>> {
    let log = Arc::new(Log::default());
    node.ask(request.into(), Responder::new(Arc::clone(&log) as Arc<dyn Collect>, 0));
    let mut answers = log.answers.lock().unwrap();
    answers.pop().map(|(_, answer)| answer)
}

/// Responses in the order in which they arrived.
#[derive(Debug, Default)]
pub(super) struct Log {
    answers: Mutex<Vec<(usize, Result<Vote, NodeError>)>>,
    unwanted: AtomicBool,
}

impl Log {
    fn granted(&self) -> Vec<usize> {
        self.answers
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, answer)| answer.is_ok())
            .map(|(index, _)| *index)
            .collect()
    }
}

impl Collect for Log {
    fn answer(&self, index: usize, answer: Result<Response, NodeError>) {
        self.answers.lock().unwrap().push((index, answer.map(|answer| answer.vote)));
    }

    fn wanted(&self) -> bool {
        !self.unwanted.load(Ordering::Relaxed)
    }
}

/// Hints in the order in which they arrived, as words.
#[derive(Debug, Default)]
pub(super) struct HintLog {
    heard: Mutex<Vec<String>>,
}

impl HintLog {
    /// Returns the hints since the last call.
    pub(super) fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

impl HintListener for HintLog {
    fn on_hint(&self, hint: Hint<'_>) {
        self.heard.lock().unwrap().push(match hint {
            Hint::Invalidated(key) => String::from_utf8_lossy(key).into_owned(),
            Hint::Subscribed | Hint::Flushed | Hint::Unsubscribed => format!("{hint:?}"),
        });
    }
}

/// The runtime's own time, which the test advances.
#[derive(Debug)]
pub(super) struct Virtual;

impl Clock for Virtual {
    fn now(&self) -> Moment {
        thread_local!(static ORIGIN: tokio::time::Instant = now());
        Moment::since_origin(now().duration_since(ORIGIN.with(|origin| *origin)))
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that the test gives to the node")]
        Box::pin(tokio::time::sleep(moment.since(self.now())))
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock that the test gives to the node")]
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
