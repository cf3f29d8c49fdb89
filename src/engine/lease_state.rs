//! The state that a lease, its watchers and its keeper share, with the parked keeper.

use std::fmt;
use std::mem;
use std::num::NonZeroU64;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::commands::{HolderCommands, ReleaseReply, Retention};
use crate::error::{LossReason, Lost};
use crate::node::Capabilities;
use crate::quorum::round::{OnSettled, Round};
use crate::runtime::tasks::{Helped, Registry};
use crate::runtime::timer::Timers;
use crate::runtime::{Mutex, detached::FinishInBackground};
use quorlock_protocol::machine::{Keep, KeyStates, Latest};
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{Claim, FencingToken, Mode, Moment, Quorum, Resource, Term, Token, Verdict};

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
    /// The renewal that takes up an offer.
    take_up: Mutex<TakeUp>,
    /// Whether it is in flight.
    takes_up: AtomicBool,
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
    last_round: Mutex<LastRound>,
    /// Whether to wake the keeper if the latest round ends with the key on no more than a quorum.
    wants_repair: AtomicBool,
}

/// The parked keeper, as the lease sees it.
pub(crate) trait ParkedKeeper: Send {
    /// Whether another caller in this process waits for the lock.
    fn is_waited_for(&self) -> bool;

    /// Releases the lock, for a holder that waits for the result.
    fn give_back(self: Box<Self>, reply: ReleaseReply) -> FinishInBackground;

    /// Leaves the lock taken, for a holder that waits for the result.
    fn leave_taken(self: Box<Self>, wanted: Retention) -> FinishInBackground;

    /// Spawns a task that does the pending work.
    fn unpark(self: Box<Self>);
}

/// Where the keeper is.
enum KeeperSlot {
    /// Parked here. Its single owner, once taken out, is the only one that acts on the lease.
    Parked(Box<dyn ParkedKeeper>),
    /// Taken out; its owner reads the mailbox.
    Running(Option<Box<Mailbox>>),
    /// Gone. Has the votes on a release that no quorum confirmed.
    Closed(Option<Box<VoteReport>>),
}

/// Messages for the keeper while it is not parked, and the waker of its owner.
#[derive(Default)]
struct Mailbox {
    commands: HolderCommands,
    /// Whether its timer has fired.
    timer_fired: bool,
    keeper: Option<Waker>,
}

/// The renewal by which an offered lease is taken up (rule O-12).
#[derive(Default, Debug)]
enum TakeUp {
    /// There is none.
    #[default]
    None,
    /// It is in flight, and would make the lease valid until this moment.
    Asked(Arc<Round>, Moment),
    /// A quorum has confirmed it until this moment, which the keeper does not know yet.
    Confirmed(Moment),
}

/// What the latest round left on the nodes.
#[derive(Default)]
pub(crate) enum LastRound {
    /// Nothing new.
    #[default]
    None,
    /// Some nodes may still answer.
    InFlight(Arc<Round>),
    /// All nodes have answered.
    Settled(KeyStates),
}

/// Omits the keeper, whose output would contain this lease.
impl fmt::Debug for KeeperSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeeperSlot::Parked(_) => "Parked",
            KeeperSlot::Running(_) => "Running",
            KeeperSlot::Closed(_) => "Closed",
        })
    }
}

