//! Contends for a lock with other processes, on behalf of all waiters of this process.
//!
//! A [`Contender`] serves one waiter of this process after the other. Between them it is kept by the
//! keeper of the lease, with what it has learnt about the contention: which node to ask first, the
//! largest fencing token, the last holder. [`Contender::win`] makes attempts, each with a new token,
//! until one of them has won or the waiter gives up.
//!
//! ```text
//!           ┌───────────────────────── refused ──────────────────────┐
//!           ▼                                                        │
//!  win ──► do others want the lock?                                  │
//!           ├─ no ──────────────────────────────► ask the nodes ──► verdict ──► AcquireError
//!           ├─ wait in the queue of a node ─ turn ────►┤           ▲   │
//!           │     └─ offer ─► collect the votes ───────┼───────────┘   │ won, in time
//!           ├─ keep a place in each queue ─ turn ─────►┤               ▼
//!           └─ wait for hints or a time ──────────────►┘            Attempt
//! ```
//!
//! # After each verdict
//!
//! - *Won* and in time: the attempt is returned, and becomes a lease.
//! - Everything else: the attempt is dropped, which cleans it up on every node that it may have
//!   reached. Then the contender learns from the votes (`learn`) and returns an error if the waiter
//!   does not wait or waiting is pointless (`last_word`). Otherwise it decides how long to pause and
//!   for which nodes (`pause`), announces a writer that waits for readers (`intent`), reports the
//!   holder to the waiters of this process, and waits.
//!
//! # How it waits
//!
//! | waiter | waits | until |
//! |---|---|---|
//! | of one exclusive lock | in the queue of one node (`turn`, `node_queue`) | the node notifies it of its turn, or a quorum offers it the lock |
//! | reader, or of several locks | with a place in the queue of each lock (`places`) | it is first, enough nodes hint at a change, or the pause ends |
//! | where no node has a queue | for hints of the nodes (`pause`) | enough nodes hint at a change, enough keys expire, or a heartbeat is due |
//! | that calls once | not at all | a split vote is repeated a few times: then one of the contenders has the lock |
//!
//! Hints and turns are never relied on. Every wait also has a timeout, and a turn grants nothing:
//! the waiter asks all nodes for their votes.
//!
//! # Invariants
//!
//! - A lock is acquired if a quorum grants it and the verdict is in time (I-3). Each attempt has a
//!   token of its own (I-4). Before the next one, or a pause, the last one is taken back (M-5).
//! - A place in a queue is no vote (W-1). A waiter with a place asks for it again, also from a node
//!   that was silent (Q-2).
//! - A turn ends: after it the waiter queues again, and one that gives up leaves the queue, which
//!   notifies the next (W-5).
//! - A reader, or a caller of several locks, asks out of its turn only to join other readers, or
//!   after two seconds without a change (W-9).
//! - Notifications make no waiter ask faster than it can use the answers (W-10).
//! - An offer is accepted before it expires, with enough time left to renew it (O-5).
//! - A writer is announced only while readers hold the lock (S-5).
//!
//! # Cancel safety
//!
//! If the future of `win` is dropped at any await, the attempt cleans up after itself (I-20), and
//! `ContendGuard` withdraws the announcement, gives back offers and leaves the queues. The contender
//! can then serve the next waiter.

use std::sync::Arc;
use std::time::Duration;

use tracing::trace;

use super::attempt::Attempt;
use super::context::EngineContext;
use super::node_queue::{Accepts, NodeQueue};
use super::options::{AcquireRequest, News};
use super::subscription::Subscription;
use super::wait::{Wait, Waiting, notify_listener};
use crate::error::AcquireError;
use crate::node::Grants;
use intent::Intent;
use places::OpenPlace;
use quorlock_protocol::machine::wait::{ASKED_AGAIN, AskOrder, Learnt};
use quorlock_protocol::votes::{Holder, VoteReport};
use quorlock_protocol::{
    AskPace, Backoff, COOLDOWN, FencingToken, Keys, Mode, Moment, Verdict, WaiterId, fraction,
};
use turn::Chance;

