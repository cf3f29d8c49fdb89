//! A lock that can be acquired: a name and options, no IO.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::ballot::Ballot;
use crate::coordinator::Shared;
use crate::error::{AcquireError, ConfigError, WithError};
use crate::keeper;
use crate::lease::{Lease, LeaseWatch};
use crate::node::Question;
use crate::protocol::{Backoff, Moment, Resource, renewal_every};
use crate::round::{Aim, Round};
use crate::wait::Wait;

/// A name and options. Making one asks nobody; acquire it as often as you like, from anywhere.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
///
/// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
/// let lock = coordinator.lock("orders/42").ttl(Duration::from_secs(10));
/// if let Some(lease) = lock.try_acquire().await? {
///     lease.check()?; // right before the side effect
///     lease.release().await?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    shared: Arc<Shared>,
    name: Arc<str>,
    ttl: Duration,
    wait: Wait,
    renewal: Renewal,
    max_hold: Option<Duration>,
    label: Arc<str>,
}

/// Who renews a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// The library does, every third of the TTL, so that two renewals may fail before the lease is
    /// lost.
    Automatic,
    /// The library does, this often. At most half of the TTL.
    Every(Duration),
    /// The holder does, by [`Lease::renew`], or lets the lease end.
    Manual,
}

impl Renewal {
    /// When the renewal after the one sent at `sent` is due.
    pub(crate) fn due(self, sent: Moment, ttl: Duration) -> Option<Moment> {
        match self {
            Renewal::Automatic => Some(sent + renewal_every(ttl)),
            Renewal::Every(interval) => Some(sent + interval),
            Renewal::Manual => None,
        }
    }
}

/// The options of a lock, checked.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) resource: Resource,
    pub(crate) key: Arc<str>,
    pub(crate) context: String,
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    pub(crate) renewal: Renewal,
    pub(crate) max_hold: Option<Duration>,
}

impl Plan {
    /// A renewal that failed is tried again soon, and ever less eagerly.
    pub(crate) fn retry_backoff(&self) -> Backoff {
        Backoff::new(self.ttl / 100, self.ttl / 10)
    }
}

/// The longest label, in bytes.
const MAX_LABEL: usize = 200;

impl Lock {
    pub(crate) fn new(shared: Arc<Shared>, name: &str) -> Lock {
        Lock {
            ttl: shared.ttl,
            label: shared.label.clone(),
            name: name.into(),
            wait: Wait::UpTo(DEFAULT_WAIT),
            renewal: Renewal::Automatic,
            max_hold: None,
            shared,
        }
    }

    /// For how long the nodes keep the lock if it is not renewed. 30 s unless set here or for the
    /// coordinator: long enough to ride out a failover of the network, short enough to wait for
    /// after a crash. At most the deployment's `max_ttl`.
    pub fn ttl(mut self, ttl: Duration) -> Lock {
        self.ttl = ttl;
        self
    }

    /// How long [`acquire`](Lock::acquire) and [`with`](Lock::with) wait while others hold the
    /// lock, or while there is no quorum. 30 s unless set: a program that waits for ever because
    /// somebody forgot a setting is hard to find.
    pub fn wait(mut self, wait: Wait) -> Lock {
        self.wait = wait;
        self
    }

    /// Who renews the lease. Automatic unless set.
    pub fn renewal(mut self, renewal: Renewal) -> Lock {
        self.renewal = renewal;
        self
    }

    /// Ends the lease after this long, however often it was renewed: for work that may hang. No
    /// limit unless set.
    pub fn max_hold(mut self, longest: Duration) -> Lock {
        self.max_hold = Some(longest);
        self
    }

    /// What others read of the holder, after the name of the host and the number of the process.
    pub fn label(mut self, label: &str) -> Lock {
        self.label = label.into();
        self
    }

