//! A read-only view of a lease.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, select};

use crate::engine::hold::Hold;
use crate::engine::lease_state::LeaseState;
use crate::engine::options::Fencing;
use crate::error::Lost;
use crate::lease::kind::Fenced;
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{FencingToken, Mode, Resource, Token};

/// A read-only view of a [`Lease`](crate::Lease): can be cloned and sent to other tasks, and cannot release it.
pub struct LeaseWatch<F = Fenced> {
    pub(super) state: Arc<LeaseState>,
    pub(super) fencing: PhantomData<fn() -> F>,
}

impl<F> Clone for LeaseWatch<F> {
    fn clone(&self) -> LeaseWatch<F> {
        LeaseWatch { state: self.state.clone(), fencing: PhantomData }
    }
}

impl LeaseWatch {
    /// As [`Lease::fencing_token`](crate::Lease::fencing_token).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        debug_assert!(self.state.fence.is_some(), "a lease of a fenced lock has no fencing token");
        // The least is refused by each resource that has seen another.
        self.state.fence.unwrap_or(FencingToken::ZERO)
    }
}

impl LeaseWatch<Fencing> {
    /// As [`Lease::fencing_token`](crate::Lease::fencing_token); `None` if fencing is [off](Fencing::Off).
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.state.fence
    }
}

impl From<LeaseWatch> for LeaseWatch<Fencing> {
    fn from(watch: LeaseWatch) -> LeaseWatch<Fencing> {
        LeaseWatch { state: watch.state, fencing: PhantomData }
    }
}

impl<F> LeaseWatch<F> {
    pub(crate) fn of(hold: &Hold) -> LeaseWatch<F> {
        LeaseWatch { state: hold.state.clone(), fencing: PhantomData }
    }

    /// As [`Lease::resource`](crate::Lease::resource).
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.state.resource
    }

    /// As [`Lease::token`](crate::Lease::token).
    #[must_use]
    pub fn token(&self) -> &Token {
        self.state.token()
    }

    /// As [`Lease::mode`](crate::Lease::mode). It changes when the holder [downgrades](crate::Lease::downgrade).
    #[must_use]
    pub fn mode(&self) -> Mode {
        *self.state.mode()
    }

    /// As [`Lease::store_revision`](crate::Lease::store_revision).
    #[must_use]
    pub fn store_revision(&self) -> Option<u64> {
        self.state.store_revision.map(NonZeroU64::get)
    }

    /// As [`Lease::check`](crate::Lease::check).
    ///
    /// # Errors
    ///
    /// [`Lost`] once the lease is over.
    pub fn check(&self) -> Result<(), Lost> {
        match self.state.runs_until(self.state.timers.now()) {
            Some(_) => Ok(()),
            None => Err(self.state.lapse()),
        }
    }

    /// As [`Lease::remaining`](crate::Lease::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let now = self.state.timers.now();
        self.state.runs_until(now).map_or(Duration::ZERO, |deadline| deadline.since(now))
    }

    /// Returns whether [`remaining`](LeaseWatch::remaining) ends because the lock may be held no longer
    /// ([`Lock::max_hold`](crate::Lock::max_hold)), and not for want of a renewal. Not once the lease is over: then
    /// [`check`](LeaseWatch::check) has the reason.
    #[must_use]
    pub fn is_at_max_hold(&self) -> bool {
        self.state.is_at_max_hold(self.state.timers.now())
    }

    /// Returns the nodes' votes on the [release](crate::Lease::release) of the lease, if no quorum confirmed it
    /// within the node timeout. Until its TTL ends, the lock may still be stored on the nodes that refused or
    /// could not be reached; they are asked again in the background.
    #[must_use]
    pub fn unconfirmed_release(&self) -> Option<VoteReport> {
        self.state.unconfirmed()
    }

    /// As [`Lease::lost`](crate::Lease::lost).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect; call again.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn lost(&self) -> Lost {
        loop {
            let over = self.state.over.notified();
            tokio::pin!(over);
            over.as_mut().enable();
            let now = self.state.timers.now();
            let Some(deadline) = self.state.runs_until(now) else {
                return self.state.lapse();
            };
            let last_call = deadline.back(TIMER_SLACK);
            if now >= last_call {
                return self.state.end(self.state.lapsed(deadline));
            }
            match select(over, self.state.timers.until(Some(last_call))).await {
                Either::Left(_) | Either::Right(_) => {}
            }
        }
    }

    /// As [`Lease::run_until_lost`](crate::Lease::run_until_lost).
    ///
    /// # Errors
    ///
    /// [`Lost`] when the lease ended first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn run_until_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        poll_fn(|cx| {
            // The clock is read before each step of the work, so that work which is always ready does not outrun
            // the timer.
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

/// Timers have a resolution of a millisecond and fire late. [`LeaseWatch::lost`] returns this much before the end
/// of validity, so that it does not return after it.
const TIMER_SLACK: Duration = Duration::from_millis(2);

impl<F> fmt::Debug for LeaseWatch<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("resource", self.resource())
            .field("token", self.token())
            .field("fencing_token", &self.state.fence)
            .field("remaining", &self.remaining())
            .finish()
    }
}
