//! A held lock, and those who watch it.

use std::fmt;
use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::engine::hold::{Hold, HoldGuard, WeakHold};
use crate::error::{InAsyncContext, Lost, RenewError, RetainError};
use crate::node::Capability;
use quorlock_protocol::{FencingToken, Mode, Resource, Token};

mod watch;

use crate::engine::commands::Retention;
pub use watch::LeaseWatch;

/// Servers cannot count to any number of milliseconds.
const RETAIN_LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

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
    guard: HoldGuard,
}

impl Lease {
    /// Of what the engine has delivered.
    pub(crate) fn of(Hold { state, guard }: Hold) -> Lease {
        Lease { watch: LeaseWatch { state }, guard }
    }

    pub(crate) fn trace(&self) -> WeakHold {
        WeakHold::of(&self.watch.state)
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
    ///
    /// Less than the TTL at first where another process has passed the lock on: about a second, or ten round trips.
    /// Then it is renewed to the TTL after a third of that. One that is renewed by hand
    /// ([`Renewal::Manual`](crate::Renewal::Manual)) begins with its TTL.
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
        self.watch.state.post(|commands| commands.renewals.push(sender));
        match self.watch.state.helped(receiver).await {
            Ok(outcome) => outcome,
            // There is nobody who could renew it: it is over, or the runtime is that it lived in.
            Err(_) => Err(RenewError::Lost(self.watch.state.forsake())),
        }
    }

    /// Gives the lock back, and says whether the lease held until now.
    ///
    /// Ends when a quorum has confirmed, or after the time limit of a node. Nodes that did not
    /// answer are told again in the background until the TTL has passed, when the lock expires there.
    /// `Ok` says that the lease held until now, not that others can have the lock already: where that
    /// matters, ask [`LeaseWatch::unconfirmed_release`] afterwards. It is logged as a warning.
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
        let Some(state) = self.guard.give_up() else { return Ok(()) };
        if let Some(keeper) = state.take_keeper() {
            keeper.give_back().await;
            return Ok(());
        }
        let (reply, replied) = oneshot::channel();
        state.post(|commands| commands.release = Some(reply));
        let waited = state.helped(replied).await;
        waited.unwrap_or_else(|_| Err(state.forsake()))
    }

    /// Ends the lease and leaves the lock taken for another `time`, held by no process: for work that is to
    /// be done once in that time, although it takes less. It asks the nodes to keep a new token, whose
    /// context says `note` after host, process and label, and which [says](Token::is_retained) that it is
    /// retained; others are refused until it expires. With no `time` left it is a
    /// [release](Lease::release).
    ///
    /// Neither the TTL nor `max_ttl` bounds the time, of which ten years at most are heeded, and 120
    /// characters of the note. The servers' clocks measure it. It is no lease: nothing renews it, and a server that
    /// restarts without its data forgets it and votes for others after `max_ttl`. It holds as long as fewer
    /// nodes forget it than would leave others a quorum.
    ///
    /// Those who wait, here or elsewhere, go on waiting. [`Lock::revoke`](crate::Lock::revoke) frees the
    /// lock before its time.
    ///
    /// # Errors
    ///
    /// [`RetainError::Lost`] when the lease was over before, and the lock was not kept.
    /// [`RetainError::Unconfirmed`] when no quorum confirmed, although it was asked again and again until
    /// the end of the lease: others may get the lock before the time is up.
    /// [`RetainError::Unsupported`] for a lease that is [shared](crate::Lock::shared), of
    /// [several](crate::Coordinator::lock_all) resources, or held again by its [owner](crate::Owner), and where
    /// a node is of a kind that cannot [replace a token](crate::Capability::Transfer); it is given back.
    ///
    /// # Cancel safety
    ///
    /// It goes on when the future is dropped.
    pub async fn retain(mut self, time: Duration, note: &str) -> Result<(), RetainError> {
        self.watch.check()?;
        let reason = if self.watch.state.claim.is_several() {
            Some("it is of several resources")
        } else if self.mode() == Mode::Shared {
            Some("it is shared with others")
        } else if !self.watch.state.capabilities.has(Capability::Transfer) {
            Some("not all of its nodes can replace a lock's token")
        } else {
            None
        };
        let state = if reason.is_none() { self.guard.give_up_alone() } else { None };
        let Some(state) = state else {
            let reason = reason.unwrap_or("its owner holds it once more");
            return Err(RetainError::Unsupported { resource: self.resource().clone(), reason });
        };
        let (reply, replied) = oneshot::channel();
        let wanted = Retention::new(state.timers.now() + time.min(RETAIN_LONGEST), note, reply);
        match state.take_keeper() {
            Some(keeper) => keeper.leave_taken(wanted).await,
            None => state.post(|commands| commands.retain = Some(wanted)),
        }
        state.helped(replied).await.unwrap_or_else(|_| Err(state.forsake().into()))
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
    /// where it is of [several](crate::Coordinator::lock_all) resources, and
    /// [`DowngradeError::Unsupported`] with the lease where a node cannot carry out shared locks.
    ///
    /// # Cancel safety
    ///
    /// The lock is given back when the future is dropped, as it has the lease.
    pub async fn downgrade(self) -> Result<Lease, DowngradeError> {
        self.watch.check()?;
        let resource = self.resource().clone();
        if self.watch.state.claim.is_several() {
            return Err(DowngradeError::Several { lease: self, resource });
        }
        if !self.watch.state.capabilities.has(Capability::Shared) {
            return Err(DowngradeError::Unsupported { lease: self, resource });
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
                return Err(DowngradeError::HeldAgain { lease: self, resource });
            }
            *mode = Mode::Shared;
        }
        let (sender, receiver) = oneshot::channel();
        self.watch.state.post(|commands| commands.downgrade = Some(sender));
        match self.watch.state.helped(receiver).await {
            Ok(Ok(()) | Err(RenewError::Unconfirmed { .. } | RenewError::InAsyncContext(_))) => Ok(self),
            Ok(Err(RenewError::Lost(lost))) => Err(lost.into()),
            Err(_) => Err(self.watch.state.forsake().into()),
        }
    }

    /// Runs `work` under the lease, and gives it back: [`Lock::with`](crate::Lock::with).
    pub(crate) async fn run<T, E, Work, Running>(self, work: Work) -> Result<T, E>
    where
        Work: FnOnce(LeaseWatch) -> Running,
        Running: Future<Output = Result<T, E>>,
        E: From<Lost>,
    {
        let outcome = self.run_until_lost(work(self.watch())).await?;
        let released = self.release().await;
        // The work's own error says more than a loss that came after it.
        let value = outcome?;
        released?;
        Ok(value)
    }

    /// Somebody who watches this lease.
    #[must_use]
    pub fn watch(&self) -> LeaseWatch {
        self.watch.clone()
    }
}

