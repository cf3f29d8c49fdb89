//! A lock server in memory, and its faults.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::protocol::{FencingToken, Moment, Token};
use quorlock::{
    node::{Capabilities, Expiry, HintListener, Node, NodeError, NodeErrorKind, Responder, SharedRequest},
    runtime::{Clock, SystemClock},
};
use tokio::sync::Notify;

use crate::store::Value;

mod line;
mod server;

use line::{Delivery, Line, Link};
use server::{Kept, Server};

/// A lock server in memory: a [`Node`] that answers at once, until it is told not to.
///
/// It is a handle: clones are the same node. Faults are switched through `&self` while others ask.
/// Requests are carried out in the order in which they were asked, by the same rules as those of
/// the scripts that real servers run; one contract suite checks both.
///
/// What a fault means is taken from real servers. A request that was *sent*, even to a server that
/// hangs, is carried out when the server gets to it, though nobody waits any more.
///
/// It gives hints: to all who listen, whoever made the change. So several coordinators may share it
/// as if each had a connection of its own.
///
/// Delays need a tokio runtime, and so do listeners: a task keeps the time while an answer is due,
/// or the end of a key that somebody waits for. Everything else happens within the calls.
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
/// let unreachable = ask(&node, Request::Inspect { key: "orders/42".into() }).await;
/// assert!(unreachable.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryNode {
    shared: Arc<Shared>,
}

/// `count` nodes called `node-1`, `node-2` and so on, on the system's clock.
#[must_use]
pub fn memory_nodes(count: usize) -> Vec<MemoryNode> {
    memory_nodes_on(&(Arc::new(SystemClock::default()) as Arc<dyn Clock>), count)
}

/// As [`memory_nodes`], on `clock`: for paused time and for simulations.
#[must_use]
pub fn memory_nodes_on(clock: &Arc<dyn Clock>, count: usize) -> Vec<MemoryNode> {
    (1..=count).map(|number| MemoryNode::on(format!("node-{number}"), Arc::clone(clock))).collect()
}

/// Making one.
impl MemoryNode {
    /// An empty node on the system's clock. It claims to have been up for a day, so that no
    /// quarantine holds it back.
    #[must_use]
    pub fn new(name: impl Into<String>) -> MemoryNode {
        MemoryNode::on(name, Arc::new(SystemClock::default()))
    }

    /// As [`MemoryNode::new`], on `clock`.
    #[must_use]
    pub fn on(name: impl Into<String>, clock: Arc<dyn Clock>) -> MemoryNode {
        MemoryNode::with_own_clock(name, Arc::clone(&clock), clock)
    }

