//! Drives a machine: sends requests to the nodes, and wakes who waits for the verdict on their responses.
//!
//! What is decided, the [`Machine`] decides, under the mutex of its driver: a round, an attempt, or what takes a claim
//! back. [`Round::start`] records every node as asked, and gives each its request together with a [`Responder`].
//! The task that reads a node's response from the socket records it in the round and wakes the tasks that wait
//! for it. A driver has no task of its own, and no task polls.
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | response or error of a node | [`Driven::answered`]: recorded. If it is news, the waiting tasks are woken. The [`Listener`] is notified of the verdict, if no task waits for that, of a loss found after it, and of the last response. |
//! | vote without a request | [`Driven::offered`]: the same, for the votes of an offer. |
//! | timeout of a node | The waiting task wakes by its timer, lets the tasks that read sockets run (I-46), and then counts the silent node as unknown. |
//! | [`Driven::abandon`] | Requests that a node has not sent yet need not be sent. Responses are recorded as before. |
//!
//! # Cancel safety
//!
//! Dropping a future that waits for a round loses nothing: the round continues, and can be waited
//! for again. The dropped future removes its timer and wakes the other waiting tasks, which register
//! again. A request in flight keeps the round alive, also when all its owners have dropped it.

use std::fmt;
use std::mem;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Waker};
use std::time::Duration;

use smallvec::SmallVec;

use super::members::{NodeHandle, Nodes};
use crate::node::{Collect, NodeError, ReceivedAt, Responder, Response, SharedRequest, Vote};
use crate::runtime::{Mutex, clock::Clock};
use crate::telemetry::Op;
use quorlock_protocol::machine::{
    self, Address, Asked, Attempt, Heard, KeyStates, Machine, NodeSet, Offered, Question, Undo,
};
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{Moment, Verdict};

pub(crate) use quorlock_protocol::machine::Expect;

#[cfg(test)]
mod tests;
mod waiting;

/// One request to all or some nodes, and their responses.
pub(crate) type Round = Driven<machine::Round>;

/// The latest round about the key of a lease: an attempt, or a round that renews it.
pub(crate) type Followed = Driven<dyn Machine>;

/// A machine, with who waits for it.
pub(crate) struct Driven<M: ?Sized> {
    nodes: Arc<Nodes>,
    /// Read before the first byte was sent (rule I-1).
    pub(crate) sent: Moment,
    op: Op,
    /// The upper bound of the nodes' timeouts.
    pub(crate) ttl: Duration,
    abandoned: AtomicBool,
    inner: Mutex<Inner<M>>,
}

struct Inner<M: ?Sized> {
    listener: Option<Arc<dyn Listener>>,
    /// Whether the listener is to be notified of the verdict, too.
    awaits_verdict: bool,
    waiting: Waiting,
    machine: M,
}

/// Notified of what becomes of a round, on the task of the node whose response it was.
pub(crate) trait Listener: fmt::Debug + Send + Sync {
    /// The verdict is [certain](machine::Round::certain).
    fn decided(self: Arc<Self>);

    /// After the verdict: a renewal has found that the lease is [lost](Heard::is_lost).
    fn lost(self: Arc<Self>);

    /// All nodes have responded.
    fn settled(self: Arc<Self>);
}

/// The number of nodes for which the requests of a round need no allocation.
const USUAL: usize = 5;

impl Round {
    /// Asks every node for which `request` returns one. `ttl` is the upper bound of the timeouts.
    pub(crate) fn start<Q: Into<SharedRequest>>(
        nodes: &Arc<Nodes>,
        expect: Expect,
        ttl: Duration,
        request: impl Fn(usize) -> Option<Q>,
    ) -> Arc<Round> {
        let request = |index| request(index).map(Into::into);
        let requests: SmallVec<[Option<SharedRequest>; USUAL]> =
            (0..nodes.members.len()).map(request).collect();
        let first = requests.iter().flatten().next().map(Deref::deref);
        // Before the first response, all nodes must be recorded as asked.
        let asked = |index| {
            let is_asked = requests.get(index).is_some_and(Option::is_some);
            if is_asked { Asked::Now } else { Asked::Never }
        };
        let question = Question::by(first, expect, ttl);
        let round = machine::Round::new(&**nodes, question, nodes.clock.now(), asked);
        let round = Driven::drive(nodes, Op::of(first), round);
        for (index, request) in requests.into_iter().enumerate() {
            if let Some(request) = request {
                round.send(index, request);
            }
        }
        round
    }

    /// Asks one node only.
    pub(crate) fn start_at(
        nodes: &Arc<Nodes>,
        expect: Expect,
        ttl: Duration,
        node: usize,
        request: SharedRequest,
    ) -> Arc<Round> {
        let (question, now) = (Question::by(Some(&request), expect, ttl), nodes.clock.now());
        let mut round = machine::Round::new(&**nodes, question, now, |_| Asked::Later);
        round.ask(&**nodes, node, now);
        let round = Driven::drive(nodes, Op::of(Some(&request)), round);
        round.send(node, request);
        round
    }
}

