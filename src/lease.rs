//! A held lock, and those who watch it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;
use crate::coordinator::Shared;
use crate::error::{DowngradeError, LossReason, Lost, RenewError, WithError};
use crate::keeper::Keeper;
use crate::protocol::{Claim, FencingToken, Mode, Moment, Resource, Term, Token};
use crate::round::Round;
use crate::standing::Standings;

/// A held lock.
///
/// It renews itself in the background, unless [`Renewal::Manual`](crate::Renewal::Manual) was
/// asked for, and ends by itself when that fails: call [`check`](Lease::check) right before each
/// side effect. It does not stop work that is paused past its end, nor a write that is on its way
/// by then.
///
/// Dropping a lease gives the lock back in the background. [`release`](Lease::release) does the
/// same and says whether the lease lasted until then.
#[must_use = "dropping the lease gives the lock back at once"]
pub struct Lease {
    watch: LeaseWatch,
    hold: Hold,
}

/// The lock is held for as long as there is one of these. An owner that acquires the lock again has
/// another one.
struct Hold {
    /// `None` once it has been given up.
    state: Option<Arc<LeaseState>>,
}

impl Hold {
    /// One less. What was held, if this was the last.
    fn give_up(&mut self) -> Option<Arc<LeaseState>> {
        let state = self.state.take()?;
        (state.holds.fetch_sub(1, Ordering::AcqRel) == 1).then_some(state)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(state) = self.give_up() {
            state.post(|mail| mail.dropped = true);
        }
    }
}

/// Finds a lease again that its owner may still have.
#[derive(Default)]
pub(crate) struct Trace {
    state: Weak<LeaseState>,
}

impl Trace {
    /// One more lease of what is held already; `None` if it has been given back.
    pub(crate) fn again(&self) -> Option<Lease> {
        let state = self.state.upgrade()?;
        let one_more = |holds: usize| (holds > 0).then_some(holds + 1);
        state.holds.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Lease::one_of(state))
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state.upgrade().is_some_and(|state| state.holds.load(Ordering::Acquire) > 0)
    }
}

/// Watches a [`Lease`], and cannot release it. As many as you like, in any task.
#[derive(Clone)]
pub struct LeaseWatch {
    state: Arc<LeaseState>,
}

impl Lease {
    /// One of those for which `state` counts.
    pub(crate) fn one_of(state: Arc<LeaseState>) -> Lease {
        Lease { watch: LeaseWatch { state: state.clone() }, hold: Hold { state: Some(state) } }
    }

    pub(crate) fn trace(&self) -> Trace {
        Trace { state: Arc::downgrade(&self.watch.state) }
    }