    /// As [`MemoryNode::on`], for a server whose own clock is not that of its clients: keys expire
    /// and fencing tokens are drawn by `own`, for which [`SkewedClock`](crate::SkewedClock) is made;
    /// delays and the server's age go by `clock`.
    #[must_use]
    pub fn with_own_clock(name: impl Into<String>, clock: Arc<dyn Clock>, own: Arc<dyn Clock>) -> MemoryNode {
        let name = name.into();
        let server = Server::new(&name, Arc::clone(&own), clock.now());
        let state = State {
            server,
            line: Line::default(),
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

/// What it can do.
impl MemoryNode {
    /// The same node, which can do this and refuses the rest by name. Unless set, it can do
    /// [all](Capabilities::all), and forgets when it restarts. To be set before anybody has asked it what it
    /// can: a coordinator does so when it is built.
    #[must_use]
    pub fn able_to(self, capabilities: Capabilities) -> MemoryNode {
        self.change(|state| state.server.able_to(capabilities));
        self
    }
}

/// Faults of the network.
impl MemoryNode {
    /// From now on a request takes `request` to arrive, and its answer `reply` to come back.
    pub fn delay(&self, request: Duration, reply: Duration) {
        self.change(|state| state.line.delay(request, reply));
    }

    /// Requests do not arrive. As with TCP, they are sent again once this ends, so they arrive
    /// late; [`disconnect`](MemoryNode::disconnect) loses them for good.
    pub fn lose_requests(&self, lost: bool) {
        self.change(|state| state.line.lose_requests(lost));
    }

    /// Requests arrive and are carried out, but their answers do not come back before this ends, or
    /// never if the connection ends first.
    pub fn lose_replies(&self, lost: bool) {
        self.change(|state| state.line.lose_replies(lost));
    }

    /// Resets the connection and makes no new one. Whoever waits is told
    /// [`NodeError::Disconnected`]; whoever asks later, [`NodeError::Unreachable`] at once. What
    /// becomes of the requests that the server had not read yet, [`MemoryNode::in_socket`] says.
    pub fn disconnect(&self) {
        self.change(|state| {
            state.line.disconnect();
            state.server.unwatch_all();
        });
        self.shared.contact.notify_waiters();
    }

    /// There is no connection, and one is being made: requests wait, unsent, for
    /// [`connect`](MemoryNode::connect) or [`disconnect`](MemoryNode::disconnect), and so does
    /// [`Node::ready`].
    pub fn connecting(&self) {
        self.change(|state| {
            state.line.connecting();
            state.server.unwatch_all();
        });
    }

    /// Ends [`disconnect`](MemoryNode::disconnect) and [`connecting`](MemoryNode::connecting). A
    /// waiting request that could create a key and that nobody wants any more is not sent.
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

    /// Whether the server gives hints, which it does unless this says otherwise: one without RESP3
    /// does not.
    pub fn hints(&self, given: bool) {
        self.change(|state| {
            state.line.hints(given);
            state.server.unwatch_all();
        });
    }

    /// What becomes of requests that are under way to the server, or that a hung server has not
    /// read, when the connection ends. [`InSocket::CarriedOut`] unless set.
    pub fn in_socket(&self, fate: InSocket) {
        self.change(|state| state.line.in_socket(fate));
    }
}

/// Faults of the server.
impl MemoryNode {
    /// Stops the server as SIGSTOP does: connections stay, requests queue up in order.
    pub fn hang(&self) {
        self.change(|state| state.line.hang(true));
    }

    /// Ends [`hang`](MemoryNode::hang), [`lose_requests`](MemoryNode::lose_requests) and
    /// [`lose_replies`](MemoryNode::lose_replies): everything that was kept happens now, in order.
    pub fn resume(&self) {
        self.change(|state| {
            state.line.hang(false);
            state.line.lose_requests(false);
            state.line.lose_replies(false);
        });
    }

    /// The server answers everything with this error and does nothing, until
    /// [`mend`](MemoryNode::mend).
    pub fn fail(&self, kind: NodeErrorKind, message: &str) {
        let error = NodeError::Failed { kind, reason: message.into() };
        self.change(|state| state.server.fail(Some(error)));
    }

    /// Ends [`fail`](MemoryNode::fail).
    pub fn mend(&self) {
        self.change(|state| state.server.fail(None));
    }

    /// The process ends and another starts at once, without the keys: a new identity of age zero. Of a
    /// [durable](quorlock::node::Durability) node, its data is lost, or an old copy was restored.
    /// What it had not read or not answered is gone with it, and those who wait are told.
    pub fn restart_empty(&self) {
        self.change(|state| {
            state.server.forget();
            state.restart(self.shared.clock.now(), Kept::Nothing);
        });
    }

    /// As [`restart_empty`](MemoryNode::restart_empty), with the keys: the server wrote them down. The
    /// identity is a new one all the same, unless the node is [durable](quorlock::node::Durability).
    pub fn restart_with_data(&self) {
        self.change(|state| state.restart(self.shared.clock.now(), Kept::Data));
    }

    /// The server claims to have been up for `age`.
    pub fn age(&self, age: Duration) {
        self.change(|state| state.server.age(self.shared.clock.now(), age));
    }

    /// The server calls its process `id`: two nodes of one id are two addresses of one process.
    pub fn call_itself(&self, id: &str) {
        self.change(|state| state.server.call_itself(id));
    }
}

/// Looking inside. None of this counts as a request, and no fault hinders it.
impl MemoryNode {
    /// All keys, tombstones too, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.shared.state().server.keys()
    }

    /// The token under `key`.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Token> {
        self.shared.state().server.holder(key)
    }

    /// Those who share the lock at `key`, and for how much longer each of them.
    #[must_use]
    pub fn readers(&self, key: &str) -> Vec<(Token, Duration)> {
        self.shared.state().server.readers(key)
    }

    /// Where the counter of fencing tokens stands for the lock at `key`, or `None` if nothing was
    /// drawn for it. It is an ordinary key, called
    /// [`fence_counter(key)`](quorlock::protocol::fence_counter).
    #[must_use]
    pub fn fencing_token(&self, key: &str) -> Option<FencingToken> {
        self.shared.state().server.fencing_token(key)
    }

    /// When `key` ends, or `None` without such a key.
    #[must_use]
    pub fn expiry(&self, key: &str) -> Option<Expiry> {
        self.shared.state().server.expiry(key)
    }

    /// Puts somebody else's data under `key`.
    pub fn set_data(&self, key: &str, value: impl Into<Value>, expiry: Expiry) {
        self.change(|state| state.server.set_data(key, value.into(), expiry));
    }

    /// Deletes `key`, as DEL does.
    pub fn remove(&self, key: &str) {
        self.change(|state| state.server.remove(key));
    }

    /// Deletes all keys, as FLUSHALL does: the process stays the same.
    pub fn flush(&self) {
        self.change(|state| state.server.forget());
    }

    /// How many requests of each kind were sent to it.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.shared.state().line.requests()
    }
}

