//! A held lock, and read-only views of it.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::engine::commands::{Ended, Event, RenewReply, Retention};
use crate::engine::hold::{Hold, HoldGuard};
use crate::engine::lease_state::Releasing;
use crate::engine::options::Fencing;
use crate::error::{Lost, RenewError, RetainError, TEN_YEARS};
use crate::node::{Capabilities, Capability};
use quorlock_protocol::{FencingToken, Mode, Resource, Token};

mod kind;
mod watch;

pub use kind::{Fenced, Multi, Single, Unfenced};
pub use watch::LeaseWatch;

/// A held lock.
///
/// It renews itself in the background, unless the lock has [`Renewal::Manual`](crate::Renewal::Manual), and
/// is lost when that fails: call [`check`](Lease::check) right before each side effect. It does not stop
/// work that is paused past its end, nor a write that is already in flight then.
///
/// Dropping a lease releases the lock in the background, which `let _ = lock.acquire().await?` does on its line: bind it to
/// a name, such as `_lease`. [`release`](Lease::release) does the same and says whether the lease was valid until then. A
/// runtime that ends right after the drop, as at the end of `main`, may have sent nothing: the lock then stays taken for the
/// rest of the TTL. `release` waits, and so does [`Coordinator::close`](crate::Coordinator::close).
#[must_use = "dropping the lease releases the lock immediately: bind it to a name such as `_lease`, since `let _ =` drops it, too"]
pub struct Lease<K = Single, F = Fenced> {
    watch: LeaseWatch<F>,
    guard: HoldGuard,
    kind: PhantomData<fn() -> K>,
}

/// A held lock of several resources: what a [`MultiLock`](crate::MultiLock) gives. It is lost when it is lost
/// on any of them. It can be neither downgraded nor retained:
///
/// ```compile_fail,E0599
/// async fn read_on(lease: quorlock::MultiLease) { drop(lease.downgrade().await); }
/// ```
///
/// ```compile_fail,E0599
/// async fn keep(lease: quorlock::MultiLease) { drop(lease.retain(std::time::Duration::MAX, "").await); }
/// ```
pub type MultiLease<F = Fenced> = Lease<Multi, F>;

impl<K, F> Lease<K, F> {
    pub(crate) fn of(Hold { state, guard }: Hold) -> Lease<K, F> {
        Lease { watch: LeaseWatch { state, fencing: PhantomData }, guard, kind: PhantomData }
    }

