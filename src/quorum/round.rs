//! Drives a round: sends one request to all nodes, and wakes who waits for the verdict.
//!
//! What is decided, [`machine::Round`](quorlock_protocol::machine::Round) decides, under the mutex of this
//! driver. [`Round::start`] records every node as asked, and gives each its request together with a [`Responder`].
//! The task that reads a node's response from the socket records it in the round and wakes the tasks that wait
//! for it. A round has no task of its own, and no task polls.
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | response or error of a node | [`Round::answered`]: recorded. If it is news, the waiting tasks are woken; the last response also notifies [`OnSettled`]. |
//! | vote without a request | [`Round::offered`]: the same, for the votes of an offer. |
//! | timeout of a node | The waiting task wakes by its timer, lets the tasks that read sockets run (I-46), and then counts the silent node as unknown. |
//! | [`Round::abandon`] | Requests that a node has not sent yet need not be sent. Responses are recorded as before. |
//!
//! # Cancel safety
//!
//! Dropping a future that waits for a round loses nothing: the round continues, and can be waited
//! for again. The dropped future removes its timer and wakes the other waiting tasks, which register
//! again. A request in flight keeps the round alive, also when all its owners have dropped it.

use std::fmt;
use std::mem;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Waker};
use std::time::Duration;

use smallvec::SmallVec;

use super::members::Nodes;
use crate::node::{
    Collect, NodeError, QueueListing, ReceivedAt, Request, Responder, Response, SharedRequest, Vote,
};
use crate::runtime::{Mutex, clock::Clock};
use crate::telemetry::Op;
use quorlock_protocol::machine::{self, Asked, Heard, KeyStates, Question};
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{FenceVotes, FencingToken, Moment, Quorum, Tally};

pub(crate) use quorlock_protocol::machine::Expect;

#[cfg(test)]
mod tests;
mod waiting;

/// One request to all or some nodes, and their responses.
pub(crate) struct Round {
    nodes: Arc<Nodes>,
    /// Read before the first byte was sent (rule I-1).
    pub(crate) sent: Moment,
    /// Which votes count as granted: a release wants the key gone.
    pub(crate) expect: Expect,
    op: Op,
    /// The upper bound of the nodes' timeouts.
    pub(crate) ttl: Duration,
    inner: Mutex<Inner>,
    abandoned: AtomicBool,
}

struct Inner {
    round: machine::Round,
    /// Notified of the key states once all nodes have responded.
    on_settled: Option<Arc<dyn OnSettled>>,
    waiting: Waiting,
}