/// How many requests of each kind were sent to a node.
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
    /// [`Request::DeleteFencingCounter`](quorlock::node::Request::DeleteFencingCounter).
    pub forget: usize,
}

impl Requests {
    /// All of them.
    #[must_use]
    pub fn total(self) -> usize {
        let acquire = self.acquire + self.enqueue + self.transfer + self.write_back;
        let waiting = self.leave_queue + self.list_waiters + self.intend + self.desist;
        acquire + self.renew + self.release + self.cancel + waiting + self.inspect + self.forget
    }
}

/// What becomes of requests that a server has not read when their connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_enums, reason = "complete: they are read or they are not")]
pub enum InSocket {
    /// The server reads them later, after what it was asked on a newer connection: the worst case
    /// of what real servers do after SIGCONT.
    #[default]
    CarriedOut,
    /// They are gone.
    Lost,
}

impl Node for MemoryNode {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn ask(&self, request: SharedRequest, reply: Responder) {
        self.change(|state| match state.line.link() {
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
                let link = shared.state().line.link();
                match link {
                    Link::Up => return Ok(()),
                    Link::Down => return Err(disconnected()),
                    Link::Coming => contact.await,
                }
            }
        })
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.state().server.capabilities()
    }

    fn listen(&self, listener: Arc<dyn HintListener>) {
        self.change(|state| state.line.listen(listener));
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
    /// Changes something, and lets happen what follows from it.
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state());
        self.shared.advance();
        match self.shared.keep_time() {
            KeepTime::NotNeeded => {}
            KeepTime::Running => self.shared.due.notify_one(),
            KeepTime::Start => drop(tokio::spawn(keep_time(Arc::clone(&self.shared)))),
        }
    }
}

struct Shared {
    name: String,
    clock: Arc<dyn Clock>,
    /// The server's own.
    own: Arc<dyn Clock>,
    state: Mutex<State>,
    listeners: Mutex<Vec<Arc<dyn HintListener>>>,
    /// Wakes the worker: something is due earlier than it knows.
    due: Notify,
    /// Wakes those who wait for the first contact.
    contact: Notify,
}

