//! Takes one claim back on every node that it may have reached: a released lease, or a failed attempt.
//!
//! [`Cleanup::start`] sends one request to each node, chosen by what is known of the key there. From
//! then on the clean-up needs no caller. It ends when every node has confirmed, or when the keys on
//! the nodes that do not answer have expired.
//!
//! | state of the key on a node | request | why |
//! |---|---|---|
//! | `Without` | none | nothing of the claim was written to the node, or it refused |
//! | `Holds`, `InFlight` | a release, or an offer to the next waiter | it is queued behind the request that it takes back |
//! | `Unknown` | a cancel | the connection ended with a request unanswered: the tombstone stops that if it arrives late |
//!
//! A failed attempt of a waiter in a queue ([`CleanupOf::Attempt`]) sends a cancel in place of a
//! release, because a release notifies the next waiter, and it may still be this waiter's turn (W-8).
//!
//! ```text
//!  start ─► round ─► confirmed (a quorum) ─► leave ─► all nodes have confirmed ────────────► end
//!             │                                │
//!             │                                └─ otherwise the tail: a waker and a timer, no task
//!             │                                       │ last response, or the nodes' timeout
//!             └─ finish (in a task) ◄─────────────────┘ with a node that has not confirmed
//!                   │
//!                   └─ for each such node: cancel, pause, cancel … ─► confirmed, or expired ─► end
//! ```
//!
//! # Order of the nodes
//!
//! If other clients want the lock, the preferred node gets its release last. It notifies the next
//! client, which then finds the other nodes free.
//!
//! # Invariants
//!
//! - Before the first request is sent, offers to the claim's token are refused and given back (O-6).
//! - The lease has ended before its clean-up starts (I-15, O-4). The caller ensures it.
//! - A release follows the request that it takes back over the same connection. Where that cannot be
//!   ensured, a tombstone takes its place, and outlives every request that may still arrive (I-5).
//! - A node that fails is asked again by a cancel, never by a release: the order of the requests was
//!   lost with the connection.
//! - `until` is when the last key of the claim has expired, by the slowest clock that the drift
//!   allowance covers. No retry is scheduled for a later time.
//! - The lock is offered only after a release, to a waiter whose terms are recent, and not in one
//!   release of eight (O-9).
//!
//! # Cancel safety
//!
//! The requests are given to the nodes before `start` returns. If a `Cleanup` is dropped, they are
//! still carried out, but no node is asked again. So each owner ends with [`Cleanup::leave`], or with
//! [`Cleanup::finish`] in a task; closing the coordinator waits for both (I-20).

use std::cell::LazyCell;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::future::join_all;
use tokio::runtime::Handle;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::debug;

use super::context::EngineContext;
use super::offer_inbox::Next;
use crate::node::{Capability, Request, SharedRequest, Vote, ask};
use crate::quorum::round::{Expect, Round};
use crate::runtime::{Mutex, timer::Timer};
use quorlock_protocol::KeyState;
use quorlock_protocol::machine::Deployment as _;
use quorlock_protocol::machine::KeyStates;
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{Backoff, Claim, FencingToken, Mode, Moment, Verdict, releases_openly};

