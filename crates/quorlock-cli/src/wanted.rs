//! What a command waits for: a lock, or a permit of a semaphore.

use std::ops::Deref;
use std::time::Duration;

use quorlock::{
    AcquireError, ConfigError, Fencing, Lost, PermitError, RenewError, RetainError, Wait,
    lock::{Multi, Single, Waiting},
    votes::{Holder, VoteReport},
};

use crate::time_left;

/// A lock and what else has or lacks a fencing token as the user wishes.
pub(crate) type Lock<K = Single> = quorlock::Lock<K, Fencing>;
pub(crate) type Lease<K = Single> = quorlock::Lease<K, Fencing>;
pub(crate) type LeaseWatch = quorlock::LeaseWatch<Fencing>;
pub(crate) type Semaphore = quorlock::Semaphore<Fencing>;

/// A lock, several together, or a semaphore, with its options.
pub(crate) enum Wanted {
    Lock(Lock),
    Several(Lock<Multi>),
    Permit(Semaphore),
}

/// What was acquired: a lease to look at, to renew, and to end.
pub(crate) struct Acquired {
    watch: LeaseWatch,
    lease: Held,
    /// The number of the semaphore's permit, if it is one.
    pub(crate) permit: Option<usize>,
}

enum Held {
    One(Lease),
    Several(Lease<Multi>),
}

impl Acquired {
    fn one(lease: Lease, permit: Option<usize>) -> Acquired {
        Acquired { watch: lease.watch(), lease: Held::One(lease), permit }
    }

    fn several(lease: Lease<Multi>) -> Acquired {
        Acquired { watch: lease.watch(), lease: Held::Several(lease), permit: None }
    }

    pub(crate) async fn renew(&self) -> Result<(), RenewError> {
        match &self.lease {
            Held::One(lease) => lease.renew().await,
            Held::Several(lease) => lease.renew().await,
        }
    }

    pub(crate) async fn release(self) -> Result<(), Lost> {
        match self.lease {
            Held::One(lease) => lease.release().await,
            Held::Several(lease) => lease.release().await,
        }
    }

    /// Keeps the lock taken for `time`.
    pub(crate) async fn retain(self, time: Duration, note: &str) -> Result<(), RetainError> {
        match self.lease {
            Held::One(lease) => lease.retain(time, note).await,
            // The options exclude each other: it is released as `retain` releases what it cannot keep.
            Held::Several(lease) => {
                let resource = lease.resource().clone();
                lease.release().await?;
                Err(RetainError::Unsupported { resource, reason: "it is of several resources" })
            }
        }
    }
}

impl Deref for Acquired {
    type Target = LeaseWatch;

    fn deref(&self) -> &LeaseWatch {
        &self.watch
    }
}

/// Why nothing was acquired.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Lock(#[from] AcquireError),
    #[error(transparent)]
    Permit(#[from] PermitError),
    /// It was acquired with little time left, and was given back.
    #[error("it was acquired too late to begin: {0}")]
    NotRenewed(RenewError),
}

impl Refusal {
    pub(crate) fn report(&self) -> Option<&VoteReport> {
        match self {
            Refusal::Lock(error) => error.report(),
            Refusal::Permit(error) => error.report(),
            Refusal::NotRenewed(_) => None,
        }
    }
}

impl Wanted {
    /// Refuses what could not stay taken for `time` after the run.
    pub(crate) fn validate_retention(&self, time: Duration) -> Result<(), ConfigError> {
        match self {
            Wanted::Lock(lock) => lock.validate_retention(time),
            // The options exclude each other.
            Wanted::Several(_) => Ok(()),
            Wanted::Permit(semaphore) => semaphore.validate_retention(time),
        }
    }