/// Notified of the key states once all nodes have responded in a round.
pub(crate) trait OnSettled: fmt::Debug + Send + Sync {
    /// Called when all nodes have responded in `round`.
    fn settled(&self, round: &Round, key_states: KeyStates);
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
        let takes_free = matches!(first, Some(Request::Transfer { .. }));
        // Before the first response, all nodes must be recorded as asked.
        let asked = |index| {
            let is_asked = requests.get(index).is_some_and(Option::is_some);
            if is_asked { Asked::Now } else { Asked::Never }
        };
        let round =
            machine::Round::new(&**nodes, Question { expect, takes_free, ttl }, nodes.clock.now(), asked);
        let round = Round::drive(nodes, expect, Op::of(first), ttl, round);
        for (index, request) in requests.into_iter().enumerate() {
            if let Some(request) = request {
                round.send(index, request);
            }
        }
        round
    }

    /// Asks the node at `first` only. The others follow by [`ask_remaining`](Round::ask_remaining).
    pub(crate) fn start_at(
        nodes: &Arc<Nodes>,
        expect: Expect,
        ttl: Duration,
        first: usize,
        request: &SharedRequest,
    ) -> Arc<Round> {
        let question = Question { expect, takes_free: false, ttl };
        let round = machine::Round::new(&**nodes, question, nodes.clock.now(), |_| Asked::Later);
        let round = Round::drive(nodes, expect, Op::of(Some(request)), ttl, round);
        round.ask(first, request.clone());
        round
    }

    /// Asks all nodes that have not been asked yet.
    pub(crate) fn ask_remaining(self: &Arc<Round>, request: &SharedRequest) {
        for index in 0..self.nodes.members.len() {
            let unasked = self.inner.lock().round.is_unasked(index);
            if unasked {
                self.ask(index, request.clone());
            }
        }
    }

    /// Creates a round that sends nothing: votes arrive [unasked](Round::offered). Its start and
    /// its timeouts are as if all nodes were asked now for a key that lives for `life`.
    pub(crate) fn without_requests(nodes: &Arc<Nodes>, expect: Expect, life: Duration) -> Arc<Round> {
        let round = machine::Round::offered(&**nodes, expect, nodes.clock.now(), life);
        Round::drive(nodes, expect, Op::of(None), life, round)
    }

    fn drive(nodes: &Arc<Nodes>, expect: Expect, op: Op, ttl: Duration, round: machine::Round) -> Arc<Round> {
        debug_assert_eq!(nodes.members.len(), nodes.quorum.nodes(), "the quorum is one of other nodes");
        let sent = round.sent();
        let inner = Mutex::new(Inner { round, on_settled: None, waiting: Waiting::default() });
        let abandoned = AtomicBool::new(false);
        Arc::new(Round { nodes: nodes.clone(), sent, expect, op, ttl, inner, abandoned })
    }

    /// Records an unasked vote of the node at `index`. Only its first vote counts.
    pub(crate) fn offered(&self, index: usize, vote: Response, now: Moment) {
        let mut inner = self.inner.lock();
        if let Some(heard) = inner.round.handle_offer(&*self.nodes, index, vote, now) {
            self.conclude(inner, heard);
        }
    }

    /// Asks a node that has not been asked.
    pub(crate) fn ask(self: &Arc<Round>, index: usize, request: SharedRequest) {
        self.inner.lock().round.ask(&*self.nodes, index, self.nodes.clock.now());
        self.send(index, request);
    }

    /// The node may respond before this returns.
    fn send(self: &Arc<Round>, index: usize, request: SharedRequest) {
        let Some(member) = self.nodes.members.get(index) else { return };
        member.node.ask(request, Responder::new(self.clone(), index));
    }

    /// Records a response of the node at `index`, received at `now`.
    fn answered(&self, index: usize, result: Result<Response, NodeError>, now: Moment) {
        let Some(member) = self.nodes.members.get(index) else { return };
        let mut inner = self.inner.lock();
        let took = now.since(inner.round.asked_at(index).unwrap_or(self.sent));
        member.meter.answered(self.op, &result, took);
        if result.is_ok() {
            member.answered_after(took);
        }
        let heard = inner.round.handle_response(&*self.nodes, index, result, now);
        if heard.is_late {
            member.meter.late();
        }
        self.conclude(inner, heard);
    }

    /// Wakes the waiting tasks after a response.
    fn conclude(&self, mut inner: MutexGuard<'_, Inner>, heard: Heard) {
        let woken = inner.waiting.leave(heard.is_news);
        let on_settled = if inner.round.all_responded() { inner.on_settled.take() } else { None };
        drop(inner);
        // Not under the lock: the listener may drop the round.
        if let Some(listener) = on_settled {
            listener.settled(self, self.key_states());
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Gives the round up: unsent requests need not be sent.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Keeps only the key states from now on. When all nodes have responded, `listener` is notified
    /// and the round drops it: a lease that is held for hours needs no more. Returns the states so
    /// far, and whether all nodes have already responded; the listener is then not notified.
    pub(crate) fn notify_settled(&self, listener: &Arc<impl OnSettled + 'static>) -> (KeyStates, bool) {
        let mut inner = self.inner.lock();
        let (key_states, all_responded) = (inner.round.key_states(), inner.round.all_responded());
        let before = if all_responded { None } else { inner.on_settled.replace(listener.clone()) };
        drop(inner);
        drop(before);
        (key_states, all_responded)
    }

    pub(crate) fn quorum(&self) -> Quorum {
        self.nodes.quorum
    }
}

/// What the round knows so far: see [`machine::Round`].
impl Round {
    /// Whether all asked nodes have responded, none with an error.
    pub(crate) fn all_voted(&self) -> bool {
        self.inner.lock().round.all_voted()
    }

    /// Returns the count at `now`, with nodes past their timeout as unknown.
    pub(crate) fn tally(&self, now: Moment) -> Tally {
        self.inner.lock().round.tally(&*self.nodes, now)
    }

    /// Returns the state of the claim's key on each node, as far as known.
    pub(crate) fn key_states(&self) -> KeyStates {
        self.inner.lock().round.key_states()
    }

    /// Returns from when a grant of this round counts at a quorum (rule I-7).
    pub(crate) fn counts_from(&self) -> Moment {
        self.inner.lock().round.counts_from(&*self.nodes)
    }

    /// Returns the store's own number of this grant.
    pub(crate) fn store_revision(&self) -> Option<NonZeroU64> {
        self.inner.lock().round.store_revision()
    }

    /// Returns the fencing tokens of the nodes whose votes count.
    pub(crate) fn drawn(&self) -> Option<FenceVotes> {
        self.inner.lock().round.drawn(&*self.nodes)
    }

    /// Returns the largest fencing token that a node has reported.
    pub(crate) fn largest_number(&self) -> Option<FencingToken> {
        self.inner.lock().round.largest_number(&*self.nodes)
    }

    /// Returns the queue listings of the nodes.
    pub(crate) fn listings(&self) -> Vec<QueueListing> {
        self.inner.lock().round.listings()
    }

    /// Whether a node has cast this vote.
    pub(crate) fn has_vote(&self, vote: &Vote) -> bool {
        self.count_votes(|_, cast| cast == vote) > 0
    }

    /// Counts the votes so far that `is_counted` selects by the index of the node and its vote.
    pub(crate) fn count_votes(&self, is_counted: impl Fn(usize, &Vote) -> bool) -> usize {
        self.inner.lock().round.count_votes(is_counted)
    }

    /// Returns all responses so far, for people and for what a refused waiter does next.
    pub(crate) fn report(&self) -> VoteReport {
        let now = self.nodes.clock.now();
        self.inner.lock().round.report(&*self.nodes, now)
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

impl Collect for Round {
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

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Round").field("round", &self.inner.lock().round).finish_non_exhaustive()
    }
}
