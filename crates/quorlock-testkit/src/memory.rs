//! An in-memory lock server, and its faults.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::{FencingToken, NextWaiter, Token};
use quorlock::runtime::BoxFuture;
use quorlock::{
    node::{
        Capabilities, Expiry, HintListener, KeyPages, ListedKeys, Node, NodeError, NodeErrorKind, Responder,
        SharedRequest,
    },
    runtime::{Clock, Mutex, SystemClock},
};
use tokio::sync::Notify;

use crate::value::Value;

mod line;
mod locks;
mod logs;
mod offers;
mod server;
mod shared;
mod watch;

use line::{Connection, Link};
use server::{Kept, Server};
use shared::{KeepTime, Shared, State, keep_time};

/// An in-memory lock server: a [`Node`] that answers immediately unless faults are injected.
///
/// It is a handle: clones are the same node. Faults are switched through `&self` while other tasks use the
/// node. Requests are executed in the order in which they were asked, by the rules of
/// [`record`](quorlock::node::record), which the nodes for several stores share; one contract suite checks
/// them and the scripts on real servers.
///
/// The faults behave as on real servers. A request that was *sent*, even to a server that hangs, is executed
/// once the server reads it, even if the caller no longer waits.
///
/// It gives hints to all listeners, whichever client made the change. So several coordinators may share it as
/// if each had its own connection.
///
/// Delays and listeners need a tokio runtime: a task keeps the time while an answer or the expiry of a
/// watched key is due. Everything else happens within the calls.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use std::sync::Arc;
/// # use quorlock::{node::{Request, Vote, ask}, protocol::{Claim, Token}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), quorlock::node::NodeError> {
/// let node = quorlock_testkit::MemoryNode::new("eu-1");
/// let claim = Arc::new(Claim::new("orders/42".into(), Token::new(7, "db-7:4121")));
///
/// let request = Request::Acquire { claim, ttl: Duration::from_secs(30), fence_hint: None };
/// let answer = ask(&node, request).await?;
/// assert_eq!(answer.vote, Vote::Granted);
///
/// node.disconnect();
/// let unreachable = ask(&node, Request::inspect("orders/42")).await;
/// assert!(unreachable.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryNode {
    shared: Arc<Shared>,
}

/// Creates `count` nodes called `node-1`, `node-2` and so on, on the system's clock.
#[must_use]
pub fn memory_nodes(count: usize) -> Vec<MemoryNode> {
    memory_nodes_on(&(Arc::new(SystemClock::default()) as Arc<dyn Clock>), count)
}

/// Like [`memory_nodes`], on `clock`: for paused time and for simulations.
#[must_use]
pub fn memory_nodes_on(clock: &Arc<dyn Clock>, count: usize) -> Vec<MemoryNode> {
    (1..=count).map(|number| MemoryNode::on(format!("node-{number}"), Arc::clone(clock))).collect()
}

/// Construction.
impl MemoryNode {
    /// Creates an empty node on the system's clock. It reports an uptime of a day, so that no quarantine
    /// applies.
    #[must_use]
    pub fn new(name: impl Into<String>) -> MemoryNode {
        MemoryNode::on(name, Arc::new(SystemClock::default()))
    }

    /// Like [`MemoryNode::new`], on `clock`.
    #[must_use]
    pub fn on(name: impl Into<String>, clock: Arc<dyn Clock>) -> MemoryNode {
        MemoryNode::with_own_clock(name, Arc::clone(&clock), clock)
    }

    /// Like [`MemoryNode::on`], for a server whose clock differs from that of its clients: keys expire and
    /// fencing tokens are drawn by `own`, such as a [`SkewedClock`](crate::SkewedClock); delays and the
    /// server's age use `clock`.
    #[must_use]
    pub fn with_own_clock(name: impl Into<String>, clock: Arc<dyn Clock>, own: Arc<dyn Clock>) -> MemoryNode {
        let name = name.into();
        let server = Server::new(&name, Arc::clone(&own), clock.now());
        let state = State {
            server,
            line: Connection::default(),
            arrived: VecDeque::new(),
            delivering: false,
            timekeeper: false,
        };
        MemoryNode {
            shared: Arc::new(Shared {
                name,
                clock,
                own,
                state: Mutex::new(state),
                listeners: Mutex::default(),
                due: Notify::new(),
                contact: Notify::new(),
            }),
        }
    }
}

