//! The state that a lease, its watchers and its keeper share, with the keeper itself under a mutex.
//!
//! What happens to a lease goes to its keeper by [`LeaseState::handle`]: a call of the holder, a timer, the last response of
//! a round. The keeper is out of its place while it handles an event, so no mutex is held when nodes are asked and callers
//! are woken. What happens meanwhile waits in its place, and is handled before it is put back: by a task if a node was
//! reporting what came first, since a call of that node still goes on, and from there nothing may be asked of it (rule I-54).

use std::fmt;
use std::mem;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::task::Wake;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::commands::{Ended, Event};
use crate::error::{LossReason, Lost};
use crate::node::{Capabilities, Expiry};
use crate::quorum::round::Listener;
use crate::runtime::Mutex;
use crate::runtime::tasks::{FinishInBackground, Helped, Registry};
use crate::runtime::timer::Timers;
use quorlock_protocol::votes::{Holder, VoteReport};
use quorlock_protocol::{Claim, FencingToken, Mode, Moment, Resource, Term, Token};

/// The state that a lease, its watchers and its keeper share.
#[derive(Debug)]
pub(crate) struct LeaseState {
    pub(crate) resource: Resource,
    pub(crate) claim: Arc<Claim>,
    /// `None` if fencing is off.
    pub(crate) fence: Option<FencingToken>,
    /// The store's own number of this lease, where one node is the whole deployment.
    pub(crate) store_revision: Option<NonZeroU64>,
    /// Read by [`runs_until`](LeaseState::runs_until).
    term: Term,
    /// Whether it is from an offer that no renewal has taken up yet.
    is_untaken: AtomicBool,
    /// The claim's mode, until the holder downgrades.
    mode: Mutex<Mode>,
    /// No renewal moves the deadline beyond this.
    hold_until: Moment,
    /// Wakes tasks that wait for the end of the lease.
    pub(crate) timers: Arc<Timers>,
    /// The commands that all nodes support.
    pub(crate) capabilities: Capabilities,
    /// The tracked tasks, one of which may own the keeper.
    pub(crate) registry: Weak<Registry>,
    /// Notifies of a loss before the deadline; timers cover the deadline itself.
    pub(crate) over: Notify,
    reason: Mutex<Option<LossReason>>,
    /// How many holds its owner has.
    pub(crate) holds: AtomicU32,
    slot: Mutex<KeeperSlot>,
}

/// The keeper, as the lease sees it.
pub(crate) trait LeaseKeeper: Send {
    /// Handles an event. Returns how the lease has ended.
    fn handle(&mut self, event: Event) -> Option<Ended>;

    /// Has a task deliver an event, for which nodes may be asked.
    fn handle_later(&self, event: Event);

    /// Whether another caller in this process waits for the lock.
    fn is_waited_for(&self) -> bool;

    /// Releases the lock, in the future of the holder.
    fn release_here(self: Box<Self>) -> FinishInBackground<Result<(), Lost>>;

    /// Ends the lease. A task does what is still to be done.
    fn conclude(self: Box<Self>, ended: Ended);
}

/// A release that has begun.
pub(crate) enum Releasing {
    /// In the future of the holder.
    Here(FinishInBackground<Result<(), Lost>>),
    /// In a task, since others wait for the lock, or by who handles an event of the lease.
    Elsewhere(oneshot::Receiver<Result<(), Lost>>),
}

/// Where the keeper is.
enum KeeperSlot {
    /// Here.
    Here(Box<dyn LeaseKeeper>),
    /// The lease is not delivered yet, or it handles an event. These have happened meanwhile.
    Away(Vec<Event>),
    /// Gone. Has the votes on a release that no quorum confirmed.
    Closed(Option<Box<VoteReport>>),
}

/// Omits the keeper, whose output would contain this lease.
impl fmt::Debug for KeeperSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeeperSlot::Here(_) => "Here",
            KeeperSlot::Away(_) => "Away",
            KeeperSlot::Closed(_) => "Closed",
        })
    }
}

