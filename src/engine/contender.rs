//! Contends for a lock with other processes, on behalf of all waiters of this process.
//!
//! A [`Contender`] serves one waiter of this process after the other. Between them it is kept by the
//! keeper of the lease, with what it has learnt about the contention. [`Contender::win`] makes attempts, each with a new
//! token, until one of them has won or the waiter gives up. What is next, and what a refusal means, [`Contest`] decides;
//! here its steps are done.
//!
//! - *Won* and in time: the attempt is returned, and becomes a lease.
//! - Everything else: the attempt is dropped, which cleans it up on every node that it may have
//!   reached. Then the waiter fails, or the holder is reported to the waiters of this process, and it goes on.
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
//!   that was silent.
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

use tracing::trace;

use super::attempt::Attempt;
use super::context::EngineContext;
use super::node_queue::{Accepts, NodeQueue};
use super::offer;
use super::options::{AcquireRequest, News};
use super::subscription::Subscription;
use super::wait::{Waiting, notify_listener};
use crate::error::AcquireError;
use crate::node::Grants;
use places::KeptPlace;
use quorlock_protocol::machine::wait::{Contest, Intent, Lost, Step, Then, WaitsBy};
use quorlock_protocol::votes::{Holder, NodeVote, VoteOutcome, VoteReport};
use quorlock_protocol::{AskPace, COOLDOWN, INTENT_AGE, Keys, Mode, Moment, Verdict, WaiterId, fraction};
use turn::Chance;

mod intent;
mod pause;
mod places;
mod turn;

/// One process's attempts to acquire one key, for one waiter after the other.
pub(crate) struct Contender {
    engine: Arc<EngineContext>,
    keys: Keys,
    /// Decides what is next, and what a refusal means.
    contest: Contest,
    /// The number of rounds for the current waiter.
    pub(crate) rounds: usize,
    mode: Mode,
    /// Keeps new readers out while this writer waits.
    intent: Intent,
    /// Our place in the queue of a node.
    queue: NodeQueue,
    /// Places that accept no offers, of a reader or of a caller of several locks.
    places: Vec<KeptPlace>,
    /// The last known holder.
    holder: Option<Holder>,
    /// How often the current waiter asks.
    pace: AskPace,
    /// How often it does so because it is its turn.
    turn_pace: AskPace,
}

impl Contender {
    pub(crate) fn new(engine: &Arc<EngineContext>, keys: &Keys, mode: Mode) -> Contender {
        let contended = engine.queues.is_contended(keys.queue_key(), || engine.now());
        Contender {
            engine: engine.clone(),
            keys: keys.clone(),
            contest: Contest::new(contended),
            rounds: 0,
            mode,
            intent: Intent::default(),
            queue: NodeQueue::new(Accepts::Offers, &engine.entropy),
            places: Vec::new(),
            holder: None,
            pace: AskPace::default(),
            turn_pace: AskPace::default(),
        }
    }

    /// Whether other clients were seen to want the key, so that there is something to remember.
    pub(crate) fn is_contended(&self) -> bool {
        self.contest.is_contended()
    }