/// Capabilities.
impl MemoryNode {
    /// Sets the capabilities of the node; it refuses all other requests by name. By default it supports
    /// [everything](Capabilities::all), and loses its keys when it restarts. Call this before the
    /// capabilities are first read, which a coordinator does when it is built.
    #[must_use]
    pub fn with_capabilities(self, capabilities: Capabilities) -> MemoryNode {
        self.change(|state| state.server.with_capabilities(capabilities));
        self
    }
}

/// Faults of the network.
impl MemoryNode {
    /// Sets how long later requests take to arrive, and their responses to come back.
    pub fn delay(&self, request: Duration, reply: Duration) {
        self.change(|state| (state.line.request, state.line.reply) = (request, reply));
    }

    /// Holds back requests. As with TCP they are retransmitted, so they arrive late once this ends;
    /// [`disconnect`](MemoryNode::disconnect) loses them for good.
    pub fn lose_requests(&self, lost: bool) {
        self.change(|state| state.line.requests_lost = lost);
    }

    /// Holds back responses: requests arrive and are executed, but their responses arrive when this ends, or
    /// never if the connection ends first.
    pub fn lose_replies(&self, lost: bool) {
        self.change(|state| state.line.replies_lost = lost);
    }

    /// Resets the connection and opens no new one. Waiting callers get [`NodeError::Disconnected`]; later
    /// ones get [`NodeError::Unreachable`] immediately. [`MemoryNode::unread_requests`] sets what happens to
    /// requests that the server has not read yet.
    pub fn disconnect(&self) {
        self.change(|state| {
            state.line.disconnect();
            state.server.locks.watch.clear();
        });
        self.shared.contact.notify_waiters();
    }

    /// Simulates a connection attempt in progress: requests and [`Node::ready`] wait for
    /// [`connect`](MemoryNode::connect) or [`disconnect`](MemoryNode::disconnect), and no request is sent.
    pub fn connecting(&self) {
        self.change(|state| {
            state.line.connecting();
            state.server.locks.watch.clear();
        });
    }

    /// Ends [`disconnect`](MemoryNode::disconnect) and [`connecting`](MemoryNode::connecting). A waiting
    /// request that could create a key is not sent if its caller no longer wants it.
    pub fn connect(&self) {
        self.change(|state| {
            let now = self.shared.clock.now();
            let unsent = state.line.connect();
            for (request, reply) in unsent {
                state.send(now, request, reply);
            }
        });
        self.shared.contact.notify_waiters();
    }

    /// Sets whether the server gives hints, which is the default; a server without RESP3 gives none.
    pub fn hints(&self, given: bool) {
        self.change(|state| {
            state.line.hints(given);
            state.server.locks.watch.clear();
        });
    }

    /// Sets what happens to requests in flight, or not yet read by a hung server, when the connection ends.
    /// [`UnreadRequests::CarriedOut`] by default.
    pub fn unread_requests(&self, fate: UnreadRequests) {
        self.change(|state| state.line.unread_requests = fate);
    }
}

/// Faults of the server.
impl MemoryNode {
    /// Stops the server, as SIGSTOP does: connections stay, and requests queue up in order.
    pub fn hang(&self) {
        self.change(|state| state.line.hung = true);
    }

    /// Ends [`hang`](MemoryNode::hang), [`lose_requests`](MemoryNode::lose_requests) and
    /// [`lose_replies`](MemoryNode::lose_replies): everything held back happens now, in order.
    pub fn resume(&self) {
        self.change(|state| {
            let line = &mut state.line;
            (line.hung, line.requests_lost, line.replies_lost) = (false, false, false);
        });
    }