    /// Returns the locked resource.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        self.watch.resource()
    }

    /// Returns the token that is stored on the nodes.
    #[must_use]
    pub fn token(&self) -> &Token {
        self.watch.token()
    }

    /// Returns the number by which the store itself orders the holders of the lock; `None` for stores that have none, and
    /// unless one node is the whole deployment.
    ///
    /// With etcd it is the create revision of the lock's key, with ZooKeeper the change that created the holder's node, by
    /// which their own clients take their turns too. It is the only number that *all* holders have, where programs without
    /// this library lock the same name. To guard a resource, use the [fencing token](Self::fencing_token): the store's
    /// numbers fall when an old backup is restored.
    #[must_use]
    pub fn store_revision(&self) -> Option<u64> {
        self.watch.store_revision()
    }

    /// Checks that the lease is valid now. Reads the clock, sends nothing, takes less than a microsecond.
    ///
    /// # Errors
    ///
    /// [`Lost`] once validity has ended, and forever after: a renewal that is confirmed too late does not
    /// revive the lease.
    pub fn check(&self) -> Result<(), Lost> {
        self.watch.check()
    }

    /// Returns for how much longer the lease is valid if it is not renewed; zero once it is over.
    ///
    /// Where another process has handed the lock off, this is less than the TTL at first: 0.3 to 1.2 s, or less if the TTL
    /// or half of [`max_ttl`](crate::Builder::max_ttl) is shorter than 1.2 s. A thirtieth of that later, up to 40 ms, it is
    /// renewed to the TTL, also while the work blocks its thread. A lease with
    /// [`Renewal::Manual`](crate::Renewal::Manual) begins with its TTL.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.watch.remaining()
    }

    /// Waits until the lease is over, and says why. Returns no later than the end of validity, whether any
    /// node answers or not; the last two milliseconds are given up for that, because timers fire late.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect; call again.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn lost(&self) -> Lost {
        self.watch.lost().await
    }

    /// Runs `work` until it ends or the lease does, whichever is first. `Ok` means that the lease was valid
    /// until the work had ended.
    ///
    /// # Errors
    ///
    /// [`Lost`] when the lease ended first. The work is dropped at the point where it waits: a computation
    /// is not interrupted, and what it has sent stays sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work. The lease stays.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn run_until_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        self.watch.run_until_lost(work).await
    }

    /// Renews the lease now: asks all nodes for a full TTL from here on. Only needed with
    /// [`Renewal::Manual`](crate::Renewal::Manual).
    ///
    /// # Errors
    ///
    /// [`RenewError::Unconfirmed`] when no quorum answered in time: the lease keeps its old end.
    /// [`RenewError::Lost`] when it is over.
    ///
    /// # Cancel safety
    ///
    /// The renewal continues when the future is dropped.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn renew(&self) -> Result<(), RenewError> {
        self.renewed(Event::Renew).await
    }

    /// As [`renew`](Lease::renew), for `ttl` instead of the lease's TTL, which this becomes: later renewals ask for it,
    /// and after a crash others wait for as long. A shorter one leaves the TTL as it is. Where a renewal proves less than
    /// the TTL ([`Node::grant_age`](crate::node::Node::grant_age)), as with the session of ZooKeeper, it adds less.
    ///
    /// # Errors
    ///
    /// As of [`renew`](Lease::renew), and [`RenewError::Refused`] for a `ttl` above
    /// [`max_ttl`](crate::Builder::max_ttl) or shorter than a lock may have: nothing is sent, and the lease goes on.
    ///
    /// # Cancel safety
    ///
    /// The renewal continues when the future is dropped.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn extend(&self, ttl: Duration) -> Result<(), RenewError> {
        self.renewed(|reply| Event::Extend(ttl, reply)).await
    }

    async fn renewed(&self, event: impl FnOnce(RenewReply) -> Event) -> Result<(), RenewError> {
        let (sender, receiver) = oneshot::channel();
        self.watch.state.handle(event(sender));
        match self.watch.state.helped(receiver).await {
            Ok(outcome) => outcome,
            // Nothing is left to renew it: the lease is over, or its runtime has ended.
            Err(_) => Err(RenewError::Lost(self.watch.state.end_without_keeper())),
        }
    }

    /// Releases the lock, and says whether the lease was valid until now.
    ///
    /// Returns when a quorum has confirmed, or after the node timeout. Nodes that did not answer are asked
    /// again in the background until the TTL has passed and the lock has expired there. `Ok` says that the
    /// lease was valid, not that the lock is free already: where that matters, read
    /// [`LeaseWatch::unconfirmed_release`] afterwards. A release that no quorum confirmed is logged as a
    /// warning.
    ///
    /// # Errors
    ///
    /// [`Lost`] when the lease was over before, or when so many nodes no longer had its key that another client may
    /// have held the lock: the key was deleted there, or revoked. There is nothing to release then, and the work done
    /// under it may not have been protected. Without fencing, a caller of this process that takes the lock over asks no
    /// node, so this is not seen then. The error alone says so: for [`watch`](Lease::watch) and its listeners the lease ended
    /// when it was released.
    ///
    /// # Cancel safety
    ///
    /// The lock is released even when the future is dropped, at whatever point.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime, and the lock is released all the same.
    pub async fn release(mut self) -> Result<(), Lost> {
        self.watch.check()?;
        // Its owner may hold it more than once: the last release gives the lock back.
        let Some(state) = self.guard.give_up() else { return Ok(()) };
        match state.release() {
            Releasing::Here(released) => released.await,
            Releasing::Elsewhere(replied) => {
                let released = state.helped(replied).await;
                released.unwrap_or_else(|_| Err(state.end_without_keeper()))
            }
        }
    }

    /// Returns whether the lock is held exclusively, or shared with other readers.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.watch.mode()
    }

    /// Runs `work` under the lease, and releases it: [`Lock::with`](crate::Lock::with).
    pub(crate) async fn run<T, E, Work, Running>(self, work: Work) -> Result<T, E>
    where
        Work: FnOnce(LeaseWatch<F>) -> Running,
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

    /// Returns a read-only view of this lease, which can be cloned and cannot release it.
    #[must_use]
    pub fn watch(&self) -> LeaseWatch<F> {
        self.watch.clone()
    }
}

