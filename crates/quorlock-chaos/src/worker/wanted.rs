//! The lock, permit or leadership that an attempt acquires.

use quorlock::{
    AcquireError, DowngradeError, Election, Leadership, Lease, LeaseWatch, Lock, Lost, Semaphore, Wait,
};

/// A lock, semaphore or election to acquire.
#[derive(Clone)]
pub(super) enum Wanted {
    Lock(Lock),
    Permit(Semaphore),
    /// An election, and the value to publish as leader.
    Lead(Election, String),
}

/// What was acquired; for a permit, with its number.
pub(super) enum Held {
    Lease(Lease, Option<usize>),
    Leadership(Leadership),
}

impl Wanted {
    /// Acquires as `wait` says.
    pub(super) async fn acquire(&self, wait: Wait) -> Result<Held, AcquireError> {
        match self.clone() {
            Wanted::Lock(lock) => Ok(Held::Lease(lock.wait(wait).acquire().await?, None)),
            Wanted::Permit(semaphore) => {
                let permit = semaphore.wait(wait).acquire().await?;
                Ok(Held::Lease(permit.lease, Some(permit.number)))
            }
            Wanted::Lead(election, value) => Ok(Held::Leadership(election.wait(wait).campaign(value).await?)),
        }
    }

    /// Returns the same lock in shared mode.
    pub(super) fn shared(self) -> Wanted {
        match self {
            Wanted::Lock(lock) => Wanted::Lock(lock.shared()),
            other @ (Wanted::Permit(_) | Wanted::Lead(..)) => other,
        }
    }
}

impl Held {
    pub(super) fn watch(&self) -> LeaseWatch {
        match self {
            Held::Lease(lease, _) => lease.watch(),
            Held::Leadership(leadership) => leadership.watch(),
        }
    }

    /// Returns the number of the permit.
    pub(super) fn number(&self) -> Option<usize> {
        match self {
            Held::Lease(_, number) => *number,
            Held::Leadership(_) => None,
        }
    }

    pub(super) async fn downgrade(self) -> Result<Held, DowngradeError> {
        match self {
            Held::Lease(lease, number) => Ok(Held::Lease(lease.downgrade().await?, number)),
            other @ Held::Leadership(_) => Ok(other),
        }
    }

    pub(super) async fn release(self) -> Result<(), Lost> {
        match self {
            Held::Lease(lease, _) => lease.release().await,
            Held::Leadership(leadership) => leadership.resign().await,
        }
    }
}