/// Omits the round, whose output would contain this lease.
impl fmt::Debug for LastRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LastRound::None => f.write_str("None"),
            LastRound::InFlight(_) => f.write_str("InFlight"),
            LastRound::Settled(key_states) => f.debug_tuple("Settled").field(key_states).finish(),
        }
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
            take_up: Mutex::default(),
            takes_up: AtomicBool::new(false),
            hold_until,
            capabilities,
            timers: timers.clone(),
            registry,
            over: Notify::new(),
            reason: Mutex::new(None),
            holds: AtomicU32::new(1),
            slot: Mutex::new(KeeperSlot::Running(None)),
            last_round: Mutex::default(),
            wants_repair: AtomicBool::new(true),
        })
    }

    pub(crate) fn token(&self) -> &Token {
        self.claim.token()
    }

    pub(crate) fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock()
    }

    /// Returns the deadline, if the lease is still valid at `now`. One from an offer is valid for a second at most until its
    /// first renewal is confirmed, so the answers are counted before.
    pub(crate) fn runs_until(&self, now: Moment) -> Option<Moment> {
        if self.takes_up.load(Ordering::Acquire) {
            self.count_take_up(now);
        }
        self.term.remaining(now)
    }

    /// Returns the deadline, whether or not it has passed.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.term.remaining(Moment::ORIGIN)
    }

    /// Records that `round` takes up the offer that the lease is from, and if confirmed makes it valid until `deadline`.
    pub(crate) fn take_up(&self, round: &Arc<Round>, deadline: Moment) {
        *self.take_up.lock() = TakeUp::Asked(round.clone(), deadline);
        self.takes_up.store(true, Ordering::Release);
    }

    /// Returns until when the renewal that took up the offer is valid, once.
    pub(crate) fn was_taken_up(&self) -> Option<Moment> {
        let mut take_up = self.take_up.lock();
        let TakeUp::Confirmed(until) = *take_up else { return None };
        *take_up = TakeUp::None;
        Some(until)
    }

    /// Reads what has arrived about the renewal that takes up an offer, on this thread, since the runtime may be blocked.
    /// Returns whether more may arrive in time.
    pub(crate) fn read_answers(&self) -> bool {
        let round = match &*self.take_up.lock() {
            TakeUp::Asked(round, _) => round.clone(),
            TakeUp::None | TakeUp::Confirmed(_) => return false,
        };
        // Without the mutex: what is read may be about this lease.
        round.wake_silent();
        self.runs_until(self.timers.now()).is_some() && self.takes_up.load(Ordering::Acquire)
    }

    fn count_take_up(&self, now: Moment) {
        let mut take_up = self.take_up.lock();
        if let TakeUp::Asked(round, until) = &*take_up
            && round.tally(now).verdict() == Some(Verdict::Won)
        {
            let until = until.back(round.sent.since(round.counts_from()));
            // If that is in time, as for any renewal (rule I-9).
            self.renew(until, now);
            *take_up = TakeUp::Confirmed(until);
            self.takes_up.store(false, Ordering::Release);
        }
    }

    /// Returns the term, and the moment beyond which no renewal moves its deadline.
    pub(crate) fn term(&self) -> (&Term, Moment) {
        (&self.term, self.hold_until)
    }

    /// Applies a renewal, confirmed by a quorum at `now`, that is valid until `deadline`. Returns
    /// whether the lease is still valid.
    pub(crate) fn renew(&self, deadline: Moment, now: Moment) -> bool {
        self.term.renew(self.hold_until.min(deadline), now)
    }

    /// Returns how much longer the lease is valid at `now`.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        self.runs_until(now).unwrap_or(now).since(now)
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

    /// Parks the keeper until a message arrives or its timer fires. Returns it if that has already
    /// happened.
    pub(crate) fn park<K: ParkedKeeper + 'static>(&self, keeper: Box<K>) -> Option<Box<K>> {
        let mut slot = self.slot.lock();
        debug_assert!(matches!(&*slot, KeeperSlot::Running(_)), "a lease has two keepers, or had its last");
        match &*slot {
            KeeperSlot::Running(Some(mailbox)) if mailbox.timer_fired || !mailbox.commands.is_empty() => {
                Some(keeper)
            }
            KeeperSlot::Parked(_) | KeeperSlot::Running(_) | KeeperSlot::Closed(_) => {
                let before = mem::replace(&mut *slot, KeeperSlot::Parked(keeper));
                drop(slot);
                drop(before);
                None
            }
        }
    }

    /// Takes the keeper, if it is parked and no other caller in this process waits for the lock.
    pub(crate) fn take_keeper(&self) -> Option<Box<dyn ParkedKeeper>> {
        let mut slot = self.slot.lock();
        if let KeeperSlot::Parked(keeper) = &*slot
            && !keeper.is_waited_for()
            && let KeeperSlot::Parked(keeper) = mem::replace(&mut *slot, KeeperSlot::Running(None))
        {
            return Some(keeper);
        }
        None
    }

    /// Takes the pending commands. If there are none, registers the waker.
    pub(crate) fn read(&self, context: Option<&Context<'_>>) -> Option<HolderCommands> {
        let mut slot = self.slot.lock();
        let KeeperSlot::Running(mailbox) = &mut *slot else { return None };
        let taken = mailbox.take();
        if let Some(context) = context
            && taken.as_ref().is_none_or(|mailbox| mailbox.commands.is_empty())
        {
            mailbox.get_or_insert_default().keeper = Some(context.waker().clone());
        }
        drop(slot);
        taken.map(|mailbox| mailbox.commands).filter(|commands| !commands.is_empty())
    }

    pub(crate) fn post(&self, write: impl FnOnce(&mut HolderCommands)) {
        self.leave(|mailbox| write(&mut mailbox.commands));
    }

    /// Waits for the keeper, and lets this runtime drive the task that may own it.
    pub(crate) fn helped<F>(&self, wait: F) -> Helped<F> {
        Helped::new(self.registry.clone(), wait)
    }

    /// Leaves a message for the keeper and wakes it. If the keeper is gone, the message is dropped,
    /// which notifies callers that wait for a reply.
    fn leave(&self, write: impl FnOnce(&mut Mailbox)) {
        let mut slot = self.slot.lock();
        let mut mailbox = match &mut *slot {
            KeeperSlot::Closed(_) => return,
            KeeperSlot::Running(there) => there.take().unwrap_or_default(),
            KeeperSlot::Parked(_) => Box::default(),
        };
        write(&mut mailbox);
        let waker = mailbox.keeper.take();
        let before = mem::replace(&mut *slot, KeeperSlot::Running(Some(mailbox)));
        drop(slot);
        if let KeeperSlot::Parked(keeper) = before {
            keeper.unpark();
        } else if let Some(waker) = waker {
            waker.wake();
        }
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
        if let KeeperSlot::Closed(Some(report)) = &*self.slot.lock() {
            Some(VoteReport::clone(report))
        } else {
            None
        }
    }

    /// Follows `round`, and keeps the key states that it leaves. Returns those so far.
    pub(crate) fn follow(self: &Arc<Self>, round: &Arc<Round>) -> KeyStates {
        drop(mem::replace(&mut *self.last_round.lock(), LastRound::InFlight(round.clone())));
        let (key_states, all_responded) = round.notify_settled(self);
        if all_responded {
            self.keep(Arc::as_ptr(round).cast(), key_states);
        }
        key_states
    }

    /// Keeps the key states that `round` left, if it is the latest.
    fn keep(&self, round: *const (), key_states: KeyStates) -> bool {
        let mut last_round = self.last_round.lock();
        let followed =
            matches!(&*last_round, LastRound::InFlight(latest) if ptr::addr_eq(Arc::as_ptr(latest), round));
        let before = if followed {
            mem::replace(&mut *last_round, LastRound::Settled(key_states))
        } else {
            LastRound::None
        };
        drop(last_round);
        drop(before);
        followed
    }

    pub(crate) fn wants_repair(&self) -> bool {
        self.wants_repair.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_repair(&self) {
        self.wants_repair.store(false, Ordering::Relaxed);
    }

    /// Returns what the latest round left, if all nodes have answered.
    pub(crate) fn settled_key_states(&self) -> Option<KeyStates> {
        if let LastRound::Settled(key_states) = &*self.last_round.lock() { Some(*key_states) } else { None }
    }

    /// Returns what the latest round has left so far.
    pub(crate) fn latest(&self) -> Latest {
        let round = match &*self.last_round.lock() {
            LastRound::None => return Latest { states: KeyStates::default(), open_since: None },
            LastRound::Settled(states) => return Latest { states: *states, open_since: None },
            LastRound::InFlight(round) => round.clone(),
        };
        Latest { states: round.key_states(), open_since: Some(round.sent) }
    }

    /// Takes the latest round, or what it left.
    pub(crate) fn take_last_round(&self) -> LastRound {
        mem::take(&mut *self.last_round.lock())
    }
}

/// Wakes the keeper when its timer fires.
impl Wake for LeaseState {
    fn wake(self: Arc<Self>) {
        self.leave(|mailbox| mailbox.timer_fired = true);
    }
}

impl OnSettled for LeaseState {
    fn settled(&self, round: *const (), quorum: Quorum, key_states: KeyStates) {
        if self.keep(round, key_states) && self.wants_repair() && Keep::is_short(quorum, key_states) {
            self.leave(|mailbox| mailbox.timer_fired = true);
        }
    }
}