impl<K> Lease<K> {
    /// Returns the number for the guarded resource to check.
    ///
    /// It is larger than that of every earlier lease; of readers that share a lock each has its own, in no order. It stays the
    /// same when the lease is renewed, or acquired again by its [owner](crate::Owner). See
    /// [`fence`](crate::fence) for what the resource does with it.
    ///
    /// A lease of a lock [without fencing](crate::Lock::unfenced) has none:
    ///
    /// ```compile_fail,E0599
    /// async fn store(lock: quorlock::Lock) {
    ///     let lease = lock.unfenced().acquire().await.unwrap();
    ///     drop(lease.fencing_token());
    /// }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.watch.fencing_token()
    }
}

impl<K> Lease<K, Fencing> {
    /// Returns the number for the guarded resource to check; `None` if fencing is [off](Fencing::Off).
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.watch.fencing_token()
    }
}

impl<K> From<Lease<K>> for Lease<K, Fencing> {
    fn from(Lease { watch, guard, kind: _ }: Lease<K>) -> Lease<K, Fencing> {
        Lease { watch: watch.into(), guard, kind: PhantomData }
    }
}

/// Why a lease of this mode, on nodes with these capabilities, cannot be retained for `time`.
pub(crate) fn why_not_retained(
    mode: Mode,
    capabilities: Capabilities,
    time: Duration,
) -> Option<&'static str> {
    if mode == Mode::Shared {
        Some("it is shared with others")
    } else if !capabilities.has(Capability::Transfer) {
        Some("not all of its nodes can replace a lock's token")
    } else if time > TEN_YEARS {
        Some("it can be retained for ten years at most")
    } else {
        None
    }
}

impl<F> Lease<Single, F> {
    /// Ends the lease and keeps the lock taken for `time`, held by no process: for work that is to be done
    /// once in that time, although it takes less.
    ///
    /// Asks the nodes to store a new token, which [says](Token::is_retained) that it is retained, and has
    /// `note` in its context after host, process and label. Other clients are refused until it expires. With
    /// a `time` of zero this is a [release](Lease::release).
    ///
    /// Neither TTL nor `max_ttl` limits `time`, which is at most ten years; at most 120 characters of the note are used.
    /// The servers' clocks measure it. Nothing renews it: a server that restarts without its data forgets
    /// it, and votes for others after `max_ttl`. The lock stays taken as long as fewer nodes forget it than
    /// another client needs for a quorum.
    ///
    /// Waiters, of this process and others, go on waiting. [`Lock::revoke`](crate::Lock::revoke) frees the
    /// lock early. Before the work, [`Lock::validate_retention`](crate::Lock::validate_retention) says whether it will be
    /// possible.
    ///
    /// # Errors
    ///
    /// [`RetainError::Lost`] when the lease was over before, and the lock is not kept; also when the answers show that
    /// the nodes had lost the key before, so that another client may have held the lock: it then stays taken where a
    /// quorum has stored the new token.
    /// [`RetainError::Unconfirmed`] when no quorum confirmed, although it was asked repeatedly until the end
    /// of the lease: others may get the lock early. [`RetainError::Unsupported`] for a lease that is
    /// [shared](crate::Lock::shared) or held more than once by its [owner](crate::Owner), for a longer time than ten
    /// years, and where a node cannot [replace a token](crate::node::Capability::Transfer); this lease is released.
    ///
    /// # Cancel safety
    ///
    /// It continues when the future is dropped.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime, and the lock is retained all the same.
    pub async fn retain(mut self, time: Duration, note: &str) -> Result<(), RetainError> {
        self.watch.check()?;
        let reason = why_not_retained(self.mode(), self.watch.state.capabilities, time);
        let state = if reason.is_none() { self.guard.give_up_alone() } else { None };
        let Some(state) = state else {
            let reason = reason.unwrap_or("its owner holds it once more");
            return Err(RetainError::Unsupported { resource: self.resource().clone(), reason });
        };
        let (reply, replied) = oneshot::channel();
        let wanted = Retention::new(state.timers.now() + time, note, reply);
        state.handle(Event::End(Ended::Retained(wanted)));
        state.helped(replied).await.unwrap_or_else(|_| Err(state.end_without_keeper().into()))
    }