/// Why a lease was not downgraded: one of async code, or `L`, one of [`blocking`](crate::blocking).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DowngradeError<L = Lease> {
    /// The lease is over.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// Its owner has acquired the lock more than once, and another of its leases may rely on being
    /// alone. Nothing has changed.
    #[error("`{resource}` is held more than once by its owner; downgrade the last lease that is left")]
    HeldAgain {
        /// The lease, as it was.
        lease: L,
        /// What is locked.
        resource: Resource,
    },
    /// The lease is of several resources, which are not shared. Nothing has changed.
    #[error(
        "`{resource}` are several resources at once, which cannot be shared; lock each alone to downgrade it"
    )]
    Several {
        /// The lease, as it was.
        lease: L,
        /// What is locked.
        resource: Resource,
    },
    /// A node cannot carry out [shared locks](crate::Capability::Shared). Nothing has changed.
    #[error("`{resource}` cannot be shared: not all of its nodes can carry out shared locks")]
    Unsupported {
        /// The lease, as it was.
        lease: L,
        /// What is locked.
        resource: Resource,
    },
    /// A call of the blocking API where it must not wait. Nothing has changed.
    #[error("{misuse}")]
    InAsyncContext {
        /// The lease, as it was.
        lease: L,
        /// What to do instead.
        misuse: InAsyncContext,
    },
}

#[cfg(feature = "blocking")]
impl DowngradeError {
    /// The same of what is `made` of the lease.
    pub(crate) fn of<L>(self, made: impl FnOnce(Lease) -> L) -> DowngradeError<L> {
        match self {
            DowngradeError::Lost(lost) => DowngradeError::Lost(lost),
            DowngradeError::HeldAgain { lease, resource } => {
                DowngradeError::HeldAgain { lease: made(lease), resource }
            }
            DowngradeError::Several { lease, resource } => {
                DowngradeError::Several { lease: made(lease), resource }
            }
            DowngradeError::Unsupported { lease, resource } => {
                DowngradeError::Unsupported { lease: made(lease), resource }
            }
            DowngradeError::InAsyncContext { lease, misuse } => {
                DowngradeError::InAsyncContext { lease: made(lease), misuse }
            }
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watch.fmt(f)
    }
}
