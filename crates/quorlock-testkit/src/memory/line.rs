//! The connection of a memory node: messages in flight, and network faults.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{
    Hint, HintListener, Identity, NodeError, Request, Responder, Response, SharedRequest, Vote,
};
use quorlock::protocol::{InboxMessage, Moment};

use super::server::Server;
use super::watch::Change;
use super::{Requests, UnreadRequests};

/// What reaches the clients.
pub(super) enum Delivery {
    Response(Responder, Result<Response, NodeError>),
    /// For all listeners.
    Hint(PendingHint),
    /// A new listener, and the hint that it receives first.
    Listener(Arc<dyn HintListener>, Option<PendingHint>),
}

/// A [`Hint`] in flight.
pub(super) enum PendingHint {
    Subscribed,
    Invalidated(String),
    Flushed,
    Unsubscribed,
    /// A message to an inbox, from this history.
    Message(Vec<u8>, Arc<Identity>),
}

impl PendingHint {
    pub(super) fn notify(&self, listener: &dyn HintListener) {
        match self {
            PendingHint::Subscribed => {
                listener.on_hint(Hint::Subscribed);
                listener.inbox_open();
            }
            PendingHint::Invalidated(key) => listener.on_hint(Hint::Invalidated(key.as_bytes())),
            PendingHint::Flushed => listener.on_hint(Hint::Flushed),
            PendingHint::Unsubscribed => listener.on_hint(Hint::Unsubscribed),
            PendingHint::Message(payload, from) => {
                InboxMessage::parse(payload).for_each(|message| listener.receive(message, from));
            }
        }
    }
}

/// Converts a change to what the listeners of this server receive.
fn news(change: Change, server: &Server) -> PendingHint {
    match change {
        Change::Key(key) => PendingHint::Invalidated(key),
        Change::All => PendingHint::Flushed,
        Change::Message(message) => PendingHint::Message(message, Arc::clone(&server.identity)),
    }
}

/// One connection, with two queues: requests to the server; responses and hints to the client.
#[derive(Default)]
pub(super) struct Connection {
    pub(super) link: Link,
    hints: Hints,
    listeners: Vec<Arc<dyn HintListener>>,
    /// How long requests take.
    pub(super) request: Duration,
    /// How long responses take.
    pub(super) reply: Duration,
    pub(super) hung: bool,
    pub(super) requests_lost: bool,
    pub(super) replies_lost: bool,
    pub(super) unread_requests: UnreadRequests,
    pub(super) requests: Requests,
    unsent: Vec<(SharedRequest, Responder)>,
    inbox: VecDeque<Sent>,
    /// Requests from connections that have ended.
    orphans: VecDeque<Orphan>,
    outbox: VecDeque<Coming>,
    /// What the client receives immediately.
    immediate: Vec<Delivery>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Link {
    #[default]
    Up,
    Coming,
    Down,
}

/// Whether the server gives hints, to a client that is connected.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Hints {
    #[default]
    On,
    Off,
}

struct Sent {
    request: SharedRequest,
    reply: Responder,
    due: Moment,
}

struct Orphan {
    request: SharedRequest,
    due: Moment,
}

struct Coming {
    delivery: Delivery,
    due: Moment,
}

/// Faults.
impl Connection {
    pub(super) fn connecting(&mut self) {
        self.cut("the connection was reset");
        self.link = Link::Coming;
    }

    pub(super) fn connect(&mut self) -> Vec<(SharedRequest, Responder)> {
        if self.link != Link::Up {
            self.link = Link::Up;
            self.say_whether_hearing();
        }
        std::mem::take(&mut self.unsent)
    }

    pub(super) fn disconnect(&mut self) {
        self.cut("the connection was reset");
        self.link = Link::Down;
        for (_, reply) in std::mem::take(&mut self.unsent) {
            let reason = "the connection could not be made".into();
            self.refuse(reply, NodeError::Unreachable { reason });
        }
    }

    /// Replaces the process at the other end. It listens immediately, so the connection is as before.
    pub(super) fn reset(&mut self) {
        self.cut("the server ended");
        self.orphans.clear();
        self.hung = false;
        self.say_whether_hearing();
    }

    pub(super) fn hints(&mut self, on: bool) {
        if self.hearing() {
            self.immediate.push(Delivery::Hint(PendingHint::Unsubscribed));
            self.outbox.retain(|coming| matches!(coming.delivery, Delivery::Response(..)));
        }
        self.hints = if on { Hints::On } else { Hints::Off };
        self.say_whether_hearing();
    }

    pub(super) fn listen(&mut self, listener: Arc<dyn HintListener>) {
        self.listeners.push(Arc::clone(&listener));
        let first = self.hearing().then_some(PendingHint::Subscribed);
        self.immediate.push(Delivery::Listener(listener, first));
    }

    /// Whether listeners receive hints.
    fn hearing(&self) -> bool {
        !self.listeners.is_empty() && self.link == Link::Up && self.hints == Hints::On
    }

    fn say_whether_hearing(&mut self) {
        if self.hearing() {
            self.immediate.push(Delivery::Hint(PendingHint::Subscribed));
        }
    }

    fn cut(&mut self, reason: &str) {
        let disconnected = || NodeError::Disconnected { reason: reason.into() };
        let arriving = self.unread_requests == UnreadRequests::CarriedOut && !self.requests_lost;
        for Sent { request, reply, due } in self.inbox.drain(..) {
            self.immediate.push(Delivery::Response(reply, Err(disconnected())));
            if arriving {
                self.orphans.push_back(Orphan { request, due });
            }
        }
        for Coming { delivery, .. } in self.outbox.drain(..) {
            if let Delivery::Response(reply, _) = delivery {
                self.immediate.push(Delivery::Response(reply, Err(disconnected())));
            }
        }
        if self.hearing() {
            self.immediate.push(Delivery::Hint(PendingHint::Unsubscribed));
        }
    }
}