mod intent;
mod learn;
mod pause;
mod places;
mod turn;

/// One process's attempts to acquire one key, for one waiter after the other.
pub(crate) struct Contender {
    engine: Arc<EngineContext>,
    keys: Keys,
    order: AskOrder,
    learnt: Learnt,
    /// The largest fencing token seen; zero if it is only known that others want the lock.
    seen: Option<FencingToken>,
    /// The number of rounds for the current waiter.
    pub(crate) rounds: usize,
    /// The pauses after split votes, and where nodes do not send hints.
    pauses: Backoff,
    mode: Mode,
    /// Keeps new readers out while this writer waits.
    intent: Option<Intent>,
    /// Our place in the queue of a node.
    queue: NodeQueue,
    /// Places that accept no offers, of a reader or of a caller of several locks.
    places: Vec<OpenPlace>,
    /// The last known holder.
    holder: Option<Holder>,
    /// How often the current waiter asks.
    pace: AskPace,
}

/// The upper bound of the first pause after a split vote: a few round trips in one datacenter, to
/// desynchronize the contenders.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause. No hint announces the end of a split.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How often a `Wait::Never` call retries after a vote in which no client had a quorum. The retries
/// take 150 ms at most in one datacenter, and one of the contenders then has the lock.
const SPLITS: usize = 5;

impl Contender {
    pub(crate) fn new(engine: &Arc<EngineContext>, keys: &Keys, mode: Mode) -> Contender {
        let contended = engine.queues.is_contended(keys.queue_key(), || engine.now());
        Contender {
            engine: engine.clone(),
            keys: keys.clone(),
            order: AskOrder::AllAtOnce,
            learnt: Learnt::default(),
            seen: contended.then_some(FencingToken::ZERO),
            rounds: 0,
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            mode,
            intent: None,
            queue: NodeQueue::new(Accepts::Offers, &*engine.entropy),
            places: Vec::new(),
            holder: None,
            pace: AskPace::default(),
        }
    }

    /// Whether other clients were seen to want the key, so that there is something to remember.
    pub(crate) fn is_contended(&self) -> bool {
        self.seen.is_some()
    }

    /// Contends until `acquisition` has the lock or has failed.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the attempt is withdrawn, and so is every trace of a waiter.
    pub(crate) async fn win(&mut self, acquisition: &Arc<AcquireRequest>) -> Result<Attempt, AcquireError> {
        let is_fresh = self.intent.is_none() && self.places.is_empty() && self.queue.is_out();
        debug_assert!(is_fresh, "the wait before has left traces on the nodes");
        self.rounds = 0;
        self.pace = AskPace::default();
        let subscription = Subscription::open(self.engine.queues_of(self.mode), &self.keys);
        let mut guard = ContendGuard { contender: self, acquisition, won: false };
        let outcome = guard.contender.contend(acquisition, &subscription).await;
        guard.won = outcome.is_ok();
        outcome
    }

