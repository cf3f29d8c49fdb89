//! Sends one request to all nodes and decides the verdict as soon as it is certain.
//!
//! A round has one [`Slot`] for each node. [`Round::start`] records every node as asked, and gives
//! each its request together with a [`Responder`]. The task that reads a node's response from the
//! socket records it in the slot, under the mutex of the round, and wakes the tasks that wait for
//! the round. A round has no task of its own, and no task polls.
//!
//! ```text
//!             ask                   response or error
//!  Unasked ─────────► Pending ───────────────────────────► Answered
//!                        │
//!  Skipped               │ the clock reaches the slot's limit
//!  (never asked)         ▼
//!                     still Pending, but counted as unknown; a later response counts after all
//! ```
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | response or error of a node | [`Round::answered`]: the slot becomes `Answered`. The votes are counted if that can decide. The waiting tasks are woken if the verdict is certain, if timeouts were shortened, if a node has timed out before, and by the last response, which also notifies [`OnSettled`]. |
//! | vote without a request | [`Round::offered`]: the same, for the votes of an offer. A second vote of the node is ignored. |
//! | timeout of a node | Changes no slot. The waiting task wakes by its timer, lets the tasks that read sockets run, and then counts the silent node as unknown. |
//! | enough votes to exclude *unavailable* | The timeouts of the silent nodes are shortened. |
//! | [`Round::abandon`] | Requests that a node has not sent yet need not be sent. Responses are recorded as before. |
//!
//! A round continues after its verdict. Late nodes still carry out the request, so a release that
//! follows must know the state of the key on each of them: see [`Round::key_states`].
//!
//! # Invariants
//!
//! - `sent` is read before the first byte is sent, and every deadline counts from it or from an
//!   earlier moment that the votes name (I-1, I-7).
//! - A slot is answered once. Of several responses from one server process one counts (I-2, I-26).
//! - A node without a usable response is unknown: it has neither granted nor refused. A node that
//!   need not be asked counts as granted: it has what the round wants.
//! - The age of a server process counts as of `sent`, not as of its response (I-12).
//! - A verdict that is stored never changes. It is stored only while no node has timed out:
//!   otherwise a late response may still change it, and the verdict is computed again.
//! - The timeouts of silent nodes are only shortened, and only once the verdict cannot be
//!   *unavailable* (I-47). A timeout counts only after the tasks that read sockets have run (I-46).
//! - A node that was asked is `InFlight` until it responds. Only a node that was not asked, refused,
//!   or failed before it sent anything is `Without` the key (I-5).
//!
//! # Cancel safety
//!
//! Dropping a future that waits for a round loses nothing: the round continues, and can be waited
//! for again. The dropped future removes its timer and wakes the other waiting tasks, which register
//! again. A request in flight keeps the round alive, also when all its owners have dropped it.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use super::members::{LEAST_PATIENCE, NodeHandle, Nodes};
use crate::node::{Collect, NodeError, ReceivedAt, Request, Responder, Response, SharedRequest};
use crate::runtime::{Mutex, clock::Clock};
use crate::telemetry::Op;
use quorlock_protocol::machine::KeyStates;
use quorlock_protocol::{Moment, Quorum, Tally, Verdict};
use responses::{Responses, Slot, State};

mod responses;
#[cfg(test)]
mod tests;
mod votes;
mod waiting;

/// One request to all or some nodes, and their responses.
///
/// Votes are counted only when the result can matter: not before enough have arrived, and not after
/// the verdict is stored. Once a node has timed out, every response is counted.
pub(crate) struct Round {
    nodes: Arc<Nodes>,
    /// Read before the first byte was sent (rule I-1).
    pub(crate) sent: Moment,
    /// Which votes count as granted: a release wants the key gone.
    pub(crate) expect: Expect,
    /// Whether a node that had lost the key counts, as for the next holder of a lock that is passed on.
    takes_free: bool,
    op: Op,
    /// The upper bound of the nodes' timeouts.
    pub(crate) ttl: Duration,
    slots: Mutex<Responses>,
    abandoned: AtomicBool,
}