impl Driven<Attempt> {
    /// Drives an attempt, and sends its first requests.
    pub(crate) fn attempt(nodes: &Arc<Nodes>, attempt: Attempt) -> Arc<Driven<Attempt>> {
        let driven = Driven::drive(nodes, Op::Acquire, attempt);
        driven.send_due(driven.sent);
        driven
    }

    /// Records an unasked vote that the node keeps for `life`. Returns whether it may stay there.
    pub(crate) fn offered(&self, node: usize, vote: Response, life: Duration, now: Moment) -> bool {
        let mut inner = self.inner.lock();
        match inner.machine.handle_offer(&*self.nodes, node, vote, life, now) {
            Offered::Counts(heard) => Self::conclude(inner, heard),
            Offered::Again => {}
            Offered::GiveBack => return false,
        }
        true
    }
}

impl Driven<Undo> {
    /// Drives a clean-up, and sends its first requests.
    pub(crate) fn undo(nodes: &Arc<Nodes>, undo: Undo) -> Arc<Driven<Undo>> {
        let driven = Driven::drive(nodes, Op::Release, undo);
        driven.send_due(driven.sent);
        driven
    }

    /// Asks the nodes again that have failed, and whose pause is over.
    pub(crate) fn ask_again(self: &Arc<Self>, now: Moment) {
        while let Some((index, request)) = self.poll_request(now) {
            if let Some((_, member)) = self.member(index) {
                // It has failed before: its connection may be driven by a task that is not polled.
                drop(member.node.ready());
            }
            self.send(index, request);
        }
    }
}

impl Round {
    /// Has `listener` notified once responses have made the verdict certain: now, if they have.
    pub(crate) fn notify_decided(&self, listener: Arc<dyn Listener>) {
        let mut inner = self.inner.lock();
        if inner.machine.certain().is_none() {
            inner.awaits_verdict = true;
            let before = inner.listener.replace(listener);
            drop(inner);
            return drop(before);
        }
        drop(inner);
        listener.decided();
    }

    /// Returns the verdict, if responses have made it certain.
    pub(crate) fn certain(&self) -> Option<Verdict> {
        self.inner.lock().machine.certain()
    }
}

impl<M: Machine> Driven<M> {
    fn drive(nodes: &Arc<Nodes>, op: Op, machine: M) -> Arc<Driven<M>> {
        debug_assert_eq!(nodes.members.len(), nodes.quorum.nodes(), "the quorum is one of other nodes");
        let (sent, ttl) = (machine.round().sent(), machine.round().ttl());
        let inner = Inner { listener: None, awaits_verdict: false, waiting: Waiting::default(), machine };
        let inner = Mutex::new(inner);
        let abandoned = AtomicBool::new(false);
        Arc::new(Driven { nodes: nodes.clone(), sent, op, ttl, abandoned, inner })
    }

    /// Sends what the machine wants sent at `now`.
    pub(crate) fn send_due(self: &Arc<Self>, now: Moment) {
        while let Some((index, request)) = self.poll_request(now) {
            self.send(index, request);
        }
    }

    fn poll_request(&self, now: Moment) -> Option<(usize, SharedRequest)> {
        self.inner.lock().machine.poll_request(&*self.nodes, now)
    }