    /// What is locked.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        self.watch.resource()
    }

    /// The token that stands at the nodes.
    #[must_use]
    pub fn token(&self) -> &Token {
        self.watch.token()
    }

    /// The number for the guarded resource to check: larger than that of every lease that was there
    /// before; readers that share a lock may have the same. It stays the same when the lease is
    /// renewed, or acquired again by its [owner](crate::Owner). See [`fence`](crate::fence) for what the resource has to do with it.
    ///
    /// # Panics
    ///
    /// If fencing is [off](crate::Fencing::Off) for the lock: no number is better than one that
    /// orders nothing. [`try_fencing_token`](Lease::try_fencing_token) asks.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.watch.fencing_token()
    }

    /// As [`fencing_token`](Lease::fencing_token); `None` if fencing is off for the lock.
    #[must_use]
    pub fn try_fencing_token(&self) -> Option<FencingToken> {
        self.watch.try_fencing_token()
    }

    /// Whether the lease holds at this moment: reads the clock, asks nobody, costs less than a
    /// microsecond.
    ///
    /// # Errors
    ///
    /// [`Lost`] from the end of validity on, for ever: a renewal that is confirmed too late does
    /// not revive the lease.
    pub fn check(&self) -> Result<(), Lost> {
        self.watch.check()
    }

    /// For how much longer the lease holds if it is not renewed; zero when it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.watch.remaining()
    }

    /// Ends when the lease is over, no later than the end of its validity, whether any node
    /// answers or not. The last two milliseconds are given up for that: timers fire late.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future; call again.
    pub async fn lost(&self) -> Lost {
        self.watch.lost().await
    }

    /// Runs `work` until it ends or the lease does, whichever comes first. `Ok` means that the
    /// lease held until the work had ended.
    ///
    /// # Errors
    ///
    /// [`Lost`] when the lease ended first. The work is dropped where it waits: it is not stopped
    /// in the middle of a computation, and what it has sent is on its way.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work. The lease stays.
    pub async fn run_until_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        self.watch.run_until_lost(work).await
    }

    /// Renews the lease now: asks all nodes for a full TTL from here on.
    ///
    /// Needed with [`Renewal::Manual`](crate::Renewal::Manual) only.
    ///
    /// # Errors
    ///
    /// [`RenewError::Unconfirmed`] when no quorum answered in time: the lease keeps its old end.
    /// [`RenewError::Lost`] when it is over.
    ///
    /// # Cancel safety
    ///
    /// The renewal goes on when the future is dropped.
    pub async fn renew(&self) -> Result<(), RenewError> {
        let (sender, receiver) = oneshot::channel();
        self.watch.state.post(|mail| mail.renewals.push(sender));
        match receiver.await {
            Ok(outcome) => outcome,
            // There is nobody who could renew it: it is over, or the runtime is that it lived in.
            Err(_) => Err(RenewError::Lost(self.watch.state.forsake())),
        }
    }

    /// Gives the lock back, and says whether the lease held until now.
    ///
    /// Ends when a quorum has confirmed, or after the time limit of a node. Nodes that did not
    /// answer are told again in the background until the TTL has passed, when the lock ends there
    /// by itself.
    ///
    /// # Errors
    ///
    /// [`Lost`] when the lease was over before. There is nothing to give back then, and what was
    /// done under it may not have been protected.
    ///
    /// # Cancel safety
    ///
    /// The lock is given back when the future is dropped, at whatever point.
    pub async fn release(mut self) -> Result<(), Lost> {
        self.watch.check()?;
        // Held once more by its owner: the last one to be released gives the lock back.
        let Some(state) = self.hold.give_up() else { return Ok(()) };
        if let Some(keeper) = state.take_keeper() {
            keeper.give_back().await;
            return Ok(());
        }
        let (reply, replied) = oneshot::channel();
        state.post(|mail| mail.release = Some(reply));
        replied.await.unwrap_or_else(|_| Err(state.forsake()))
    }

    /// Whether the lock is held alone, or shared with other readers.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.watch.mode()
    }

    /// Makes a reader of a writer, without a moment in which another writer could come between: from
    /// here on the lease is [shared](crate::Lock::shared), and other readers may join. Token, fencing
    /// token and watchers stay. A lease that is shared already stays as it is.
    ///
    /// There is no way back: what the lease claims is less from the moment of the call, whatever the
    /// nodes answer. It ends when a quorum has confirmed, which also renews the lease, or when the nodes
    /// have had their time. Those that have not heard of it go on excluding readers; the next renewal
    /// tells them again.
    ///
    /// # Errors
    ///
    /// [`DowngradeError::Lost`] when the lease is over, [`DowngradeError::HeldAgain`] with the lease when
    /// its [owner](crate::Owner) has another one of the same lock, [`DowngradeError::Several`] with the lease
    /// where it is of [several](crate::Coordinator::lock_all) resources.
    ///
    /// # Cancel safety
    ///
    /// The lock is given back when the future is dropped, as it has the lease.
    pub async fn downgrade(self) -> Result<Lease, DowngradeError> {
        self.watch.check()?;
        if self.watch.state.claim.is_several() {
            return Err(DowngradeError::Several { lease: self });
        }
        {
            let mut mode = self.watch.state.mode();
            if *mode == Mode::Shared {
                drop(mode);
                return Ok(self);
            }
            // Whoever enters again reads the mode after it has taken hold: either it is seen here, or
            // it sees there that the lock is shared.
            if self.watch.state.holds.load(Ordering::Acquire) > 1 {
                drop(mode);
                return Err(DowngradeError::HeldAgain { lease: self });
            }
            *mode = Mode::Shared;
        }
        let (sender, receiver) = oneshot::channel();
        self.watch.state.post(|mail| mail.downgrade = Some(sender));
        match receiver.await {
            Ok(Ok(()) | Err(RenewError::Unconfirmed { .. } | RenewError::InAsyncContext(_))) => Ok(self),
            Ok(Err(RenewError::Lost(lost))) => Err(lost.into()),
            Err(_) => Err(self.watch.state.forsake().into()),
        }
    }

    /// Runs `work` under the lease, and gives it back: [`Lock::with`](crate::Lock::with).
    pub(crate) async fn run<T, E, Work, Running>(self, work: Work) -> Result<T, WithError<E>>
    where
        Work: FnOnce(LeaseWatch) -> Running,
        Running: Future<Output = Result<T, E>>,
    {
        let outcome = self.run_until_lost(work(self.watch())).await.map_err(WithError::Lost)?;
        let released = self.release().await;
        // The work's own error says more than a loss that came after it.
        let value = outcome.map_err(WithError::Work)?;
        released.map_err(WithError::Lost)?;
        Ok(value)
    }

    /// Somebody who watches this lease.
    #[must_use]
    pub fn watch(&self) -> LeaseWatch {
        self.watch.clone()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watch.fmt(f)
    }
}