    async fn contend(
        &mut self,
        acquisition: &Arc<AcquireRequest>,
        subscription: &Subscription,
    ) -> Result<Attempt, AcquireError> {
        let (mut splits, mut is_silent) = (0, false);
        // When our turn ends.
        let mut turn: Option<Moment> = None;
        loop {
            if self.engine.closing.is_cancelled() {
                return Err(AcquireError::Closed);
            }
            let is_over = |turn: Moment| turn <= self.engine.now();
            let mut offered = None;
            if self.queue.has_offers() {
                // An offer may also arrive during our turn.
                offered = self.take_offer(subscription, acquisition).await?;
            } else if self.may_queue(acquisition) && self.is_contended() && turn.is_none_or(is_over) {
                turn = match self.turn(acquisition, subscription).await? {
                    Chance::Turn(until) => Some(until),
                    Chance::Offer(attempt) => {
                        offered = Some(*attempt);
                        None
                    }
                    Chance::NoQueue => {
                        is_silent = true;
                        None
                    }
                };
            }
            if acquisition.wait == Wait::Never || self.may_queue(acquisition) {
                // A call that asks once needs the verdict of all nodes, not one node's refusal; and
                // in our turn there is no competition.
                self.order = AskOrder::AllAtOnce;
            }
            let Some(mut attempt) = self.attempt(offered, acquisition, subscription).await else { continue };
            let asked = attempt.sent();
            let verdict = attempt.verdict().await;
            let now = self.engine.now();
            self.rounds += attempt.rounds();
            if verdict == Verdict::Won && attempt.in_time(now) {
                self.pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
                if let Some(offers) = &self.engine.offers {
                    offers.acquired(self.keys.first(), self.queue.waiter(), attempt.token());
                }
                if self.is_contended() {
                    self.seen = self.seen.max(attempt.largest_number());
                    self.learn(&attempt.report());
                    self.order = self.learnt.order();
                }
                return Ok(attempt);
            }
            let report = attempt.report();
            // Even if no node has reported a number: others want the lock.
            self.seen = self.seen.max(attempt.largest_number()).max(Some(FencingToken::ZERO));
            // In a queue for a key that never expires, a later caller would not see why.
            if verdict == Verdict::Contended && !report.misconfigured() {
                self.engine.queues.mark_contended(self.keys.queue_key(), now);
            }
            self.learn(&report);
            self.queue.note_held(verdict == Verdict::Contended && report.holder().is_some());
            drop(attempt);
            trace!(keys = %self.keys, %verdict, votes = %report, "not acquired");
            let asks_once = acquisition.wait == Wait::Never;
            if asks_once && splits < SPLITS && report.is_split() {
                if splits == 0 {
                    // Longer than the others' votes are in flight, or all would collide again.
                    let first = FIRST_PAUSE.max(now.since(asked));
                    self.pauses = Backoff::new(first, LONGEST_PAUSE.max(first * 4));
                }
                splits += 1;
            } else if let Some(error) = last_word(acquisition, verdict, &report, now) {
                return Err(error);
            }
            let mut pause = self.pause(verdict, &report, subscription, now);
            if !asks_once {
                if is_silent || !(self.may_queue(acquisition) || self.keeps_places(acquisition)) {
                    let key = self.keys.first().clone();
                    self.announce_intent(acquisition, (&key, &report), now);
                }
                self.report(acquisition, News { verdict, report: Box::new(report) }, None, now);
            }
            self.order = self.learnt.order();
            if self.keeps_places(acquisition) && verdict == Verdict::Contended {
                let closing = self.engine.closing.clone();
                tokio::select! {
                    biased;
                    () = closing.cancelled() => return Err(AcquireError::Closed),
                    is_due = self.wait_in_places(acquisition, &mut pause, subscription) => if is_due {
                        self.order = AskOrder::AllAtOnce;
                        continue;
                    },
                }
            }
            if self.may_queue(acquisition) && verdict == Verdict::Contended {
                // The other nodes may have released a moment after the one that hinted. If not, we
                // queue.
                match turn {
                    Some(turn) => pause.until = pause.until.min(turn),
                    None if std::mem::take(&mut is_silent) => {
                        pause.until = pause.until.min(now + ASKED_AGAIN);
                    }
                    None => continue,
                }
            }
            tokio::select! {
                biased;
                () = self.engine.closing.cancelled() => return Err(AcquireError::Closed),
                () = self.sleep(&pause, pause.until, subscription, || false) => {}
            }
        }
    }