/// The clean-up after one claim.
pub(crate) struct Cleanup {
    engine: Arc<EngineContext>,
    claim: Arc<Claim>,
    ttl: Duration,
    round: Arc<Round>,
    /// Where the key was before.
    before: KeyStates,
    /// When the last key has expired and nothing is left to clean up.
    until: Moment,
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

/// The longest pause before a node is asked again.
const HIGHEST_PAUSE: Duration = Duration::from_secs(1);

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
        let release = LazyCell::new(|| {
            SharedRequest::from(match of {
                CleanupOf::Lease | CleanupOf::Release(_) => Request::Release { claim: claim.clone() },
                // No request of the attempt can arrive later over the same connection, so none needs a
                // tombstone. Where the connection has ended meanwhile, the node does not send this.
                CleanupOf::Attempt => Request::Cancel { claim: claim.clone(), linger: Duration::ZERO },
            })
        });
        let cancel = LazyCell::new(|| SharedRequest::from(cancel(engine, claim)));
        let nodes = engine.nodes.quorum.nodes();
        let at_all =
            || (0..nodes).all(|node| matches!(key_states.get(node), KeyState::Holds | KeyState::InFlight));
        let offer = if let CleanupOf::Release(number) = of { Offer::of(engine, claim, number) } else { None };
        let round = if offer.is_none()
            && of != CleanupOf::Attempt
            && engine.queues.is_contended(claim.key(), || engine.now())
            && at_all()
        {
            // The preferred node comes last: the next client is notified by it, and then finds the
            // others free.
            let last = claim.preferred_node(nodes);
            let first = (last + 1) % nodes;
            let round = Round::start_at(&engine.nodes, Expect::Released, ttl, first, &release);
            (2..=nodes).for_each(|step| round.ask((last + step) % nodes, release.clone()));
            round
        } else {
            Round::start(&engine.nodes, Expect::Released, ttl, |index| match key_states.get(index) {
                KeyState::Without => None,
                KeyState::Holds | KeyState::InFlight => {
                    let offer = offer.as_ref().and_then(|offer| offer.request(engine, index));
                    Some(offer.unwrap_or_else(|| release.clone()))
                }
                KeyState::Unknown => Some(cancel.clone()),
            })
        };
        let until = round.sent + engine.drift.stretch(ttl);
        Some(Cleanup { engine: engine.clone(), claim: claim.clone(), ttl, round, before: key_states, until })
    }

    /// Waits until a quorum has released the key, or the nodes have timed out, and returns the
    /// verdict.
    pub(crate) async fn confirmed(&self) -> Verdict {
        self.round.verdict().await
    }

    /// The votes so far.
    pub(crate) fn report(&self) -> VoteReport {
        self.round.report()
    }

    /// Whether so many nodes had lost the key before its release that another client may have held the lock
    /// (rule I-11). A key that is gone after `valid_until` may have expired, and says nothing.
    pub(crate) async fn came_too_late(&self, valid_until: Moment) -> bool {
        let lost = || {
            let counts = |node, vote: &Vote| self.before.get(node) == KeyState::Holds && *vote == Vote::Free;
            self.round.count_votes(counts)
        };
        if lost() == 0 {
            return false;
        }
        // Nearly never. A single node without the key is no loss: the others decide.
        self.round.settled().await;
        let quorum = self.engine.nodes.quorum;
        let never = (0..quorum.nodes()).filter(|node| self.before.get(*node) == KeyState::Without).count();
        lost() + never >= quorum.blocking() && self.engine.now() < valid_until
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
                && self.round.key_states().get(preferred) == KeyState::InFlight
                && self.engine.queues.is_contended(self.claim.key(), || self.engine.now()))
    }

    /// Records contention that a node has reported, and returns whether several clients were
    /// notified together.
    fn note_contention(&self) -> bool {
        let wanted = self.round.has_vote(&Vote::ReleasedContended);
        if (wanted || self.round.has_vote(&Vote::Notified))
            && let Some(key) = self.claim.keys().next()
        {
            self.engine.queues.mark_contended(key, self.engine.now());
        }
        wanted
    }

    /// Whether all nodes have released the key.
    pub(crate) fn is_done(&self) -> bool {
        self.round.all_voted()
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

    /// Waits until all nodes have released the key, and retries those that failed.
    pub(crate) async fn finish(self) {
        self.round.settled().await;
        self.note_contention();
        if self.is_done() {
            return;
        }
        join_all(self.engine.nodes.iter().enumerate().map(|(index, _)| self.retry(index))).await;
    }

    async fn retry(&self, index: usize) {
        let mut backoff = Backoff::new(self.ttl / 100, HIGHEST_PAUSE);
        // The node's connection may be driven by a task that is not polled.
        self.round.wake_silent();
        let first = async { self.round.answer_of(index).await.unwrap_or(Ok(Vote::Free)) };
        let Some(mut answer) = self.in_time(first).await else { return };
        while let Err(error) = answer {
            if error.is_permanent() {
                debug!(key = self.claim.key(), node = %self.engine.nodes.name(index), error = format_args!("{error:#}"), "not released");
                return;
            }
            let pause = backoff.next(self.engine.entropy.next_u64());
            let again = self.engine.now() + pause;
            if again >= self.until {
                // An unreachable node fails immediately, each time.
                debug!(key = self.claim.key(), node = %self.engine.nodes.name(index), error = format_args!("{error:#}"), "not released; the key will expire");
                return;
            }
            self.engine.wait_until(again).await;
            let Some(node) = self.engine.nodes.iter().nth(index) else { return };
            drop(node.ready());
            let again = async { ask(&**node, cancel(&self.engine, &self.claim)).await.map(|a| a.vote) };
            match self.in_time(again).await {
                Some(next) => answer = next,
                None => return,
            }
        }
    }

    /// Returns the outcome, or `None` once the key has expired everywhere.
    async fn in_time<T>(&self, outcome: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            outcome = outcome => Some(outcome),
            () = self.engine.wait_until(self.until) => {
                debug!(key = self.claim.key(), "release unanswered; the key has expired");
                None
            }
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
        let (engine, round, token) =
            (cleanup.engine.clone(), cleanup.round.clone(), cleanup.engine.tasks.tracker.token());
        let left = Left { cleanup, timer: Timer::default(), runtime, token };
        let remainder = Arc::new(CleanupTail { left: Mutex::new(Some(left)) });
        let waker = Waker::from(remainder.clone());
        let context = Context::from_waker(&waker);
        let Some(limit) = round.listen(&context) else { return waker.wake() };
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

/// The offer of a released lock to the first waiter in its queue.
struct Offer {
    /// The node that keeps the queue, and its request.
    home: (usize, SharedRequest),
    /// The request for the other nodes.
    request: SharedRequest,
}

impl Offer {
    /// Returns `None` if the next waiter is not known, or the lock must be free for a moment (rule
    /// O-9).
    fn of(engine: &EngineContext, claim: &Arc<Claim>, number: Option<FencingToken>) -> Option<Offer> {
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
        Some(Offer { home: (home, offer(true)), request: offer(false) })
    }

    /// The request for the node at `index`, if the node supports offers.
    fn request(&self, engine: &EngineContext, index: usize) -> Option<SharedRequest> {
        let (home, at_home) = &self.home;
        let request = if index == *home { at_home } else { &self.request };
        engine.nodes.can(index, Capability::Offer).then(|| request.clone())
    }
}

/// The tombstone must outlive every request of the claim that may still arrive.
pub(super) fn cancel(engine: &EngineContext, claim: &Arc<Claim>) -> Request {
    Request::Cancel { claim: claim.clone(), linger: engine.max_ttl }
}