impl LeaseWatch {
    /// As [`Lease::resource`].
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.state.resource
    }

    /// As [`Lease::token`].
    #[must_use]
    pub fn token(&self) -> &Token {
        self.state.token()
    }

    /// As [`Lease::mode`]. It changes when the holder [downgrades](Lease::downgrade).
    #[must_use]
    pub fn mode(&self) -> Mode {
        *self.state.mode()
    }

    /// As [`Lease::fencing_token`].
    ///
    /// # Panics
    ///
    /// If fencing is [off](crate::Fencing::Off) for the lock.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a program that asks for it must not switch it off")]
    pub fn fencing_token(&self) -> FencingToken {
        self.state.fence.expect("this lock was acquired with `Fencing::Off` and has no fencing token")
    }

    /// As [`Lease::try_fencing_token`].
    #[must_use]
    pub fn try_fencing_token(&self) -> Option<FencingToken> {
        self.state.fence
    }

    /// As [`Lease::check`].
    ///
    /// # Errors
    ///
    /// [`Lost`] once the lease is over.
    pub fn check(&self) -> Result<(), Lost> {
        match self.state.term.remaining(self.state.clock.now()) {
            Some(_) => Ok(()),
            None => Err(self.state.lapse()),
        }
    }

    /// As [`Lease::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let now = self.state.clock.now();
        self.state.term.remaining(now).map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// As [`Lease::lost`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future; call again.
    pub async fn lost(&self) -> Lost {
        loop {
            let over = self.state.over.notified();
            tokio::pin!(over);
            over.as_mut().enable();
            let now = self.state.clock.now();
            let Some(deadline) = self.state.term.remaining(now) else {
                return self.state.lapse();
            };
            let last_call = deadline.back(TIMER_SLACK);
            if now >= last_call {
                return self.state.end(self.state.lapsed(deadline));
            }
            // The runtime's timers stand still during suspend. Looking at the clock now and then
            // bounds how late a machine that wakes up notices.
            let look = last_call.min(now + SUSPEND_CHECK);
            match select(over, self.state.clock.sleep_until(look)).await {
                Either::Left(_) | Either::Right(_) => {}
            }
        }
    }

    /// As [`Lease::run_until_lost`].
    ///
    /// # Errors
    ///
    /// [`Lost`] when the lease ended first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work.
    pub async fn run_until_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        poll_fn(|cx| {
            // The clock is asked before each step of the work, so that work which is always ready
            // does not outrun the timer.
            if let Err(lost) = self.check() {
                return Poll::Ready(Err(lost));
            }
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                return Poll::Ready(self.check().map(|()| output));
            }
            lost.as_mut().poll(cx).map(Err)
        })
        .await
    }
}

/// Timers have a resolution of a millisecond and fire late. Whoever waits for the loss is told this
/// much before the end of validity, so as not to be told after it.
const TIMER_SLACK: Duration = Duration::from_millis(2);
/// How often [`LeaseWatch::lost`] looks at the clock.
const SUSPEND_CHECK: Duration = Duration::from_secs(1);

impl fmt::Debug for LeaseWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("resource", self.resource())
            .field("token", self.token())
            .field("fencing_token", &self.try_fencing_token())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// What the lease, its watchers and its keeper share.