    /// Reads or changes the machine.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut M, &Nodes) -> T) -> T {
        work(&mut self.inner.lock().machine, &self.nodes)
    }

    /// Returns the node of a request, and its round.
    fn member(&self, index: usize) -> Option<(usize, &NodeHandle)> {
        let Address { round, node } = Address::of(index, self.nodes.members.len());
        Some((round, self.nodes.members.get(node)?))
    }

    /// The node may respond before this returns.
    fn send(self: &Arc<Self>, index: usize, request: SharedRequest) {
        let Some((_, member)) = self.member(index) else { return };
        let responder = Responder::new(self.clone(), index);
        match self.nodes.unsupported(member, &request) {
            Some(error) => responder.send(Err(error)),
            None => member.node.ask(request, responder),
        }
    }

    /// Records the response to the request with this index, received at `now`.
    fn answered(&self, index: usize, result: Result<Response, NodeError>, now: Moment) {
        let Some((round, member)) = self.member(index) else { return };
        let op = if round == 0 { self.op } else { Op::Other };
        // Not under the lock: it may log.
        member.monitor.answered(op, &result, now);
        let mut inner = self.inner.lock();
        // A node that was asked again has taken longer than a round trip.
        if let Some(asked) = inner.machine.asked_at(index) {
            let took = now.since(asked);
            member.monitor.meter.answered(op, &result, took);
            if result.is_ok() {
                member.answered_after(took);
            }
        }
        let heard = inner.machine.handle_response(&*self.nodes, index, result, now);
        if heard.is_late {
            member.monitor.meter.late();
        }
        Self::conclude(inner, heard);
    }

    /// Wakes the waiting tasks, and notifies the listener, after a response.
    fn conclude(mut inner: MutexGuard<'_, Inner<M>>, heard: Heard) {
        let woken = inner.waiting.leave(heard.is_news);
        let lost = if heard.is_lost && !inner.awaits_verdict { inner.listener.clone() } else { None };
        let is_decided = inner.awaits_verdict && inner.machine.round().certain().is_some();
        inner.awaits_verdict &= !is_decided;
        let decided = if is_decided { inner.listener.clone() } else { None };
        let settled = if inner.machine.is_settled() { inner.listener.take() } else { None };
        drop(inner);
        // Not under the lock: the listener may drop the round.
        if let Some(listener) = decided {
            listener.decided();
        }
        if let Some(listener) = lost {
            listener.lost();
        }
        if let Some(listener) = settled {
            listener.settled();
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

impl<M: Machine + ?Sized> Driven<M> {
    /// Gives the round up: unsent requests need not be sent.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Keeps only the key states from now on. When all nodes have responded, `listener` is notified
    /// and the round drops it. Returns the states so far, and whether all nodes have already responded; the listener is
    /// then not notified.
    pub(crate) fn notify_settled(&self, listener: Arc<dyn Listener>) -> (KeyStates, bool) {
        let mut inner = self.inner.lock();
        let round = inner.machine.round();
        let (key_states, all_responded) = (round.key_states(), round.all_responded());
        let before = if all_responded { None } else { inner.listener.replace(listener) };
        inner.awaits_verdict = false;
        drop(inner);
        drop(before);
        (key_states, all_responded)
    }

    /// Returns the state of the claim's key on each node, as far as known.
    pub(crate) fn key_states(&self) -> KeyStates {
        self.inner.lock().machine.round().key_states()
    }

    /// Whether no response is outstanding.
    pub(crate) fn all_responded(&self) -> bool {
        self.inner.lock().machine.round().all_responded()
    }

    /// Returns the nodes that had lost the key, which they had `before`, unless a quorum had it: see
    /// [`had_lost`](machine::Round::had_lost).
    pub(crate) fn had_lost(&self, before: KeyStates) -> NodeSet {
        let inner = self.inner.lock();
        let round = inner.machine.round();
        let lost = round.had_lost(before);
        let is_lost =
            || round.tally(&*self.nodes, self.nodes.clock.now()).granted() < self.nodes.quorum.needed();
        if !lost.is_empty() && is_lost() { lost } else { NodeSet::default() }
    }
}

/// What the round knows so far: see [`machine::Round`].
impl<M: Machine> Driven<M> {
    /// Whether all asked nodes have responded, none with an error.
    pub(crate) fn all_voted(&self) -> bool {
        self.inner.lock().machine.round().all_voted()
    }

    /// Whether a node has cast this vote.
    pub(crate) fn has_vote(&self, vote: &Vote) -> bool {
        self.inner.lock().machine.round().count_votes(|_, cast| cast == vote) > 0
    }

    /// Returns the vote of the node at `index`, if it has cast one.
    pub(crate) fn vote_of(&self, index: usize) -> Option<Vote> {
        let inner = self.inner.lock();
        let response = inner.machine.round().response_of(index)?.as_ref().ok()?;
        Some(response.vote.clone())
    }

    /// Returns all responses so far, for people and for what a refused waiter does next.
    pub(crate) fn report(&self) -> VoteReport {
        let now = self.nodes.clock.now();
        self.inner.lock().machine.report(&*self.nodes, now)
    }
}

/// Tasks that wait for the round: nearly always one.
#[derive(Debug, Default)]
struct Waiting {
    tasks: SmallVec<[Waker; 1]>,
    /// Whether one of them waits for a certain node, so that it must see every response.
    for_each_answer: bool,
}

impl Waiting {
    /// Wakes the task of `context` at the next news.
    fn join(&mut self, context: &Context<'_>) {
        if !self.tasks.iter().any(|task| task.will_wake(context.waker())) {
            self.tasks.push(context.waker().clone());
        }
    }

    /// Treats each response as news until the tasks are woken.
    fn for_each_answer(&mut self) {
        self.for_each_answer = true;
    }

    /// Takes the tasks to wake for a response, which may be news to only some of them.
    fn leave(&mut self, is_news: bool) -> SmallVec<[Waker; 1]> {
        if is_news || self.for_each_answer { mem::take(self).tasks } else { SmallVec::new() }
    }
}

impl<M: Machine> Collect for Driven<M> {
    fn answer(&self, index: usize, result: Result<Response, NodeError>) {
        self.answered(index, result, self.nodes.clock.now());
    }

    fn answer_received(&self, index: usize, result: Result<Response, NodeError>, came: ReceivedAt<'_>) {
        let now = came.on(&*self.nodes.clock).unwrap_or_else(|| self.nodes.clock.now());
        self.answered(index, result, now);
    }

    fn wanted(&self) -> bool {
        !self.abandoned.load(Ordering::Acquire)
    }
}

impl<M: fmt::Debug> fmt::Debug for Driven<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven").field("machine", &self.inner.lock().machine).finish_non_exhaustive()
    }
}