impl LeaseState {
    pub(crate) fn new(
        resource: &Resource,
        claim: &Arc<Claim>,
        (fence, store_revision): (Option<FencingToken>, Option<NonZeroU64>),
        deadline: Moment,
        hold_until: Option<Moment>,
        (timers, registry, capabilities): (&Arc<Timers>, Weak<Registry>, Capabilities),
    ) -> Arc<LeaseState> {
        let hold_until = hold_until.unwrap_or(Moment::NEVER);
        Arc::new(LeaseState {
            resource: resource.clone(),
            claim: claim.clone(),
            fence,
            store_revision,
            mode: Mutex::new(claim.mode()),
            term: Term::until(hold_until.min(deadline)),
            is_untaken: AtomicBool::new(false),
            hold_until,
            capabilities,
            timers: timers.clone(),
            registry,
            over: Notify::new(),
            reason: Mutex::new(None),
            holds: AtomicU32::new(1),
            slot: Mutex::new(KeeperSlot::Away(Vec::new())),
        })
    }

    pub(crate) fn token(&self) -> &Token {
        self.claim.token()
    }

    pub(crate) fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock()
    }

    /// Returns the deadline, if the lease is still valid at `now`.
    pub(crate) fn runs_until(&self, now: Moment) -> Option<Moment> {
        self.term.remaining(now)
    }

    /// Returns the deadline, whether or not it has passed.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.term.remaining(Moment::ORIGIN)
    }

    /// Records whether the lease is from an offer that no renewal has taken up yet.
    pub(crate) fn set_untaken(&self, is_untaken: bool) {
        self.is_untaken.store(is_untaken, Ordering::Relaxed);
    }

    /// Whether the lease goes on, and no renewal has taken up the offer that it is from: it ends soon.
    pub(crate) fn is_untaken(&self) -> bool {
        self.is_untaken.load(Ordering::Relaxed) && !self.has_ended()
    }

    /// Has the keeper do what is due and read the answers on this thread: its runtime may be blocked.
    pub(crate) fn attend(self: &Arc<Self>) {
        self.handle(Event::Attend);
    }

    /// Returns the term, and the moment beyond which no renewal moves its deadline.
    pub(crate) fn term(&self) -> (&Term, Moment) {
        (&self.term, self.hold_until)
    }

    /// Returns how much longer the lease is valid at `now`.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        self.runs_until(now).unwrap_or(now).since(now)
    }

    /// Describes it for those that wait for its lock; `needed` nodes at least store its token.
    pub(crate) fn holder(&self, needed: usize, now: Moment) -> Holder {
        Holder::new(self.token().clone(), self.fence, needed, Expiry::In(self.left(now)))
    }

    /// Whether the deadline is the end of the longest hold, which no renewal moves.
    pub(crate) fn is_at_max_hold(&self, now: Moment) -> bool {
        self.runs_until(now).is_some_and(|deadline| deadline >= self.hold_until)
    }

    /// Returns why a lease ended whose deadline has passed by `now`.
    pub(crate) fn lapsed(&self, now: Moment) -> LossReason {
        if now >= self.hold_until { LossReason::MaxHold } else { LossReason::Expired }
    }

    /// Returns the loss of a lease whose deadline has passed.
    pub(crate) fn lapse(&self) -> Lost {
        self.lost_for(self.lapsed(self.timers.now()))
    }

    /// Ends a lease whose keeper is gone.
    pub(crate) fn end_without_keeper(&self) -> Lost {
        self.end(self.lapsed(self.timers.now()))
    }

    /// Ends the lease for `reason`, unless it has already ended, and notifies the watchers.
    pub(crate) fn end(&self, reason: LossReason) -> Lost {
        let lost = self.lost_for(reason);
        self.term.end();
        self.over.notify_waiters();
        lost
    }

    /// Whether the lease was ended, or was seen to end.
    pub(crate) fn has_ended(&self) -> bool {
        self.deadline().is_none()
    }

    /// Returns the loss, with the reason that was recorded first.
    fn lost_for(&self, reason: LossReason) -> Lost {
        let mut first = self.reason.lock();
        Lost::new(self.resource.clone(), *first.get_or_insert(reason))
    }

    /// Puts the keeper into its place, once it has handled what has happened meanwhile.
    pub(crate) fn give_to(self: &Arc<Self>, keeper: Box<dyn LeaseKeeper>) {
        self.work(keeper, None);
    }

    /// Has the keeper handle what happens. If it is gone, the event is dropped, which notifies a caller that waits for a
    /// reply.
    pub(crate) fn handle(self: &Arc<Self>, event: Event) {
        let mut slot = self.slot.lock();
        match mem::replace(&mut *slot, KeeperSlot::Away(Vec::new())) {
            KeeperSlot::Away(mut events) => {
                events.push(event);
                *slot = KeeperSlot::Away(events);
            }
            KeeperSlot::Here(keeper) => {
                drop(slot);
                self.work(keeper, Some(event));
            }
            closed @ KeeperSlot::Closed(_) => {
                *slot = closed;
                drop(slot);
                drop(event);
            }
        }
    }

    /// Has the keeper handle an event and what happens meanwhile, and puts it into its place.
    fn work(&self, mut keeper: Box<dyn LeaseKeeper>, mut next: Option<Event>) {
        let a_node_reports = next.as_ref().is_some_and(Event::is_of_a_node);
        loop {
            match next {
                Some(event) if a_node_reports && !event.is_of_a_node() => keeper.handle_later(event),
                Some(event) => {
                    if let Some(ended) = keeper.handle(event) {
                        if let Ended::Lost(reason) = &ended {
                            // Before callers hear of it that have come meanwhile.
                            drop(self.lost_for(*reason));
                        }
                        self.close_slot();
                        return keeper.conclude(ended);
                    }
                }
                None => {}
            }
            let mut slot = self.slot.lock();
            match &mut *slot {
                KeeperSlot::Away(events) if !events.is_empty() => next = Some(events.remove(0)),
                KeeperSlot::Away(_) => {
                    *slot = KeeperSlot::Here(keeper);
                    return;
                }
                KeeperSlot::Here(_) | KeeperSlot::Closed(_) => {
                    debug_assert!(false, "a lease has two keepers, or had its last");
                    return;
                }
            }
        }
    }

    /// Releases the lock, for a holder that waits for the result.
    pub(crate) fn release(self: &Arc<Self>) -> Releasing {
        let mut slot = self.slot.lock();
        if let KeeperSlot::Here(keeper) = &*slot
            && !keeper.is_waited_for()
            && let KeeperSlot::Here(keeper) = mem::replace(&mut *slot, KeeperSlot::Closed(None))
        {
            drop(slot);
            return Releasing::Here(keeper.release_here());
        }
        drop(slot);
        let (reply, replied) = oneshot::channel();
        self.handle(Event::End(Ended::Released(Some(reply))));
        Releasing::Elsewhere(replied)
    }

    /// Waits for the keeper, and lets this runtime drive the tasks that it may wait for.
    pub(crate) fn helped<F>(&self, wait: F) -> Helped<F> {
        Helped::new(self.registry.clone(), wait)
    }

    /// Removes the keeper for good.
    pub(crate) fn close_slot(&self) {
        let mut slot = self.slot.lock();
        if matches!(&*slot, KeeperSlot::Closed(_)) {
            return;
        }
        let before = mem::replace(&mut *slot, KeeperSlot::Closed(None));
        drop(slot);
        drop(before);
    }

    /// Records that no quorum has confirmed the release.
    pub(crate) fn not_confirmed(&self, report: VoteReport) {
        let before = mem::replace(&mut *self.slot.lock(), KeeperSlot::Closed(Some(Box::new(report))));
        drop(before);
    }

    pub(crate) fn unconfirmed(&self) -> Option<VoteReport> {
        match &*self.slot.lock() {
            KeeperSlot::Closed(report) => report.as_deref().cloned(),
            KeeperSlot::Here(_) | KeeperSlot::Away(_) => None,
        }
    }
}

/// Has the keeper look at what is due.
impl Wake for LeaseState {
    fn wake(self: Arc<Self>) {
        // A node that panics when it is asked ends this lease, and not the task that fires the timers of all.
        drop(catch_unwind(AssertUnwindSafe(|| self.handle(Event::Look))));
    }
}

impl Listener for LeaseState {
    fn decided(self: Arc<Self>) {
        self.handle(Event::Decided);
    }

    fn lost(self: Arc<Self>) {
        self.handle(Event::Lost);
    }

    fn settled(self: Arc<Self>) {
        self.handle(Event::Settled);
    }
}
