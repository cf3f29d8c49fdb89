//! Drives what takes one claim back on every node that it may have reached: a released lease, or a failed attempt.
//!
//! What is sent to which node, and when a node that fails is asked again, [`Undo`] decides. [`Cleanup::start`]
//! sends the first requests; from then on the clean-up needs no caller.
//!
//! ```text
//!  start ─► confirmed (a quorum) ─► leave ─► all nodes have confirmed ────────────► end
//!                                     │
//!                                     └─ otherwise the tail: a waker and a timer, no task
//!                                          │ last response, or the nodes' timeout
//!                                          ▼ with a node that has not confirmed
//!                                     finish, in a task: sends what is due, until it is over ─► end
//! ```
//!
//! # Invariants
//!
//! - Before the first request is sent, offers to the claim's token are refused and given back (O-6).
//! - The lease has ended before its clean-up starts (I-15, O-4). The caller ensures it.
//! - The lock is offered only after a release, to a waiter whose terms are recent, and not in one
//!   release of eight (O-9).
//!
//! # Cancel safety
//!
//! The requests are given to the nodes before `start` returns. If a `Cleanup` is dropped, they are
//! still carried out, but no node is asked again. So each owner ends with [`Cleanup::leave`], or with
//! [`Cleanup::finish`] in a task; closing the coordinator waits for both (I-20).

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::debug;

use super::context::EngineContext;
use crate::node::{Capability, Request, SharedRequest, Vote};
use crate::quorum::round::Driven;
use crate::runtime::{Mutex, timer::Timer};
use quorlock_protocol::KeyState;
use quorlock_protocol::machine::{
    Deployment as _, KeyStates, Machine as _, Next, NodeSet, Of, Offer, Terms, Undo,
};
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{Claim, FencingToken, Mode, Moment, Verdict, releases_openly};

/// The clean-up after one claim.
pub(crate) struct Cleanup {
    engine: Arc<EngineContext>,
    claim: Arc<Claim>,
    undo: Arc<Driven<Undo>>,
}

/// What is cleaned up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CleanupOf {
    /// A lease released by its holder, with this fencing token. It is offered to the next waiter,
    /// if one is known.
    Release(Option<FencingToken>),
    /// A lease, or what may have become one.
    Lease,
    /// An attempt at a lock that has a queue. It may still be this waiter's turn, so no other
    /// waiter is notified.
    Attempt,
}

impl Cleanup {
    /// Sends each node the request for the state of its key, immediately. Returns `None` if no node
    /// can hold the key.
    pub(crate) fn start(
        engine: &Arc<EngineContext>,
        claim: &Arc<Claim>,
        ttl: Duration,
        key_states: KeyStates,
        of: CleanupOf,
    ) -> Option<Cleanup> {
        // Before anything is sent: offers for this claim that arrive from now on are given back,
        // too (rule O-6).
        if let Some(offers) = &engine.offers {
            offers.give_up(claim.token());
        }
        if key_states.all_without() {
            return None;
        }
        let offer =
            if let CleanupOf::Release(number) = of { offer_to_next(engine, claim, number) } else { None };
        let terms = Terms {
            of: if of == CleanupOf::Attempt { Of::Attempt } else { Of::Lease },
            ttl,
            linger: engine.max_ttl,
            drift: engine.drift,
            is_wanted: offer.is_none()
                && of != CleanupOf::Attempt
                && engine.queues.is_contended(claim.key(), || engine.now()),
            offer,
        };
        let undo = Undo::start(&*engine.nodes, engine.now(), claim, key_states, terms)?;
        let undo = Driven::undo(&engine.nodes, undo);
        Some(Cleanup { engine: engine.clone(), claim: claim.clone(), undo })
    }

    /// Waits until a quorum has released the key, or the nodes have timed out, and returns the
    /// verdict.
    pub(crate) async fn confirmed(&self) -> Verdict {
        self.undo.verdict().await
    }

    /// The votes so far.
    pub(crate) fn report(&self) -> VoteReport {
        self.undo.report()
    }

    /// Whether the lock may have been [lost](quorlock_protocol::machine::was_lost) before its release. `renewal` are
    /// the nodes that say so in a renewal that was in flight: each answers it before the release.
    pub(crate) async fn came_too_late(&self, valid_until: Moment, renewal: impl Fn() -> NodeSet) -> bool {
        let lost = renewal();
        if !self.undo.with(|undo, _| undo.has_lost(lost)) {
            return false;
        }
        // Nearly never.
        self.undo.settled().await;
        let (lost, now) = (renewal(), self.engine.now());
        self.undo.with(|undo, nodes| undo.came_too_late(nodes, lost, (valid_until, now)))
    }

    /// Whether another client wants the released lock and was notified together with others, as far
    /// as the nodes have answered. Clients outside a queue register at the preferred node; while
    /// that has not answered, earlier contention counts.
    pub(crate) fn is_wanted(&self) -> bool {
        let wanted = self.note_contention();
        let preferred = self.claim.preferred_node(self.engine.nodes.quorum.nodes());
        let in_a_queue = self.claim.mode() == Mode::Exclusive
            && !self.claim.is_several()
            && self.engine.nodes.can(preferred, Capability::Queue);
        wanted
            || (!in_a_queue
                && self.undo.key_states().get(preferred) == KeyState::InFlight
                && self.engine.queues.is_contended(self.claim.key(), || self.engine.now()))
    }