/// Notified of the key states once all nodes have responded in a round.
pub(crate) trait OnSettled: fmt::Debug + Send + Sync {
    /// Called when all nodes have responded in `round`.
    fn settled(&self, round: &Round, key_states: KeyStates);
}

/// The number of nodes for which a round needs no second allocation.
const USUAL: usize = 5;

/// Like [`LEAST_PATIENCE`], for an inspection, which is not urgent.
const INSPECT_PATIENCE: Duration = Duration::from_millis(250);

/// The vote that a request expects from a node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Expect {
    /// The key holds the token.
    Hold,
    /// The same, with a number for the fencing token.
    Number,
    /// The key does not hold the token.
    Released,
    /// Any answer.
    AnyAnswer,
}

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
        let (op, takes_free) = (Op::of(first), matches!(first, Some(Request::Transfer { .. })));
        // Before the first response, all nodes must be recorded as asked.
        let is_asked = |index| requests.get(index).is_some_and(Option::is_some);
        let round = Round::prepare(nodes, (expect, takes_free), op, ttl, |index, sent| {
            if is_asked(index) { State::Pending { asked: sent } } else { State::Skipped }
        });
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
        let round = Round::prepare(nodes, (expect, false), Op::of(Some(request)), ttl, |_, _| State::Unasked);
        round.ask(first, request.clone());
        round
    }

    /// Asks all nodes that have not been asked yet.
    pub(crate) fn ask_remaining(self: &Arc<Round>, request: &SharedRequest) {
        for index in 0..self.nodes.members.len() {
            let unasked =
                matches!(self.slots.lock().nodes.get(index), Some(Slot { state: State::Unasked, .. }));
            if unasked {
                self.ask(index, request.clone());
            }
        }
    }

    /// Creates a round that sends nothing: votes arrive [unasked](Round::offered). Its start and
    /// its timeouts are as if all nodes were asked now for a key that lives for `life`.
    pub(crate) fn without_requests(nodes: &Arc<Nodes>, expect: Expect, life: Duration) -> Arc<Round> {
        let round = Round::prepare(nodes, (expect, false), Op::of(None), life, |_, sent| State::Pending {
            asked: sent,
        });
        round.slots.lock().wait_until(round.sent + life);
        round
    }

    /// Records an unasked vote of the node at `index`. Only its first vote counts.
    pub(crate) fn offered(&self, index: usize, vote: Response, now: Moment) {
        let mut slots = self.slots.lock();
        if slots.asked_at(index).is_some() {
            slots.answered(index, Ok(vote), now.since(self.sent));
            self.conclude(slots, now);
        }
    }

    fn prepare(
        nodes: &Arc<Nodes>,
        (expect, takes_free): (Expect, bool),
        op: Op,
        ttl: Duration,
        state: impl Fn(usize, Moment) -> State,
    ) -> Arc<Round> {
        debug_assert_eq!(nodes.members.len(), nodes.quorum.nodes(), "the quorum is one of other nodes");
        let sent = nodes.clock.now();
        let slot = |(index, member): (usize, &NodeHandle)| {
            let limit = sent + nodes.limit(member, ttl);
            Slot { limit, state: state(index, sent) }
        };
        let slots = nodes.members.iter().enumerate().map(slot);
        let slots = Mutex::new(Responses::new(slots.collect()));
        let abandoned = AtomicBool::new(false);
        Arc::new(Round { sent, expect, takes_free, op, ttl, slots, nodes: nodes.clone(), abandoned })
    }

    /// Asks a node that has not been asked.
    pub(crate) fn ask(self: &Arc<Round>, index: usize, request: SharedRequest) {
        let Some(member) = self.nodes.members.get(index) else { return };
        let now = self.nodes.clock.now();
        self.slots.lock().asked(index, now, now + self.nodes.limit(member, self.ttl));
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
        let mut slots = self.slots.lock();
        let took = now.since(slots.asked_at(index).unwrap_or(self.sent));
        member.meter.answered(self.op, &result, took);
        if result.is_ok() {
            member.answered_after(took);
        }
        if slots.answered(index, result, took).is_some_and(|limit| now >= limit) {
            member.meter.late();
        }
        self.conclude(slots, now);
    }

    /// Wakes the waiting tasks after a response.
    fn conclude(&self, mut slots: MutexGuard<'_, Responses>, now: Moment) {
        let is_news = slots.all_responded()
            || !slots.in_time(now)
            || (slots.verdict.is_none() && self.decide(&mut slots, now).is_some());
        let is_news = self.shorten_limits(&mut slots, now) || is_news;
        let woken = slots.waiting.leave(is_news);
        let on_settled = slots.settled();
        drop(slots);
        self.notify(on_settled);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Shortens the timeouts of the remaining nodes, once enough have responded that the verdict
    /// cannot be *unavailable* (rule I-47). Returns whether it did so now.
    fn shorten_limits(&self, slots: &mut Responses, now: Moment) -> bool {
        let inspects = self.expect == Expect::AnyAnswer;
        let enough = slots.has_responses(self.nodes.quorum.needed());
        if !enough
            || slots.limits_shortened
            || slots.all_responded()
            || (slots.verdict.is_some() && !inspects)
        {
            return false;
        }
        let tally = self.count(slots, now);
        if tally.granted() + tally.denied() < self.nodes.quorum.needed() {
            return false;
        }
        let least = if inspects { INSPECT_PATIENCE } else { LEAST_PATIENCE };
        slots.shorten_limits(|index| match self.nodes.members.get(index) {
            Some(member) => now + self.nodes.overdue_after(member, least, self.ttl),
            None => now,
        });
        true
    }

    /// Gives the round up: unsent requests need not be sent.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Whether all asked nodes have responded, none with an error.
    pub(crate) fn all_voted(&self) -> bool {
        let voted =
            |slot: &Slot| matches!(slot.state, State::Skipped | State::Answered { result: Ok(_), .. });
        self.slots.lock().nodes.iter().all(voted)
    }

    /// Returns the count at `now`, with nodes past their timeout as unknown.
    pub(crate) fn tally(&self, now: Moment) -> Tally {
        self.count(&self.slots.lock(), now)
    }

    fn count(&self, slots: &Responses, now: Moment) -> Tally {
        let mut tally = Tally::new(self.nodes.quorum);
        for index in 0..slots.nodes.len() {
            if let Some(outcome) = self.outcome_of(slots, index, now) {
                outcome.count(&mut tally);
            }
        }
        tally
    }

    /// Returns the verdict, if it is certain at `now`.
    fn decide(&self, slots: &mut Responses, now: Moment) -> Option<Verdict> {
        if slots.verdict.is_some() || slots.too_few(self.nodes.quorum, now) {
            return slots.verdict;
        }
        let verdict = self.count(slots, now).verdict();
        debug_assert!(
            verdict.is_some() || !slots.all_responded(),
            "all nodes have responded without a verdict"
        );
        // A node that timed out may have decided by its silence, and still respond.
        if slots.in_time(now) {
            slots.verdict = verdict;
        }
        verdict
    }

    /// Returns the state of the claim's key on each node, as far as known.
    pub(crate) fn key_states(&self) -> KeyStates {
        self.slots.lock().key_states(self.expect)
    }

    /// Keeps only the key states from now on. When all nodes have responded, `listener` is notified
    /// and the round drops it: a lease that is held for hours needs no more. Returns the states so
    /// far, and whether all nodes have already responded; the listener is then not notified.
    pub(crate) fn notify_settled(&self, listener: &Arc<impl OnSettled + 'static>) -> (KeyStates, bool) {
        let mut slots = self.slots.lock();
        let (key_states, all_responded) = (slots.key_states(self.expect), slots.all_responded());
        let before = if all_responded { None } else { slots.on_settled.replace(listener.clone()) };
        drop(slots);
        drop(before);
        (key_states, all_responded)
    }

    pub(crate) fn quorum(&self) -> Quorum {
        self.nodes.quorum
    }

    /// Not under the lock: the listener may drop the round.
    fn notify(&self, on_settled: Option<Arc<dyn OnSettled>>) {
        if let Some(listener) = on_settled {
            listener.settled(self, self.key_states());
        }
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
        f.debug_struct("Round")
            .field("expect", &self.expect)
            .field("slots", &*self.slots.lock())
            .finish_non_exhaustive()
    }
}
