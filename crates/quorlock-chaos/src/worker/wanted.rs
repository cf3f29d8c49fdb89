//! What an attempt is at, and what comes of it.

use quorlock::{
    AcquireError, DowngradeError, Election, Leadership, Lease, LeaseWatch, Lock, Lost, MultiLease, MultiLock,
    PermitError, Semaphore, Wait,
};

/// A lock of some kind.
#[derive(Clone)]
pub(super) enum Wanted {
    Lock(Lock),
    Several(MultiLock),
    Permit(Semaphore),
    /// To lead, and to be known by this value.
    Lead(Election, String),
}

/// One that is held; of a permit, also its number.
pub(super) enum Held {
    Lease(Lease, Option<usize>),
    Several(MultiLease),
    Leadership(Leadership),
}

/// Why nothing was acquired.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Lock(#[from] AcquireError),
    #[error(transparent)]
    Permit(#[from] PermitError),
}

impl Wanted {
    /// Waits for it, or asks once.
    pub(super) async fn acquire(&self, wait: Wait) -> Result<Held, Refusal> {
        match self.clone() {
            Wanted::Lock(lock) => Ok(Held::Lease(lock.wait(wait).acquire().await?, None)),
            Wanted::Several(lock) => Ok(Held::Several(lock.wait(wait).acquire().await?)),
            Wanted::Permit(semaphore) => {
                let permit = semaphore.wait(wait).acquire().await?;
                let number = permit.number();
                Ok(Held::Lease(permit.into_lease(), Some(number)))
            }
            Wanted::Lead(election, value) => Ok(Held::Leadership(election.wait(wait).campaign(value).await?)),
        }
    }

    /// The same lock, together with others.
    pub(super) fn shared(self) -> Wanted {
        match self {
            Wanted::Lock(lock) => Wanted::Lock(lock.shared()),
            other @ (Wanted::Several(_) | Wanted::Permit(_) | Wanted::Lead(..)) => other,
        }
    }
}

impl Held {
    pub(super) fn watch(&self) -> LeaseWatch {
        match self {
            Held::Lease(lease, _) => lease.watch(),
            Held::Several(lease) => lease.watch(),
            Held::Leadership(leadership) => leadership.watch(),
        }
    }

    /// Which of a semaphore's permits it is.
    pub(super) fn number(&self) -> Option<usize> {
        match self {
            Held::Lease(_, number) => *number,
            Held::Several(_) | Held::Leadership(_) => None,
        }
    }

    pub(super) async fn downgrade(self) -> Result<Held, DowngradeError> {
        match self {
            Held::Lease(lease, number) => Ok(Held::Lease(lease.downgrade().await?, number)),
            other @ (Held::Several(_) | Held::Leadership(_)) => Ok(other),
        }
    }

    pub(super) async fn release(self) -> Result<(), Lost> {
        match self {
            Held::Lease(lease, _) => lease.release().await,
            Held::Several(lease) => lease.release().await,
            Held::Leadership(leadership) => leadership.resign().await,
        }
    }
}