    /// Downgrades to a [shared](crate::Lock::shared) lease atomically: no other writer can acquire the lock
    /// in between, and other readers may join. Token, fencing token and watches stay. A shared lease stays
    /// as it is.
    ///
    /// There is no way back: the lease claims less from the moment of the call, whatever the nodes answer.
    /// Returns when a quorum has confirmed, which also renews the lease, or after the node timeout. A node
    /// that has not confirmed goes on refusing readers; the next renewal asks it again.
    ///
    /// # Errors
    ///
    /// [`DowngradeError::Lost`] when the lease is over. With the lease,
    /// [`DowngradeError::HeldAgain`] when its [owner](crate::Owner) holds the same lock more than once, and
    /// [`DowngradeError::Unsupported`] where a node cannot carry out shared locks.
    ///
    /// # Cancel safety
    ///
    /// The future owns the lease: dropping it releases the lock.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn downgrade(self) -> Result<Lease<Single, F>, DowngradeError<Lease<Single, F>>> {
        self.watch.check()?;
        let resource = self.resource().clone();
        if !self.watch.state.capabilities.has(Capability::Shared) {
            return Err(DowngradeError::Unsupported { lease: self, resource });
        }
        {
            let mut mode = self.watch.state.mode();
            if *mode == Mode::Shared {
                drop(mode);
                return Ok(self);
            }
            // An owner that acquires again reads the mode after it has counted its hold: either the hold is seen
            // here, or it sees there that the lock is shared.
            if self.watch.state.holds.load(Ordering::Acquire) > 1 {
                drop(mode);
                return Err(DowngradeError::HeldAgain { lease: self, resource });
            }
            *mode = Mode::Shared;
        }
        let (sender, receiver) = oneshot::channel();
        self.watch.state.handle(Event::Downgrade(sender));
        match self.watch.state.helped(receiver).await {
            Ok(Ok(()) | Err(RenewError::Unconfirmed { .. } | RenewError::Refused(_))) => Ok(self),
            Ok(Err(RenewError::Lost(lost))) => Err(lost.into()),
            Err(_) => Err(self.watch.state.end_without_keeper().into()),
        }
    }
}

/// Why a lease was not downgraded. `L` is the lease: of async code, or of [`blocking`](crate::blocking).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DowngradeError<L = Lease> {
    /// The lease is over.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// Its owner has acquired the lock more than once, and another of its leases may rely on being exclusive.
    /// Nothing has changed.
    #[error("`{resource}` is held more than once by its owner; downgrade the last lease that is left")]
    HeldAgain {
        /// The lease, unchanged.
        lease: L,
        /// The locked resource.
        resource: Resource,
    },
    /// A node cannot carry out [shared locks](crate::node::Capability::Shared). Nothing has changed.
    #[error("`{resource}` cannot be shared: not all of its nodes support shared locks")]
    Unsupported {
        /// The lease, unchanged.
        lease: L,
        /// The locked resource.
        resource: Resource,
    },
}

#[cfg(feature = "blocking")]
impl<F> DowngradeError<Lease<Single, F>> {
    /// The same error, with what is `made` of the lease.
    pub(crate) fn map_lease<L>(self, made: impl FnOnce(Lease<Single, F>) -> L) -> DowngradeError<L> {
        match self {
            DowngradeError::Lost(lost) => DowngradeError::Lost(lost),
            DowngradeError::HeldAgain { lease, resource } => {
                DowngradeError::HeldAgain { lease: made(lease), resource }
            }
            DowngradeError::Unsupported { lease, resource } => {
                DowngradeError::Unsupported { lease: made(lease), resource }
            }
        }
    }
}

impl<K, F> fmt::Debug for Lease<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watch.fmt(f)
    }
}