/// Traffic.
impl Connection {
    pub(super) fn send(&mut self, now: Moment, request: SharedRequest, reply: Responder) {
        self.requests.count(&request);
        self.inbox.push_back(Sent { request, reply, due: now + self.request });
    }

    pub(super) fn keep_unsent(&mut self, request: SharedRequest, reply: Responder) {
        self.unsent.push((request, reply));
    }

    pub(super) fn refuse(&mut self, reply: Responder, error: NodeError) {
        self.immediate.push(Delivery::Response(reply, Err(error)));
    }

    /// Processes everything that is due, and returns what has arrived at the clients.
    pub(super) fn advance(&mut self, now: Moment, server: &mut Server) -> Vec<Delivery> {
        let mut arrived = std::mem::take(&mut self.immediate);
        self.notify_changes(now, server);
        while let Some(Sent { request, reply, .. }) = self.arrived(now) {
            let inboxes = self.listeners.iter().filter_map(|listener| listener.inbox());
            server.offers.listen(inboxes.filter(|_| self.hearing()));
            let answer = server.execute(&request);
            if self.hearing() {
                watch(server, &request, &answer);
            }
            self.send_back(now, Delivery::Response(reply, answer));
            self.notify_changes(now, server);
        }
        while !self.hung && self.orphans.front().is_some_and(|orphan| orphan.due <= now) {
            // No client receives the response.
            drop(self.orphans.pop_front().map(|orphan| server.execute(&orphan.request)));
            self.notify_changes(now, server);
        }
        while !self.replies_lost && self.outbox.front().is_some_and(|coming| coming.due <= now) {
            arrived.extend(self.outbox.pop_front().map(|coming| coming.delivery));
        }
        arrived
    }

    /// Sends hints about changes. A server that hangs sends them later.
    fn notify_changes(&mut self, now: Moment, server: &mut Server) {
        if self.hung {
            return;
        }
        for change in server.locks.take_changes() {
            if self.hearing() {
                self.send_back(now, Delivery::Hint(news(change, server)));
            }
        }
    }

    fn send_back(&mut self, now: Moment, delivery: Delivery) {
        self.outbox.push_back(Coming { delivery, due: now + self.reply });
    }

    /// Returns when the server has a hint to send without a request, on its own clock.
    pub(super) fn next_change(&self, server: &Server) -> Option<Moment> {
        if self.hung || !self.hearing() { None } else { server.locks.next_change() }
    }

    /// Returns the earliest moment at which something happens without a call.
    pub(super) fn next_due(&self) -> Option<Moment> {
        let sent = self.inbox.front().filter(|_| !self.stuck()).map(|sent| sent.due);
        let orphan = self.orphans.front().filter(|_| !self.hung).map(|orphan| orphan.due);
        let coming = self.outbox.front().filter(|_| !self.replies_lost).map(|coming| coming.due);
        [sent, orphan, coming].into_iter().flatten().min()
    }

    fn arrived(&mut self, now: Moment) -> Option<Sent> {
        let due = !self.stuck() && self.inbox.front()?.due <= now;
        if due { self.inbox.pop_front() } else { None }
    }

    fn stuck(&self) -> bool {
        self.hung || self.requests_lost
    }
}

/// Watches the key for a client that was refused, has inspected or has renewed it, and the turn for a waiter in the queue.
fn watch(server: &mut Server, request: &Request, answer: &Result<Response, NodeError>) {
    if let (Request::Enqueue { key, waiter, .. }, Ok(Response { vote: Vote::Queued(queued), .. })) =
        (request, answer)
    {
        server.locks.watch.turn(key, *waiter);
        if queued.ahead < 2 {
            server.locks.watch.key(key);
        }
        return;
    }
    if let (Request::Renew { claim, .. }, Ok(Response { vote: Vote::Granted | Vote::Restored, .. })) =
        (request, answer)
    {
        claim.keys().for_each(|key| server.locks.watch.held(key));
    }
    let looked = matches!(request, Request::Inspect { .. });
    if let Ok(Response { vote, .. }) = answer
        && (looked || matches!(vote, Vote::Held(_) | Vote::NotYourTurn))
    {
        server.locks.watch.key(in_the_way(vote).unwrap_or(request.key()));
    }
}

/// Returns which of several keys another client holds.
fn in_the_way(vote: &Vote) -> Option<&str> {
    if let Vote::Held(holding) = vote { holding.key.as_deref() } else { None }
}

impl Requests {
    fn count(&mut self, request: &Request) {
        match request {
            Request::Acquire { .. } => self.acquire += 1,
            Request::Enqueue { .. } => self.enqueue += 1,
            Request::WriteBack { .. } => self.write_back += 1,
            Request::LeaveQueue { .. } => self.leave_queue += 1,
            Request::ListWaiters { .. } => self.list_waiters += 1,
            Request::LogHold { .. } => self.log_hold += 1,
            Request::ReadLog { .. } => self.read_log += 1,
            Request::Transfer { .. } => self.transfer += 1,
            Request::Renew { .. } => self.renew += 1,
            Request::Release { .. } => self.release += 1,
            Request::Offer { .. } => self.offer += 1,
            Request::Cancel { .. } => self.cancel += 1,
            Request::Inspect { .. } => self.inspect += 1,
            Request::AnnounceWriter { .. } => self.intend += 1,
            Request::WithdrawWriter { .. } => self.desist += 1,
            // A request that is newer than this crate.
            _ => {}
        }
    }
}
