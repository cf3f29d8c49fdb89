//! What a command waits for: a lock, or a permit of a semaphore.

use quorlock::{
    AcquireError, Lease, Lock, Permit, Semaphore, Wait, duration,
    lock::Waiting,
    votes::{Holder, VoteReport},
};

/// A lock or a semaphore, with its options.
pub(crate) enum Wanted {
    Lock(Lock),
    Permit(Semaphore),
}

/// What was acquired.
pub(crate) struct Acquired {
    pub(crate) lease: Lease,
    /// The number of the permit, for a semaphore.
    pub(crate) permit: Option<usize>,
}

impl Wanted {
    pub(crate) async fn acquire(&self) -> Result<Acquired, AcquireError> {
        match self {
            Wanted::Lock(lock) => Ok(Acquired { lease: lock.acquire().await?, permit: None }),
            Wanted::Permit(semaphore) => Ok(permit(semaphore.acquire().await?)),
        }
    }

    /// Notifies `listener` while waiting.
    pub(crate) fn on_wait(self, listener: impl Fn(&Waiting) + Send + Sync + 'static) -> Wanted {
        match self {
            Wanted::Lock(lock) => Wanted::Lock(lock.on_wait(listener)),
            Wanted::Permit(semaphore) => Wanted::Permit(semaphore.on_wait(listener)),
        }
    }

    /// If a quorum reports the lock as retained, that is taken without a holder, tries once more without
    /// waiting; otherwise returns `None`.
    pub(crate) async fn ask_once_if_retained(&self) -> Option<Result<Acquired, AcquireError>> {
        match self {
            Wanted::Lock(lock) => {
                is_retained(&lock.inspect().await.ok()?).then_some(())?;
                let lock = Wanted::Lock(lock.clone().wait(Wait::Never));
                Some(Box::pin(lock.acquire()).await)
            }
            Wanted::Permit(semaphore) => {
                semaphore.inspect().await.ok()?.iter().all(is_retained).then_some(())?;
                let semaphore = Wanted::Permit(semaphore.clone().wait(Wait::Never));
                Some(Box::pin(semaphore.acquire()).await)
            }
        }
    }

    /// Describes the current holders.
    pub(crate) async fn in_the_way(&self) -> String {
        match self {
            Wanted::Lock(lock) => match lock.inspect().await {
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

fn permit(Permit { number, lease, .. }: Permit) -> Acquired {
    Acquired { lease, permit: Some(number) }
}

fn is_retained(report: &VoteReport) -> bool {
    let needed = report.quorum().needed();
    report.holder().is_some_and(|holder| holder.token.is_retained() && holder.nodes >= needed)
}

fn of_lock(report: &VoteReport) -> String {
    let Some(holder) = report.holder() else { return format!("no quorum: {report}") };
    format!(
        "{}{} {} for up to {} more",
        holder.key.as_ref().map(|key| format!("`{key}` ")).unwrap_or_default(),
        if holder.token.is_retained() { "stays taken:" } else { "held by" },
        holder.describe(),
        duration::format(holder.remaining),
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