    /// Records contention that a node has reported, and returns whether several clients were
    /// notified together.
    fn note_contention(&self) -> bool {
        let wanted = self.undo.has_vote(&Vote::ReleasedContended);
        if (wanted || self.undo.has_vote(&Vote::Notified))
            && let Some(key) = self.claim.keys().next()
        {
            self.engine.queues.mark_contended(key, self.engine.now());
        }
        wanted
    }

    /// Whether all nodes have released the key.
    fn is_done(&self) -> bool {
        self.undo.with(|undo, _| undo.is_settled())
    }

    /// Continues without the caller until all nodes have released the key. Spawns a task on
    /// `runtime` only where a node fails or does not answer in time.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub(crate) fn leave(self, runtime: Handle) {
        if !self.is_done() {
            CleanupTail::begin(self, runtime);
        }
    }

    /// Waits until all nodes have released the key, or it has expired, and asks those that failed again.
    pub(crate) async fn finish(self) {
        while let Some(due) = self.undo.with(|undo, _| undo.poll_timeout(self.engine.now())) {
            self.undo.until(due, |undo, now| undo.poll_timeout(now) != Some(due) || now >= due).await;
            self.undo.ask_again(self.engine.now());
        }
        self.note_contention();
        let key = self.claim.key();
        while let Some(given_up) = self.undo.with(|undo, _| undo.poll_event()) {
            let node = self.engine.nodes.name(given_up.node);
            debug!(key, %node, error = format_args!("{:#}", given_up.error), "not released; the key will expire");
        }
        if !self.is_done() {
            debug!(key, "release unanswered; the key has expired");
        }
    }
}

/// The rest of a clean-up without a caller: nearly always a few answers in flight.
struct CleanupTail {
    left: Mutex<Option<Left>>,
}

struct Left {
    cleanup: Cleanup,
    /// Fires at the nodes' timeout.
    timer: Timer,
    runtime: Handle,
    /// Closing the coordinator waits for this as for a task.
    token: TaskTrackerToken,
}

impl CleanupTail {
    fn begin(cleanup: Cleanup, runtime: Handle) {
        let (engine, undo, token) =
            (cleanup.engine.clone(), cleanup.undo.clone(), cleanup.engine.tasks.tracker.token());
        let left = Left { cleanup, timer: Timer::default(), runtime, token };
        let remainder = Arc::new(CleanupTail { left: Mutex::new(Some(left)) });
        let waker = Waker::from(remainder.clone());
        let context = Context::from_waker(&waker);
        let Some(limit) = undo.listen(&context) else { return waker.wake() };
        let mut timer = Timer::default();
        engine.nodes.timers.set(&mut timer, limit, &context);
        if let Some(left) = &mut *remainder.left.lock() {
            left.timer = timer;
            return;
        }
        // The last answer had already arrived.
        engine.nodes.timers.stop(&mut timer);
    }
}

/// Called when the last answer arrives or the nodes' timeout expires.
impl Wake for CleanupTail {
    fn wake(self: Arc<Self>) {
        let Some(Left { cleanup, mut timer, runtime, token }) = self.left.lock().take() else { return };
        let engine = cleanup.engine.clone();
        engine.nodes.timers.stop(&mut timer);
        cleanup.note_contention();
        if !cleanup.is_done() {
            engine.tasks.spawn(cleanup.finish(), &runtime);
        }
        // Only now, when the task has a token of its own.
        drop(token);
    }
}

/// The offer of a released lock to the first waiter in its queue. Returns `None` if that is not known, or the lock must
/// be free for a moment (rule O-9).
fn offer_to_next(engine: &EngineContext, claim: &Arc<Claim>, number: Option<FencingToken>) -> Option<Offer> {
    let (offers, key) = (engine.offers.as_ref()?, claim.key());
    debug_assert!(!claim.is_several(), "one of several locks is offered");
    let Next { waiter, home, others_seen, .. } = offers.take_next(key, claim.token(), || engine.now())?;
    if releases_openly(engine.entropy.next_u64(), others_seen || engine.saw_outsider(key)) {
        return None;
    }
    let fence_hint = waiter.terms.fenced.then(|| engine.fence_hint_of(&waiter.terms.token, number));
    let offer = |queued| {
        let (claim, next) = (claim.clone(), waiter.clone());
        SharedRequest::from(Request::Offer { claim, next, queued, fence_hint })
    };
    let able = (0..engine.nodes.quorum.nodes()).filter(|node| engine.nodes.can(*node, Capability::Offer));
    Some(Offer { home, at_home: offer(true), elsewhere: offer(false), able: able.collect() })
}

/// The tombstone must outlive every request of the claim that may still arrive.
pub(super) fn cancel(engine: &EngineContext, claim: &Arc<Claim>) -> Request {
    Request::Cancel { claim: claim.clone(), linger: engine.max_ttl }
}