    pub(crate) async fn acquire(&self, wait: Wait) -> Result<Acquired, Refusal> {
        match self {
            Wanted::Lock(lock) => Ok(Acquired::one(lock.clone().wait(wait).acquire().await?, None)),
            Wanted::Several(lock) => Ok(Acquired::several(lock.clone().wait(wait).acquire().await?)),
            Wanted::Permit(semaphore) => {
                let permit = semaphore.clone().wait(wait).acquire().await?;
                let number = permit.number();
                Ok(Acquired::one(permit.into_lease(), Some(number)))
            }
        }
    }

    /// Notifies `listener` while waiting.
    pub(crate) fn on_wait(self, listener: impl Fn(&Waiting) + Send + Sync + 'static) -> Wanted {
        match self {
            Wanted::Lock(lock) => Wanted::Lock(lock.on_wait(listener)),
            Wanted::Several(lock) => Wanted::Several(lock.on_wait(listener)),
            Wanted::Permit(semaphore) => Wanted::Permit(semaphore.on_wait(listener)),
        }
    }

    /// Asks once more, and does not wait, if a quorum names a holder for which it `is_in_vain` to wait, for each permit if
    /// there are several: `None` if not.
    pub(crate) async fn ask_once_if(
        &self,
        is_in_vain: impl Fn(&Holder) -> bool,
    ) -> Option<Result<Acquired, Refusal>> {
        let is_in_vain = |report: &VoteReport| {
            let holder = report.holder().filter(|holder| holder.nodes >= report.quorum().needed());
            holder.is_some_and(|holder| is_in_vain(&holder))
        };
        match self {
            Wanted::Lock(lock) => {
                is_in_vain(&lock.inspect().await.ok()?).then_some(())?;
                let lock = Wanted::Lock(lock.clone());
                Some(Box::pin(lock.acquire(Wait::Never)).await)
            }
            // Several locks are never retained together.
            Wanted::Several(_) => None,
            Wanted::Permit(semaphore) => {
                semaphore.inspect().await.ok()?.iter().all(is_in_vain).then_some(())?;
                let semaphore = Wanted::Permit(semaphore.clone());
                Some(Box::pin(semaphore.acquire(Wait::Never)).await)
            }
        }
    }

    /// Whether other processes may wait for it.
    pub(crate) async fn may_be_waited_for(&self) -> bool {
        match self {
            Wanted::Lock(lock) => {
                lock.waiters().await.map_or(true, |queue| queue.has_more || !queue.waiters.is_empty())
            }
            // For these no node keeps a queue.
            Wanted::Several(_) | Wanted::Permit(_) => true,
        }
    }

    /// Describes the current holders.
    pub(crate) async fn in_the_way(&self) -> String {
        match self {
            Wanted::Lock(lock) => match lock.inspect().await {
                Ok(report) => of_lock(&report),
                Err(error) => error.to_string(),
            },
            Wanted::Several(lock) => match lock.inspect().await {
                Ok(report) => of_lock(&report),
                Err(error) => error.to_string(),
            },
            Wanted::Permit(semaphore) => match semaphore.inspect().await {
                Ok(reports) => of_permits(&reports),
                Err(error) => error.to_string(),
            },
        }
    }
}

fn of_lock(report: &VoteReport) -> String {
    let Some(holder) = report.holder() else { return format!("no quorum: {report}") };
    format!(
        "{}{} {} {}",
        holder.key.as_ref().map(|key| format!("`{key}` ")).unwrap_or_default(),
        if holder.token.is_retained() { "stays taken:" } else { "held by" },
        holder.describe(),
        time_left::in_words(holder.remaining),
    )
}

fn of_permits(reports: &[VoteReport]) -> String {
    let holders: Vec<Option<Holder>> = reports.iter().map(VoteReport::holder).collect();
    let permit = |(number, holder): (usize, &Option<Holder>)| {
        let who = holder.as_ref().map_or_else(|| "free".to_owned(), Holder::describe);
        format!("#{number} {who}")
    };
    let all: Vec<String> = holders.iter().enumerate().map(permit).collect();
    format!("all {} permits are taken: {}", reports.len(), all.join(", "))
}