    /// Returns the attempt that was offered, or starts one; nothing if an offer has come meanwhile.
    async fn attempt(
        &mut self,
        offered: Option<Attempt>,
        acquisition: &Arc<AcquireRequest>,
        subscription: &Subscription,
    ) -> Option<Attempt> {
        if offered.is_some() {
            return offered;
        }
        self.keep_pace(subscription).await;
        if self.queue.has_offers() {
            return None;
        }
        subscription.clear_hints();
        Some(Attempt::start(&self.engine, acquisition, self.order, (self.seen, self.place())))
    }

    /// Whether waiters use the queue of a node. Readers do not, since they do not wait for each
    /// other; nor do callers that want several locks, each of which has its own queue.
    fn may_queue(&self, acquisition: &AcquireRequest) -> bool {
        let alone = self.mode == Mode::Exclusive && !self.keys.are_several();
        alone && acquisition.wait != Wait::Never && !self.queue.closed
    }

    /// The waiter whose places an attempt may take, on nodes that serve waiters in the order of their places.
    fn place(&self) -> Option<WaiterId> {
        (self.engine.nodes.capabilities.grants == Grants::FirstCome).then_some(self.queue.waiter())
    }

    /// Pauses so that clients which wanted the lock while this process had it go first.
    pub(crate) async fn back_off(&mut self) {
        self.order = self.learnt.order();
        self.seen = self.seen.max(Some(FencingToken::ZERO));
        let pause = COOLDOWN + fraction(COOLDOWN, self.engine.entropy.next_u64());
        self.engine.wait_until(self.engine.now() + pause).await;
    }

    /// Reports the holder to the waiters of this process, and how many processes wait before it, if
    /// a node has said so.
    fn report(&mut self, acquisition: &AcquireRequest, news: News, processes: Option<u32>, now: Moment) {
        if let Some(holder) = news.report.holder() {
            self.holder = Some(holder);
        }
        let holder = self.holder.clone();
        if let Some(on_wait) = &acquisition.on_wait {
            let waited = now.since(acquisition.since);
            notify_listener(&**on_wait, &Waiting { holder: holder.clone(), ahead: 0, processes, waited });
        }
        self.engine.queues_of(self.mode).report(
            self.keys.queue_key(),
            Some(news),
            || (holder, processes),
            now,
        );
    }
}

/// A caller that contends, until that is decided or the future is dropped.
struct ContendGuard<'a> {
    contender: &'a mut Contender,
    acquisition: &'a Arc<AcquireRequest>,
    won: bool,
}

impl Drop for ContendGuard<'_> {
    fn drop(&mut self) {
        self.contender.withdraw_intent(self.acquisition);
        // A waiter that has the lock or has given up must not hold up the others.
        let (key, waiter) = (self.contender.keys.first().clone(), self.contender.queue.waiter());
        let engine = self.contender.engine.clone();
        self.contender.queue.give_back(&engine, self.acquisition);
        let queues = self.contender.queue.end(self.won, &*self.contender.engine.entropy);
        places::leave(&engine, self.acquisition, (key, waiter), queues);
        self.contender.leave_places(self.acquisition, self.won);
    }
}

/// Returns the error for a caller that does not wait, or for which waiting is pointless.
fn last_word(
    acquisition: &AcquireRequest,
    verdict: Verdict,
    report: &VoteReport,
    now: Moment,
) -> Option<AcquireError> {
    if report.misconfigured() {
        let (resource, report) = (acquisition.resource.clone(), Box::new(report.clone()));
        return Some(AcquireError::Misconfigured { resource, report });
    }
    let in_vain = match acquisition.wait {
        Wait::Never => true,
        // Quarantines end at a known time. Better to fail now than after the wait.
        Wait::UpTo(longest) => !report.may_win_within((acquisition.since + longest).since(now)),
        Wait::Forever => false,
    };
    let news = || News { verdict, report: Box::new(report.clone()) };
    in_vain.then(|| acquisition.not_acquired(news(), now.since(acquisition.since)))
}