    /// Checks name and options; everything that acquires does so too, before it asks anybody.
    ///
    /// # Errors
    ///
    /// Says what cannot work, and what would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.plan(self.wait).map(drop)
    }

    /// Waits until a quorum grants the lock, then returns its lease, which renews itself.
    ///
    /// # Errors
    ///
    /// [`Contended`](AcquireError::Contended) when others held it for the whole [wait](Lock::wait),
    /// [`Unavailable`](AcquireError::Unavailable) when too few nodes answered at the end of it, and
    /// at once [`NeedsMending`](AcquireError::NeedsMending) or [`Config`](AcquireError::Config).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, at whatever point, the lock is given back at every node that
    /// the attempt may have reached, in the background.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn acquire(&self) -> Result<Lease, AcquireError> {
        self.acquire_within(self.wait).await
    }

    /// Asks once for the lock, without waiting: `None` if others have it.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Lock::acquire), but never [`Contended`](AcquireError::Contended): an error
    /// means that nobody could find out, and comes within the time limit of a node.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Lock::acquire).
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn try_acquire(&self) -> Result<Option<Lease>, AcquireError> {
        match self.acquire_within(Wait::Never).await {
            Ok(lease) => Ok(Some(lease)),
            Err(AcquireError::Contended { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Acquires the lock, runs `work` under it, and gives it back. `Ok` means that all of the work
    /// ran while the lease was valid.
    ///
    /// # Errors
    ///
    /// [`WithError::Acquire`] when the work was not started, [`WithError::Work`] when it failed by
    /// itself, [`WithError::Lost`] when the lease ended first: the work is then dropped where it
    /// waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and gives the lock back in the background.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime. A panic of the work gives the lock back.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
    /// let total = coordinator.lock("orders/42").with(async |lease| {
    ///     let sum = 40 + 2;
    ///     lease.check()?; // right before the side effect
    ///     Ok::<_, quorlock::Lost>(sum)
    /// }).await?;
    /// assert_eq!(total, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn with<T, E, Work, Running>(&self, work: Work) -> Result<T, WithError<E>>
    where
        Work: FnOnce(LeaseWatch) -> Running,
        Running: Future<Output = Result<T, E>>,
    {
        let lease = self.acquire().await.map_err(WithError::Acquire)?;
        let outcome = lease.run_until_lost(work(lease.watch())).await.map_err(WithError::Lost)?;
        let released = lease.release().await;
        // The work's own error says more than a loss that came after it.
        let value = outcome.map_err(WithError::Work)?;
        released.map_err(WithError::Lost)?;
        Ok(value)
    }

    /// Asks all nodes who holds the lock, and waits for each of them at most its time limit.
    /// Changes nothing.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Config`] when name or options cannot work. Nodes that do not answer are part
    /// of the ballot.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn inspect(&self) -> Result<Ballot, AcquireError> {
        let plan = self.plan(self.wait)?;
        self.shared.introduced().await;
        let question = |_| Some(Question::Inspect { key: plan.key.clone() });
        let round = Round::start(&self.shared.nodes, Aim::Hear, plan.ttl, question);
        round.settled().await;
        Ok(round.ballot())
    }

    async fn acquire_within(&self, wait: Wait) -> Result<Lease, AcquireError> {
        let plan = Arc::new(self.plan(wait)?);
        if self.shared.closing.is_cancelled() {
            return Err(AcquireError::Closed);
        }
        let (door, lease) = oneshot::channel();
        self.shared.tasks.spawn(keeper::keep(self.shared.clone(), plan, door));
        // The keeper answers, unless the runtime is being shut down.
        lease.await.unwrap_or(Err(AcquireError::Closed))
    }

    fn plan(&self, wait: Wait) -> Result<Plan, ConfigError> {
        let resource = Resource::parse(&self.name)?;
        self.shared.check_ttl(self.ttl)?;
        if let Renewal::Every(every) = self.renewal {
            if every.is_zero() {
                return Err(ConfigError::Zero { setting: "the renewal interval" });
            }
            if every > self.ttl / 2 {
                return Err(ConfigError::RenewalTooRare { every, ttl: self.ttl });
            }
        }
        if self.max_hold.is_some_and(|longest| longest.is_zero()) {
            return Err(ConfigError::Zero { setting: "max_hold" });
        }
        if self.label.len() > MAX_LABEL {
            return Err(ConfigError::LabelTooLong { length: self.label.len(), most: MAX_LABEL });
        }
        Ok(Plan {
            key: format!("{}{resource}", self.shared.key_prefix).into(),
            resource,
            context: self.shared.context(&self.label),
            ttl: self.ttl,
            wait,
            renewal: self.renewal,
            max_hold: self.max_hold,
        })
    }
}

/// How long to wait unless said otherwise.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("resource", &self.name)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("renewal", &self.renewal)
            .field("max_hold", &self.max_hold)
            .finish_non_exhaustive()
    }
}
