//! The lock, permit or leadership that an attempt acquires.

use quorlock::{
    AcquireError, DowngradeError, Election, Fencing, Leadership, Lost, PermitError, Wait,
    lock::{Multi, Single},
};

/// A lease with a fencing token or without one, as the scenario says.
pub(super) type Lease<K = Single> = quorlock::Lease<K, Fencing>;
pub(super) type LeaseWatch = quorlock::LeaseWatch<Fencing>;

/// A lock, semaphore or election to acquire.
#[derive(Clone)]
pub(super) enum Wanted {
    Lock(quorlock::Lock<Single, Fencing>),
    Several(quorlock::Lock<Multi, Fencing>),
    Permit(quorlock::Semaphore<Fencing>),
    /// An election, and the value to publish as leader.
    Lead(Election, String),
}

/// What was acquired; for a permit, with its number.
pub(super) enum Held {
    Lease(Lease, Option<usize>),
    Several(Lease<Multi>),
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
    /// Acquires as `wait` says.
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

    /// Returns the same lock in shared mode.
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
            Held::Leadership(leadership) => leadership.watch().into(),
        }
    }

    /// Returns the number of the permit.
    pub(super) fn number(&self) -> Option<usize> {
        match self {
            Held::Lease(_, number) => *number,
            Held::Several(_) | Held::Leadership(_) => None,
        }
    }

    pub(super) async fn downgrade(self) -> Result<Held, DowngradeError<Lease>> {
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