#[derive(Debug)]
pub(crate) struct LeaseState {
    pub(crate) resource: Resource,
    claim: Arc<Claim>,
    /// `None` where fencing is off.
    pub(crate) fence: Option<FencingToken>,
    pub(crate) term: Term,
    /// The claim's, until the holder downgrades.
    mode: Mutex<Mode>,
    /// No renewal moves the deadline beyond this.
    hold_until: Moment,
    clock: Arc<dyn Clock>,
    /// Wakes those who wait for the loss. They have timers of their own for the end of validity;
    /// this is for ends that come earlier.
    over: Notify,
    reason: Mutex<Option<LossReason>>,
    /// How often its owner has it.
    holds: AtomicUsize,
    desk: Mutex<Desk>,
    trail: Mutex<Trail>,
}

/// Where the keeper of the lease is.
enum Desk {
    /// Here, since nothing happens. Whoever takes it out owns it, and nobody else acts on the lease.
    Idle(Box<Keeper>),
    /// With whoever has taken it, who looks for letters.
    Away(Option<Box<Letterbox>>),
    /// There is none any more.
    Gone,
}

/// What was left for the keeper while it was away, and who is woken by it.
#[derive(Default)]
struct Letterbox {
    mail: Mail,
    /// Its alarm has rung.
    rung: bool,
    keeper: Option<Waker>,
}

/// What the latest round has left at the nodes.
#[derive(Default)]
pub(crate) enum Trail {
    /// Nothing but what is known.
    #[default]
    None,
    /// Nodes may still answer.
    OnItsWay(Arc<Round>),
    /// All have answered.
    Settled(Standings),
}

/// What the holder wants from the keeper.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) renewals: Vec<oneshot::Sender<Result<(), RenewError>>>,
    pub(crate) release: Option<oneshot::Sender<Result<(), Lost>>>,
    /// The lease is shared from now on.
    pub(crate) downgrade: Option<oneshot::Sender<Result<(), RenewError>>>,
    pub(crate) dropped: bool,
}

impl Mail {
    /// Whether the holder gives the lease back.
    pub(crate) fn ends(&self) -> bool {
        self.dropped || self.release.is_some()
    }

    fn is_empty(&self) -> bool {
        !self.ends() && self.downgrade.is_none() && self.renewals.is_empty()
    }
}

/// Without the keeper, which would show this lease.
impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Desk::Idle(_) => "Idle",
            Desk::Away(_) => "Away",
            Desk::Gone => "Gone",
        })
    }
}

/// Without the round, which would show this lease.
impl fmt::Debug for Trail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trail::None => f.write_str("None"),
            Trail::OnItsWay(_) => f.write_str("OnItsWay"),
            Trail::Settled(standings) => f.debug_tuple("Settled").field(standings).finish(),
        }
    }
}

impl LeaseState {
    pub(crate) fn new(
        resource: &Resource,
        claim: &Arc<Claim>,
        fence: Option<FencingToken>,
        deadline: Moment,
        hold_until: Option<Moment>,
        shared: &Shared,
    ) -> Arc<LeaseState> {
        let hold_until = hold_until.unwrap_or(Moment::NEVER);
        Arc::new(LeaseState {
            resource: resource.clone(),
            claim: claim.clone(),
            fence,
            mode: Mutex::new(claim.mode()),
            term: Term::until(hold_until.min(deadline)),
            hold_until,
            clock: shared.nodes.clock.clone(),
            over: Notify::new(),
            reason: Mutex::new(None),
            holds: AtomicUsize::new(1),
            desk: Mutex::new(Desk::Away(None)),
            trail: Mutex::default(),
        })
    }

    pub(crate) fn token(&self) -> &Token {
        self.claim.token()
    }

    fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A quorum has confirmed at `now` a renewal that is good until `deadline`. Returns whether
    /// the lease still runs.
    pub(crate) fn renew(&self, deadline: Moment, now: Moment) -> bool {
        self.term.renew(self.hold_until.min(deadline), now)
    }