    /// Answers every request with this error and does nothing else, until [`recover`](MemoryNode::recover).
    pub fn fail(&self, kind: NodeErrorKind, message: &str) {
        let error = NodeError::Failed { kind, reason: message.into() };
        self.change(|state| state.server.failure = Some(error));
    }

    /// Ends [`fail`](MemoryNode::fail).
    pub fn recover(&self) {
        self.change(|state| state.server.failure = None);
    }

    /// Ends the process and immediately starts another one without the keys: a new identity of age zero. For
    /// a [durable](quorlock::node::Durability) node this means that its data was lost, or an old copy was restored.
    /// Requests that it had not read or not answered are lost, and their callers get an error.
    pub fn restart_empty(&self) {
        self.change(|state| {
            state.server.forget();
            state.restart(self.shared.clock.now(), Kept::Nothing);
        });
    }

    /// Like [`restart_empty`](MemoryNode::restart_empty), but keeps the keys, as if the server had saved
    /// them. The identity is still a new one, unless the node is [durable](quorlock::node::Durability).
    pub fn restart_with_data(&self) {
        self.change(|state| state.restart(self.shared.clock.now(), Kept::Data));
    }

    /// Sets the uptime that the server reports.
    pub fn age(&self, age: Duration) {
        self.change(|state| state.server.age(self.shared.clock.now(), age));
    }

    /// Sets the id of the server's process: two nodes with the same id are two addresses of one process.
    pub fn identify_as(&self, id: &str) {
        self.change(|state| state.server.identify_as(id));
    }
}

/// Inspection. None of this counts as a request, and no fault affects it.
impl MemoryNode {
    /// Returns all keys in order, including tombstones.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.shared.state.lock().server.locks.keys()
    }

    /// Returns the token under `key`.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Token> {
        self.shared.state.lock().server.locks.holder(key)
    }

    /// Returns the waiters in the queue of the lock at `key` that accept offers, in the order of their turns.
    #[must_use]
    pub fn accepting(&self, key: &str) -> Vec<NextWaiter> {
        let state = self.shared.state.lock();
        state.server.offers.accepting(&state.server.locks, key)
    }

    /// Returns the readers of the lock at `key`, and the remaining time of each.
    #[must_use]
    pub fn readers(&self, key: &str) -> Vec<(Token, Duration)> {
        self.shared.state.lock().server.locks.readers(key)
    }

    /// Returns the fencing counter of the lock at `key`, or `None` if no token was drawn in its slot. The counter
    /// is an ordinary key, called [`fence_counter("", key)`](quorlock::protocol::fence_counter), for clients
    /// without a key prefix.
    #[must_use]
    pub fn fencing_token(&self, key: &str) -> Option<FencingToken> {
        self.shared.state.lock().server.locks.fencing_token(key)
    }

    /// Returns the expiry of `key`, or `None` if there is no such key.
    #[must_use]
    pub fn expiry(&self, key: &str) -> Option<Expiry> {
        self.shared.state.lock().server.locks.expiry(key)
    }

    /// Stores foreign data under `key`.
    pub fn set_data(&self, key: &str, value: impl Into<Value>, expiry: Expiry) {
        self.change(|state| {
            // What is no lock stays as it is.
            drop(state.server.locks.set_data(key, value.into(), expiry));
        });
    }

    /// Deletes `key`, as DEL does.
    pub fn remove(&self, key: &str) {
        self.change(|state| state.server.locks.remove(key));
    }

    /// Deletes all keys, as FLUSHALL does; the process stays the same.
    pub fn flush(&self) {
        self.change(|state| state.server.forget());
    }

    /// Returns how many requests of each kind were sent to it.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.shared.state.lock().line.requests
    }
}