    /// Contends until `acquisition` has the lock or has failed.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the attempt is withdrawn, and so is every trace of a waiter.
    pub(crate) async fn win(&mut self, acquisition: &Arc<AcquireRequest>) -> Result<Attempt, AcquireError> {
        let is_fresh = self.intent.is_none() && self.places.is_empty() && self.queue.places.is_out();
        debug_assert!(is_fresh, "the wait before has left traces on the nodes");
        self.rounds = 0;
        (self.pace, self.turn_pace) = (AskPace::default(), AskPace::default());
        let is_one_writer = self.mode == Mode::Exclusive && !self.keys.are_several();
        let waits_by = if is_one_writer { WaitsBy::Queue } else { WaitsBy::Places };
        self.contest.begin(waits_by, acquisition.patience());
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
        loop {
            if self.engine.closing.is_cancelled() {
                return Err(AcquireError::Closed);
            }
            let has_queue = !self.queue.closed;
            let offered =
                match self.contest.next(self.queue.offers.has_offers(), has_queue, self.engine.now()) {
                    Step::TakeOffer => self.take_offer(subscription, acquisition).await?,
                    Step::Queue => self.queue_up(acquisition, subscription).await?,
                    Step::Ask => None,
                };
            let Some(mut attempt) = self.attempt(offered, acquisition, subscription).await else { continue };
            let asked = attempt.sent();
            let verdict = attempt.verdict().await;
            let now = self.engine.now();
            self.rounds += attempt.rounds();
            if verdict == Verdict::Won && attempt.in_time(now) {
                if let (Some(offers), Some(waiter)) = (&self.engine.offers, self.queue.known_as()) {
                    offers.acquired(self.keys.first(), waiter, attempt.token());
                }
                let votes = self.is_contended().then(|| (attempt.report(), attempt.largest_number()));
                if let Some((report, _)) = &votes {
                    self.look_for_others(report);
                }
                self.contest.won(votes);
                return Ok(attempt);
            }
            let (report, largest) = (attempt.report(), attempt.largest_number());
            // In a queue for a key that never expires, a later caller would not see why.
            if verdict == Verdict::Contended && !report.misconfigured() {
                self.engine.queues.mark_contended(self.keys.queue_key(), now);
            }
            self.look_for_others(&report);
            self.queue.places.note_held(verdict == Verdict::Contended && report.holder().is_some());
            drop(attempt);
            trace!(keys = %self.keys, %verdict, votes = %report, "not acquired");
            match self.contest.lost(&report, largest, (asked, now)) {
                Lost::Misconfigured => {
                    let (resource, report) = (acquisition.resource.clone(), Box::new(report));
                    return Err(AcquireError::Misconfigured { resource, report });
                }
                Lost::InVain => {
                    let news = News { verdict, report: Box::new(report) };
                    return Err(acquisition.not_acquired(news, now.since(acquisition.since)));
                }
                Lost::GoesOn => {}
            }
            let mut pause = self.pause(verdict, &report, subscription, now);
            let has_queue = !self.queue.closed;
            if self.contest.announces_writer(has_queue) {
                let key = self.keys.first().clone();
                self.announce_intent(acquisition, (&key, &report), now);
                if !self.intent.is_none() {
                    pause.until = pause.until.min(now + INTENT_AGE);
                }
            }
            if !self.contest.asks_once() {
                self.report(acquisition, News { verdict, report: Box::new(report) }, None, now);
            }
            match self.contest.then(verdict, has_queue, &mut pause, now) {
                Then::Next => continue,
                Then::Places => {
                    let closing = self.engine.closing.clone();
                    let is_due = tokio::select! {
                        biased;
                        () = closing.cancelled() => return Err(AcquireError::Closed),
                        is_due = self.wait_in_places(acquisition, &mut pause, subscription) => is_due,
                    };
                    if is_due {
                        self.contest.is_due();
                        continue;
                    }
                }
                Then::Pause => {}
            }
            tokio::select! {
                biased;
                () = self.engine.closing.cancelled() => return Err(AcquireError::Closed),
                () = self.sleep(&pause, pause.until, subscription, || false) => {}
            }
        }
    }

    /// Waits in the queue of a node until there is a reason to ask. Returns the attempt if the lock was offered.
    async fn queue_up(
        &mut self,
        acquisition: &Arc<AcquireRequest>,
        subscription: &Subscription,
    ) -> Result<Option<Attempt>, AcquireError> {
        match self.turn(acquisition, subscription).await? {
            Chance::Turn(until) => self.contest.has_turn(until),
            Chance::Offer(attempt) => {
                self.contest.is_offered();
                return Ok(Some(*attempt));
            }
            Chance::NoQueue => self.contest.is_not_queued(),
        }
        Ok(None)
    }

    /// Returns the attempt that was offered, or starts one; nothing if an offer has come meanwhile.
    async fn attempt(
        &mut self,
        offered: Option<Attempt>,
        acquisition: &Arc<AcquireRequest>,
        subscription: &Subscription,
    ) -> Option<Attempt> {
        let order = self.contest.order(!self.queue.closed);
        if offered.is_some() {
            return offered;
        }
        let is_turn = self.contest.takes_its_turn();
        if is_turn || self.keep_pace(subscription).await {
            self.keep_pace_of_turns(subscription).await;
        }
        if self.queue.offers.has_offers() {
            return None;
        }
        subscription.clear_hints();
        Some(Attempt::start(&self.engine, acquisition, order, (self.contest.seen(), is_turn), self.place()))
    }

    /// Records a holder that is not in the queue: the lock must then be free for a moment between
    /// holders (rule O-9).
    pub(super) fn look_for_others(&self, report: &VoteReport) {
        let by_others =
            |vote: &NodeVote| matches!(&vote.outcome, VoteOutcome::Held(holding) if !holding.token.is_ours());
        if let Some(offers) = &self.engine.offers
            && report.votes().iter().any(by_others)
        {
            offers.note_outsider(self.keys.first(), self.engine.now());
        }
    }

    /// The waiter whose places an attempt may take, on nodes that serve waiters in the order of their places.
    fn place(&self) -> Option<WaiterId> {
        (self.engine.nodes.capabilities.grants == Grants::FirstCome).then_some(self.queue.waiter())
    }

    /// Pauses so that clients which wanted the lock while this process had it go first.
    pub(crate) async fn back_off(&mut self) {
        self.contest.back_off();
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
        self.engine.queues_of(self.mode).report(self.keys.queue_key(), news, || (holder, processes), now);
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
        let Some(waiter) = self.contender.queue.known_as() else {
            self.contender.queue.end(self.won);
            return;
        };
        // A waiter that has the lock or has given up must not hold up the others.
        let (key, engine) = (self.contender.keys.first().clone(), self.contender.engine.clone());
        offer::give_back(&mut self.contender.queue.offers, &engine, self.acquisition);
        let queues = self.contender.queue.end(self.won);
        places::leave(&engine, self.acquisition, (key, waiter), queues);
        self.contender.leave_places(self.acquisition, self.won);
    }
}