    /// For how much longer the lease holds at `now`.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        self.term.remaining(now).unwrap_or(now).since(now)
    }

    /// Why a lease whose deadline has passed by `now` is over.
    pub(crate) fn lapsed(&self, now: Moment) -> LossReason {
        if now >= self.hold_until { LossReason::MaxHold } else { LossReason::Expired }
    }

    /// The loss of a lease whose deadline has passed.
    fn lapse(&self) -> Lost {
        self.lost_for(self.lapsed(self.clock.now()))
    }

    /// Ends the term of a lease that nobody keeps any more.
    fn forsake(&self) -> Lost {
        self.end(self.lapsed(self.clock.now()))
    }

    /// Ends the term for `reason`, unless it has ended already, and tells whoever watches.
    pub(crate) fn end(&self, reason: LossReason) -> Lost {
        let lost = self.lost_for(reason);
        self.term.end();
        self.over.notify_waiters();
        lost
    }

    /// The loss, with the reason that was found first.
    fn lost_for(&self, reason: LossReason) -> Lost {
        let mut first = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        Lost::new(self.resource.clone(), *first.get_or_insert(reason))
    }

    /// Nothing happens: the keeper lies here until somebody wants something, or its alarm rings. It is
    /// returned where that is so already.
    pub(crate) fn rest(&self, keeper: Box<Keeper>) -> Option<Box<Keeper>> {
        let mut desk = self.desk();
        match &*desk {
            Desk::Away(Some(letterbox)) if letterbox.rung || !letterbox.mail.is_empty() => Some(keeper),
            Desk::Idle(_) | Desk::Away(_) | Desk::Gone => {
                let before = mem::replace(&mut *desk, Desk::Idle(keeper));
                drop(desk);
                drop(before);
                None
            }
        }
    }

    /// The keeper, if nobody has taken it, and nobody waits here for what it keeps.
    fn take_keeper(&self) -> Option<Box<Keeper>> {
        let mut desk = self.desk();
        if let Desk::Idle(keeper) = &*desk
            && !keeper.is_waited_for()
            && let Desk::Idle(keeper) = mem::replace(&mut *desk, Desk::Away(None))
        {
            return Some(keeper);
        }
        None
    }

    /// Takes the mail, if there is some; else whoever asks is woken by the next.
    pub(crate) fn read(&self, context: Option<&Context<'_>>) -> Option<Mail> {
        let mut desk = self.desk();
        let Desk::Away(letterbox) = &mut *desk else { return None };
        let letters = letterbox.take();
        if let Some(context) = context
            && letters.as_ref().is_none_or(|letters| letters.mail.is_empty())
        {
            letterbox.get_or_insert_default().keeper = Some(context.waker().clone());
        }
        drop(desk);
        letters.map(|letters| letters.mail).filter(|mail| !mail.is_empty())
    }

    fn post(&self, write: impl FnOnce(&mut Mail)) {
        self.leave(|letterbox| write(&mut letterbox.mail));
    }

    /// Leaves something for the keeper, and has it look. Where there is none any more it is dropped, and
    /// whoever waits for an answer told so.
    fn leave(&self, write: impl FnOnce(&mut Letterbox)) {
        let mut desk = self.desk();
        let mut letters = match &mut *desk {
            Desk::Gone => return,
            Desk::Away(there) => there.take().unwrap_or_default(),
            Desk::Idle(_) => Box::default(),
        };
        write(&mut letters);
        let waker = letters.keeper.take();
        let before = mem::replace(&mut *desk, Desk::Away(Some(letters)));
        drop(desk);
        if let Desk::Idle(keeper) = before {
            keeper.set_out();
        } else if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// From now on there is no keeper.
    pub(crate) fn close_desk(&self) {
        let before = mem::replace(&mut *self.desk(), Desk::Gone);
        drop(before);
    }

    /// From now on keeps the standings that the round leaves, and until then the round.
    pub(crate) fn follow(self: &Arc<Self>, round: &Arc<Round>) {
        drop(mem::replace(&mut *self.trail(), Trail::OnItsWay(round.clone())));
        round.retire(self.clone());
    }

    /// All nodes have answered in the round.
    pub(crate) fn settled(&self, round: &Round, standings: Standings) {
        let mut trail = self.trail();
        let followed = matches!(&*trail, Trail::OnItsWay(latest) if ptr::eq(Arc::as_ptr(latest), round));
        let before =
            if followed { mem::replace(&mut *trail, Trail::Settled(standings)) } else { Trail::None };
        drop(trail);
        drop(before);
    }

    /// The round that is followed, or what it has left.
    pub(crate) fn take_trail(&self) -> Trail {
        mem::take(&mut *self.trail())
    }

    fn trail(&self) -> MutexGuard<'_, Trail> {
        self.trail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An alarm of its keeper.
impl Wake for LeaseState {
    fn wake(self: Arc<Self>) {
        self.leave(|letterbox| letterbox.rung = true);
    }
}