struct State {
    server: Server,
    line: Line,
    /// What has come to the clients and is being given to them.
    arrived: VecDeque<Delivery>,
    /// Whether somebody is giving it.
    delivering: bool,
    /// Whether a task keeps the time.
    timekeeper: bool,
}

impl State {
    fn send(&mut self, now: Moment, request: SharedRequest, reply: Responder) {
        if request.may_create() && !reply.wanted() {
            self.line.refuse(reply, NodeError::NotAsked);
        } else {
            self.line.send(now, request, reply);
        }
    }

    fn due(&self) -> Option<Due> {
        let due = Due { line: self.line.next_due(), server: self.line.next_change(&self.server) };
        (due.line.is_some() || due.server.is_some()).then_some(due)
    }

    fn restart(&mut self, now: Moment, kept: Kept) {
        self.line.reset();
        self.server.unwatch_all();
        self.server.restart(now, kept);
    }
}

/// When something happens next: on the line by the clients' clock, in the server by its own.
#[derive(Clone, Copy)]
struct Due {
    line: Option<Moment>,
    server: Option<Moment>,
}

/// The task that waits for what is due.
enum KeepTime {
    NotNeeded,
    Running,
    Start,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does everything that is due, and gives the clients what has come, one after the other:
    /// whoever is called may ask again at once, and another thread may come in between.
    fn advance(&self) {
        let mut state = self.state();
        let State { server, line, arrived, .. } = &mut *state;
        arrived.extend(line.advance(self.clock.now(), server));
        if std::mem::replace(&mut state.delivering, true) {
            // Whoever delivers gives this too.
            return;
        }
        drop(state);
        let delivering = Delivering(self);
        while let Some(delivery) = delivering.next() {
            self.deliver(delivery);
        }
    }

    fn deliver(&self, delivery: Delivery) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        match delivery {
            Delivery::Response(reply, answer) => {
                drop(listeners);
                reply.send(answer);
            }
            Delivery::Hint(news) => {
                for listener in &*listeners {
                    news.tell(&**listener);
                }
            }
            Delivery::Listener(listener, first) => {
                if let Some(news) = first {
                    news.tell(&*listener);
                }
                listeners.push(listener);
            }
        }
    }

    fn keep_time(&self) -> KeepTime {
        let mut state = self.state();
        if state.due().is_none() {
            KeepTime::NotNeeded
        } else if std::mem::replace(&mut state.timekeeper, true) {
            KeepTime::Running
        } else {
            KeepTime::Start
        }
    }

    /// When something is due next. If nothing is, the timekeeper ends with this call.
    fn next_due(&self) -> Option<Due> {
        let mut state = self.state();
        let due = state.due();
        state.timekeeper = due.is_some();
        due
    }

    /// Ends when it is time.
    async fn wait_until(&self, due: Due) {
        let sleep = |clock: &Arc<dyn Clock>, moment: Option<Moment>| match moment {
            Some(moment) => clock.sleep_until(moment),
            None => Box::pin(std::future::pending()),
        };
        tokio::select! {
            () = sleep(&self.clock, due.line) => {}
            () = sleep(&self.own, due.server) => {}
        }
    }
}

/// Gives up delivering when it ends, be it by a panic of whoever is called.
struct Delivering<'a>(&'a Shared);

impl Delivering<'_> {
    /// The next thing to deliver. If there is none, whoever comes next delivers.
    fn next(&self) -> Option<Delivery> {
        let mut state = self.0.state();
        let next = state.arrived.pop_front();
        state.delivering = next.is_some();
        next
    }
}

impl Drop for Delivering<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state().delivering = false;
        }
    }
}

async fn keep_time(shared: Arc<Shared>) {
    while let Some(due) = shared.next_due() {
        tokio::select! {
            biased;
            () = shared.due.notified() => {}
            () = shared.wait_until(due) => {}
        }
        shared.advance();
    }
}
