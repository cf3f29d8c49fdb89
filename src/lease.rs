//! A held lock, and those who watch it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;
use crate::coordinator::Shared;
use crate::error::{DowngradeError, LossReason, Lost, RenewError, WithError};
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
    hold: Arc<Hold>,
    watch: LeaseWatch,
}

/// The lock is held for as long as this lives. An owner that acquires the lock again has another
/// lease with the same hold.
pub(crate) struct Hold {
    state: Arc<LeaseState>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.state.post(|mail| mail.dropped = true);
    }
}

/// Watches a [`Lease`], and cannot release it. As many as you like, in any task.
#[derive(Clone)]
pub struct LeaseWatch {
    state: Arc<LeaseState>,
}

impl Lease {
    pub(crate) fn new(state: Arc<LeaseState>) -> Lease {
        Lease::again(Arc::new(Hold { state }))
    }

    /// One more lease of what is held already.
    pub(crate) fn again(hold: Arc<Hold>) -> Lease {
        Lease { watch: LeaseWatch { state: hold.state.clone() }, hold }
    }

    pub(crate) fn to_weak(&self) -> Weak<Hold> {
        Arc::downgrade(&self.hold)
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
    pub async fn release(self) -> Result<(), Lost> {
        self.watch.check()?;
        let Lease { hold, watch } = self;
        // Held once more by its owner: the last one to be released gives the lock back.
        let Some(hold) = Arc::into_inner(hold) else { return Ok(()) };
        let (sender, receiver) = oneshot::channel();
        hold.state.post(|mail| mail.release = Some(sender));
        match receiver.await {
            Ok(outcome) => outcome,
            Err(_) => Err(watch.state.forsake()),
        }
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
        if self.watch.state.is_several {
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
            if Arc::strong_count(&self.hold) > 1 {
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
        &self.state.token
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
    pub(crate) token: Token,
    /// `None` where fencing is off.
    pub(crate) fence: Option<FencingToken>,
    pub(crate) term: Term,
    is_several: bool,
    mode: Mutex<Mode>,
    /// No renewal moves the deadline beyond this.
    hold_until: Option<Moment>,
    clock: Arc<dyn Clock>,
    /// Wakes those who wait for the loss. They have timers of their own for the end of validity;
    /// this is for ends that come earlier.
    over: Notify,
    reason: Mutex<Option<LossReason>>,
    letterbox: Mutex<Letterbox>,
    trail: Mutex<Trail>,
}

/// What the holder wants from the keeper, and who is woken by it.
#[derive(Debug, Default)]
struct Letterbox {
    mail: Mail,
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
    /// Nobody reads it any more.
    closed: bool,
}

impl Mail {
    fn closed() -> Mail {
        Mail { closed: true, ..Mail::default() }
    }

    /// Whether the holder gives the lease back.
    pub(crate) fn ends(&self) -> bool {
        self.dropped || self.release.is_some()
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
        claim: &Claim,
        fence: Option<FencingToken>,
        deadline: Moment,
        hold_until: Option<Moment>,
        shared: &Shared,
    ) -> Arc<LeaseState> {
        Arc::new(LeaseState {
            resource: resource.clone(),
            token: claim.token().clone(),
            fence,
            is_several: claim.is_several(),
            mode: Mutex::new(claim.mode()),
            term: Term::until(hold_until.map_or(deadline, |end| end.min(deadline))),
            hold_until,
            clock: shared.nodes.clock.clone(),
            over: Notify::new(),
            reason: Mutex::new(None),
            letterbox: Mutex::default(),
            trail: Mutex::default(),
        })
    }

    fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A quorum has confirmed at `now` a renewal that is good until `deadline`. Returns whether
    /// the lease still runs.
    pub(crate) fn renew(&self, deadline: Moment, now: Moment) -> bool {
        self.term.renew(self.hold_until.map_or(deadline, |end| end.min(deadline)), now)
    }

    /// For how much longer the lease holds at `now`.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        self.term.remaining(now).unwrap_or(now).since(now)
    }

    /// Why a lease whose deadline has passed by `now` is over.
    pub(crate) fn lapsed(&self, now: Moment) -> LossReason {
        match self.hold_until {
            Some(end) if now >= end => LossReason::MaxHold,
            _ => LossReason::Expired,
        }
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

    /// Takes the mail, once there is some.
    pub(crate) fn poll_mail(&self, context: &Context<'_>) -> Poll<Mail> {
        let mut letterbox = self.lock();
        let mail = &mut letterbox.mail;
        if mail.ends() || mail.downgrade.is_some() || !mail.renewals.is_empty() {
            return Poll::Ready(mem::take(mail));
        }
        match &mut letterbox.keeper {
            Some(keeper) => keeper.clone_from(context.waker()),
            keeper => *keeper = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// What is posted when nobody reads the mail any more is dropped, and whoever waits for an
    /// answer told so.
    fn post(&self, write: impl FnOnce(&mut Mail)) {
        let mut letterbox = self.lock();
        write(&mut letterbox.mail);
        let closed = letterbox.mail.closed;
        let unread = if closed { mem::replace(&mut letterbox.mail, Mail::closed()) } else { Mail::default() };
        let keeper = letterbox.keeper.take();
        drop(letterbox);
        drop(unread);
        if let Some(keeper) = keeper {
            keeper.wake();
        }
    }

    /// From now on nobody reads the mail.
    pub(crate) fn close_mail(&self) {
        let unread = mem::replace(&mut *self.lock(), Letterbox { mail: Mail::closed(), keeper: None });
        drop(unread);
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

    fn lock(&self) -> MutexGuard<'_, Letterbox> {
        self.letterbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