/// The number of requests of each kind that were sent to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Requests {
    /// [`Request::Acquire`](quorlock::node::Request::Acquire).
    pub acquire: usize,
    /// [`Request::Enqueue`](quorlock::node::Request::Enqueue).
    pub enqueue: usize,
    /// [`Request::WriteBack`](quorlock::node::Request::WriteBack).
    pub write_back: usize,
    /// [`Request::LeaveQueue`](quorlock::node::Request::LeaveQueue).
    pub leave_queue: usize,
    /// [`Request::ListWaiters`](quorlock::node::Request::ListWaiters).
    pub list_waiters: usize,
    /// [`Request::LogHold`](quorlock::node::Request::LogHold).
    pub log_hold: usize,
    /// [`Request::ReadLog`](quorlock::node::Request::ReadLog).
    pub read_log: usize,
    /// [`Request::Transfer`](quorlock::node::Request::Transfer).
    pub transfer: usize,
    /// [`Request::Renew`](quorlock::node::Request::Renew).
    pub renew: usize,
    /// [`Request::Release`](quorlock::node::Request::Release).
    pub release: usize,
    /// [`Request::Offer`](quorlock::node::Request::Offer).
    pub offer: usize,
    /// [`Request::Cancel`](quorlock::node::Request::Cancel).
    pub cancel: usize,
    /// [`Request::Inspect`](quorlock::node::Request::Inspect).
    pub inspect: usize,
    /// [`Request::AnnounceWriter`](quorlock::node::Request::AnnounceWriter).
    pub intend: usize,
    /// [`Request::WithdrawWriter`](quorlock::node::Request::WithdrawWriter).
    pub desist: usize,
}

impl Requests {
    /// Returns the sum.
    #[must_use]
    pub fn total(self) -> usize {
        let acquire = self.acquire + self.enqueue + self.transfer + self.write_back;
        let waiting = self.leave_queue + self.list_waiters + self.intend + self.desist;
        let log = self.log_hold + self.read_log;
        acquire + self.renew + self.release + self.cancel + waiting + self.inspect + log
    }
}

/// What happens to requests that a server has not read when their connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_enums, reason = "complete: they are read or they are not")]
pub enum UnreadRequests {
    /// The server reads them later, after requests on a newer connection: the worst case of what real servers
    /// do after SIGCONT.
    #[default]
    CarriedOut,
    /// They are lost.
    Lost,
}

impl Node for MemoryNode {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn ask(&self, request: SharedRequest, reply: Responder) {
        self.change(|state| match state.line.link {
            Link::Up => state.send(self.shared.clock.now(), request, reply),
            Link::Coming => state.line.keep_unsent(request, reply),
            Link::Down => state.line.refuse(reply, disconnected()),
        });
    }

    fn ready(&self) -> BoxFuture<'static, Result<(), NodeError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            loop {
                let contact = shared.contact.notified();
                let link = shared.state.lock().line.link;
                match link {
                    Link::Up => return Ok(()),
                    Link::Down => return Err(disconnected()),
                    Link::Coming => contact.await,
                }
            }
        })
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.state.lock().server.capabilities
    }

    fn listen(&self, listener: Arc<dyn HintListener>) {
        self.change(|state| state.line.listen(listener));
    }

    /// One page.
    fn list_keys(&self, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
        let shared = Arc::clone(&self.shared);
        KeyPages::unfold(Some(shared), move |shared| {
            let prefix = Arc::clone(&prefix);
            async move {
                let Some(shared) = shared else { return Ok(None) };
                let state = shared.state.lock();
                match state.line.link {
                    Link::Up => Ok(Some((state.server.locks.keys_of_locks(&prefix, which), None))),
                    Link::Coming | Link::Down => Err(disconnected()),
                }
            }
        })
    }
}

fn disconnected() -> NodeError {
    NodeError::Unreachable { reason: "the node is disconnected".into() }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

impl MemoryNode {
    /// Applies a change, and everything that follows from it.
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock());
        self.shared.advance();
        match self.shared.keep_time() {
            KeepTime::NotNeeded => {}
            KeepTime::Running => self.shared.due.notify_one(),
            KeepTime::Start => drop(tokio::spawn(keep_time(Arc::clone(&self.shared)))),
        }
    }
}
