//! Locks: a name and options, and what can be asked about them.
//!
//! [`Lock`] is made by [`Coordinator::lock`](crate::Coordinator::lock), and [`MultiLock`] by
//! [`Coordinator::lock_all`](crate::Coordinator::lock_all). The other types here are what they report:
//! [`Waiting`] to a waiter, [`QueueListing`] and [`Listing`] to an operator.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::context::EngineContext;
use crate::engine::options::{Fencing, Options, Reentry, Renewal};
use crate::engine::owner::Owner;
pub use crate::engine::wait::Waiting;
use crate::engine::wait::{Handoff, Wait};
use crate::error::{AcquireError, ConfigError, Lost};
pub use crate::lease::{Fenced, Multi, Single, Unfenced};
use crate::lease::{Lease, LeaseWatch, why_not_retained};
use crate::node::Capability;
pub use crate::node::{QueueListing, QueuedWaiter};
use crate::runtime::tasks::Registry;
use acquire::Got;
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{Keys, Mode, Resource};

mod acquire;
pub(crate) mod listing;
mod log;
mod multi;
mod revoke;
mod until_free;
mod waiters;

pub use listing::{ListedPage, Listing};
pub use log::{HoldLog, SeenHold};
pub use multi::MultiLock;

/// A lock on one resource: a name and options. Making one sends nothing; it can be cloned, and acquired
/// any number of times, from any task.
///
/// `K` tells a lock of one resource from a [`MultiLock`]: what works on one resource only is not there
/// on the other.
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
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock<K = Single, F = Fenced> {
    engine: Arc<EngineContext>,
    name: Arc<str>,
    keys: Keys,
    /// The names of a `MultiLock`. A thin pointer: each waiter keeps a lock, most of one name.
    together: Option<Arc<Vec<Arc<str>>>>,
    /// Most locks of a program have the same options, which are kept once.
    options: Arc<Options>,
    /// Keeps tasks that no runtime drives, as the coordinator does, which may have gone.
    registry: Option<Arc<Registry>>,
    kind: PhantomData<fn() -> (K, F)>,
}

impl<K, F> Clone for Lock<K, F> {
    fn clone(&self) -> Lock<K, F> {
        Lock {
            engine: self.engine.clone(),
            name: self.name.clone(),
            keys: self.keys.clone(),
            together: self.together.clone(),
            options: self.options.clone(),
            registry: self.registry.clone(),
            kind: PhantomData,
        }
    }
}

impl Lock {
    pub(crate) fn new(engine: Arc<EngineContext>, name: &str) -> Lock {
        let name: Arc<str> = name.into();
        let keys = Keys::one(engine.key(&name));
        Lock::of_keys(engine, name, keys, None)
    }
}

impl<F> Lock<Single, F> {
    /// The same options for another resource.
    pub(crate) fn renamed(&self, name: &str) -> Lock<Single, F> {
        let name: Arc<str> = name.into();
        Lock { keys: Keys::one(self.engine.key(&name)), name, ..self.clone() }
    }

    /// The context of its coordinator, and the key.
    pub(crate) fn parts(&self) -> (&Arc<EngineContext>, &Arc<str>) {
        (&self.engine, self.keys.first())
    }

    /// Makes it a lock for readers: any number of readers hold it at the same time, and no writer does. A
    /// writer acquires the same lock without this option. Each reader has a lease of its own, with its own
    /// TTL, renewals and end.
    ///
    /// A waiting writer goes before readers that come after it, so readers that keep coming do not starve
    /// writers. Redlock clients of other programs are excluded as writers, but do not get that precedence,
    /// and neither does a writer that only [tries](Lock::try_acquire).
    ///
    /// A reader cannot become a writer: two that tried would wait for each other forever. Start as a
    /// writer, and [downgrade](Lease::downgrade). A reader that acquires the same lock as a writer waits
    /// for itself. A lease of a reader is not handed off.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
    /// let catalog = coordinator.lock("catalog");
    /// let (ann, ben) = (catalog.clone().shared().acquire().await?, catalog.clone().shared().acquire().await?);
    /// assert!(catalog.try_acquire().await?.is_none(), "no writer meanwhile");
    /// ann.release().await?;
    /// ben.release().await?;
    ///
    /// let writer = catalog.acquire().await?;
    /// let reader = writer.downgrade().await?; // no other writer in between
    /// assert!(catalog.shared().try_acquire().await?.is_some(), "other readers may join");
    /// # drop(reader);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn shared(mut self) -> Self {
        self.options().mode = Mode::Shared;
        self
    }

    /// Waits until the lock is free, and does not acquire it: for a client that needs what the holder does to be
    /// done, such as a migration. By the time it returns, another client may hold the lock again.
    ///
    /// It does not poll: the nodes notify it of changes, as they do an [`Observer`](crate::Observer). A lock that was
    /// [retained](Lease::retain) is not free, and neither is one that readers hold. While enough nodes have restarted too
    /// recently to vote that a holder may be among what they have lost, it waits for them.
    ///
    /// # Errors
    ///
    /// [`Contended`](AcquireError::Contended) when it was held for the whole [wait](Lock::wait),
    /// [`Unavailable`](AcquireError::Unavailable) when too few nodes answered, or had a vote, by the end of it; before that
    /// [`Misconfigured`](AcquireError::Misconfigured) when too many nodes do not answer until they are reconfigured, and
    /// [`Config`](AcquireError::Config) immediately.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the nodes.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
    /// let migration = coordinator.lock("db/migrate");
    /// let lease = migration.acquire().await?;
    /// assert!(migration.clone().wait(quorlock::Wait::Never).until_free().await.is_err());
    /// lease.release().await?;
    /// migration.until_free().await?; // the migration is done
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn until_free(&self) -> Result<(), AcquireError> {
        Box::pin(self.until_free_within(self.options.wait)).await
    }

    /// Sets how often the lease may pass from one waiter of this process to the next before other
    /// processes get a chance. Default: at most 64 times, and one TTL, in a row.
    pub fn handoff(mut self, handoff: Handoff) -> Self {
        self.options().handoff = handoff;
        self
    }

    /// Checks as [`validate`](Lock::validate), and that a lease of it can be [retained](Lease::retain) for `time`: for
    /// work that must not begin otherwise.
    ///
    /// # Errors
    ///
    /// As there, [`NoRetention`](ConfigError::NoRetention) for a [shared](Lock::shared) lock and for a longer time than
    /// ten years, and [`Unsupported`](ConfigError::Unsupported) where a node cannot
    /// [replace a token](crate::node::Capability::Transfer).
    pub fn validate_retention(&self, time: Duration) -> Result<(), ConfigError> {
        self.validate()?;
        if let Some(node) = self.engine.nodes.without(Capability::Transfer) {
            return Err(ConfigError::Unsupported { node, capability: Capability::Transfer });
        }
        match why_not_retained(self.options.mode, self.engine.nodes.capabilities, time) {
            Some(reason) => Err(ConfigError::NoRetention { reason }),
            None => Ok(()),
        }
    }
}

impl<K> Lock<K> {
    fn of_keys(
        engine: Arc<EngineContext>,
        name: Arc<str>,
        keys: Keys,
        together: Option<Arc<Vec<Arc<str>>>>,
    ) -> Lock<K> {
        let options = engine.options.clone();
        let registry = engine.tasks.registry().upgrade();
        Lock { engine, name, keys, together, options, registry, kind: PhantomData }
    }
}

impl<K, F> Lock<K, F> {
    /// The options of this lock alone, to be changed.
    fn options(&mut self) -> &mut Options {
        Arc::make_mut(&mut self.options)
    }

    /// Sets how long the nodes keep the lock if it is not renewed. Default: 30 s, or the coordinator's
    /// [`ttl`](crate::Builder::ttl): long enough to ride out a network failover, short enough to wait for
    /// after a crash. At most the deployment's [`max_ttl`](crate::Builder::max_ttl).
    ///
    /// Work that blocks its thread keeps the lease from being renewed. It may do so for half of the TTL, as long as a
    /// renewal leaves at least, but for less on etcd and ZooKeeper, and with a
    /// [renewal interval](Lock::renewal) of more than a third of the TTL. That a lease which another process has handed off
    /// begins with [less than the TTL](crate::Lease::remaining) changes nothing: a thread of the library renews it.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options().ttl = ttl;
        self
    }

    /// Sets how long [`acquire`](Lock::acquire) and [`with`](Lock::with) wait while another client holds
    /// the lock, or while there is no quorum. Default: 35 s, see [`Wait::default`]: a program that waits
    /// forever because a setting was forgotten is hard to find. `Wait::UpTo(Duration::ZERO)` is
    /// [`Wait::Never`].
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        let wait = wait.into();
        self.options().wait = if wait == Wait::UpTo(Duration::ZERO) { Wait::Never } else { wait };
        self
    }

    /// Sets who renews the lease, and how often. Default: [`Renewal::Automatic`].
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.options().renewal = renewal;
        self
    }

    /// Ends the lease after this time even if it is renewed: for work that may hang. Default: no limit.
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.options().max_hold = Some(longest);
        self
    }

    /// Sets the label that others see of the holder, after host name and process id. At most 200 bytes.
    /// Default: that of the [coordinator](crate::Builder::label).
    pub fn label(mut self, label: &str) -> Self {
        self.options().label = label.into();
        self
    }

    /// Sets the value of the label `class` in the metrics of this lock. Default: none.
    ///
    /// Each class is counted separately and kept for as long as the coordinator. Use a few constant
    /// names, never a name that comes from input, such as the resource's.
    pub fn metrics_class(mut self, class: &str) -> Self {
        let meter = self.engine.meters.lock(class);
        self.options().meter = meter;
        self
    }

    /// Makes it a lock whose leases have no fencing token, so that a late write cannot be rejected:
    /// [`Fencing::Off`].
    pub fn unfenced(self) -> Lock<K, Unfenced> {
        self.with_fencing(Fencing::Off)
    }

    /// Sets whether leases have a fencing token, for a program that decides it when it runs:
    /// [`fencing_token`](Lease::fencing_token) is an [`Option`] then. Where it is off in any case, use
    /// [`unfenced`](Lock::unfenced).
    pub fn fencing(self, fencing: Fencing) -> Lock<K, Fencing> {
        self.with_fencing(fencing)
    }

    fn with_fencing<G>(mut self, fencing: Fencing) -> Lock<K, G> {
        self.options().fencing = fencing;
        let Lock { engine, name, keys, together, options, registry, kind: _ } = self;
        Lock { engine, name, keys, together, options, registry, kind: PhantomData }
    }

    /// Calls `listener` whenever a waiter for this lock learns who holds it: for a program that shows
    /// it. The listener must not block: it may be called within the [release](Lease::release) or the drop of another lease of
    /// this process, so it must not wait for a mutex that is held there.
    pub fn on_wait(mut self, listener: impl Fn(&Waiting) + Send + Sync + 'static) -> Self {
        self.options().on_wait = Some(Arc::new(listener));
        self
    }

    /// Lets `owner` acquire the lock again while it holds it: see [`Owner`].
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.options().reentry = Reentry::Of(owner.clone());
        self
    }

    /// Lets the lock be acquired again within the same [`Owner::scope`].
    pub fn reentrant(mut self) -> Self {
        self.options().reentry = Reentry::OfScope;
        self
    }

    /// Checks name and options, as each call that acquires does before it sends anything. Whether there is an
    /// [owner](Lock::reentrant) is known only there.
    ///
    /// # Errors
    ///
    /// Names the setting that cannot work, and one that would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check()?;
        Ok(Resource::check_keys(self.keys.iter())?)
    }

    /// Waits until a quorum grants the lock, and returns its lease, which renews itself. It may begin with
    /// [less than the TTL](Lease::remaining).
    ///
    /// Tasks of one process wait in the order in which they called. The first of them contends for the
    /// lock *inside its own future*: if that future is neither polled nor dropped, the tasks of this
    /// process that queue behind it for the same lock make no progress until their own
    /// [wait](Lock::wait) ends. Await it, spawn it, or drop it; in a `select!` over `&mut future`, drop
    /// the future before acquiring the same lock again.
    ///
    /// # Errors
    ///
    /// [`Contended`](AcquireError::Contended) when others held it for the whole [wait](Lock::wait),
    /// [`Unavailable`](AcquireError::Unavailable) when too few nodes answered by the end of it, or none
    /// could because it was shorter than a round trip, and immediately
    /// [`Misconfigured`](AcquireError::Misconfigured) or [`Config`](AcquireError::Config).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, at whatever point, the lock is released in the background on every
    /// node that the attempt may have reached.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn acquire(&self) -> Result<Lease<K, F>, AcquireError> {
        let (asking, got) = self.acquire_within(self.options.wait).await;
        let got = match got {
            Ok(Got::Hold(hold)) => Ok(hold),
            Ok(Got::TakenHere) => Err(Box::pin(self.taken_here(Duration::ZERO)).await),
            Err(error) => Err(error),
        };
        asking.end(Some(got.as_ref().map(drop)), || self.engine.now());
        got.map(Lease::of)
    }

    /// Asks for the lock once, without waiting for a holder. Returns `None` if another client holds it.
    ///
    /// Where several clients ask at the same moment and split the votes, so that none of them has a
    /// quorum, it asks again after a short random pause, at most five times.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Lock::acquire), but never [`Contended`](AcquireError::Contended): an error means
    /// that the answer is unknown, because too few nodes are connected or answer within the
    /// [node timeout](crate::Builder::node_timeout).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Lock::acquire).
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn try_acquire(&self) -> Result<Option<Lease<K, F>>, AcquireError> {
        let (asking, got) = self.acquire_within(Wait::Never).await;
        let got = match got {
            Ok(Got::Hold(hold)) => Ok(Some(hold)),
            Ok(Got::TakenHere) if self.is_held_here() => Ok(None),
            Ok(Got::TakenHere) => Err(Box::pin(self.taken_here(Duration::ZERO)).await),
            Err(error) => Err(error),
        };
        let outcome = got.as_ref().map(|hold| hold.as_ref().map(drop)).transpose();
        asking.end(outcome, || self.engine.now());
        match got {
            Ok(hold) => Ok(hold.map(Lease::of)),
            Err(AcquireError::Contended { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Acquires the lock, runs `work` under it, and releases it. `Ok` means that all of the work ran
    /// while the lease was valid. Work that blocks its thread has the time that [`ttl`](Lock::ttl) names.
    ///
    /// # Errors
    ///
    /// The [`AcquireError`] when the work was not started, the work's own error when it failed by itself,
    /// and [`Lost`] when the lease ended first, each converted to `E`. On a loss the work is dropped at
    /// the point where it waits.
    ///
    /// # Errors of the work
    ///
    /// `E` is any type that both errors convert to, so that `?` works in the work, on
    /// [`check`](LeaseWatch::check) too: `anyhow::Error` and `Box<dyn Error + Send + Sync>` as they are, an
    /// enum with `#[from]` for both, or [`WithError`](crate::WithError) for work that has no other error.
    /// Where the work ends in a bare `Ok(value)`, the compiler cannot infer `E` (error E0283): end it with
    /// `anyhow::Ok(value)`, or with `Ok::<_, MyError>(value)`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases the lock in the background.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime. If the work panics, the lock is released.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
    /// let total = coordinator.lock("orders/42").with(async |lease| {
    ///     let sum = 40 + 2;
    ///     lease.check()?; // right before the side effect
    ///     Ok::<_, quorlock::WithError>(sum)
    /// }).await?;
    /// assert_eq!(total, 42);
    ///
    /// let total = coordinator.lock("orders/42").with(async |lease| {
    ///     let sum: u32 = "42".parse()?; // an error of the work
    ///     lease.check()?;
    ///     anyhow::Ok(sum)
    /// }).await?;
    /// assert_eq!(total, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn with<T, E, Work, Running>(&self, work: Work) -> Result<T, E>
    where
        Work: FnOnce(LeaseWatch<F>) -> Running,
        Running: Future<Output = Result<T, E>>,
        E: From<AcquireError> + From<Lost>,
    {
        let lease = self.acquire().await?;
        lease.run(work).await
    }

    /// Asks all nodes who holds the lock, and changes nothing. Waits for each node at most its timeout,
    /// and once a quorum has answered, a quarter of a second or four round trips for the rest.
    ///
    /// For a [`MultiLock`], reports the first resource, by name, that is held; the holder says
    /// [which](crate::votes::Holder::key).
    ///
    /// # Errors
    ///
    /// When name or options cannot work. Nodes that do not answer are part of the report.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the nodes.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn inspect(&self) -> Result<VoteReport, ConfigError> {
        self.check()?;
        self.engine.introduced().await;
        Ok(Box::pin(self.inspect_each()).await)
    }

    /// Asks all nodes which processes wait for the lock in a queue, and lists them in the order in which
    /// they come, at most a hundred.
    ///
    /// Readers and clients that wait for this lock together with others are among them. A client that waits for a
    /// permit of a semaphore waits in the queue of one of its slots: `NAME#0` for the first. A process that was
    /// killed may be listed for another six seconds. Where no node that keeps a queue answers, the list is empty and says
    /// that there may be [more](QueueListing::has_more). It does not say so when the node with the queue has just died:
    /// those in it are missing until they have joined the queue of another node, a moment later.
    ///
    /// # Errors
    ///
    /// When name or options cannot work.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the nodes.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn waiters(&self) -> Result<QueueListing, ConfigError> {
        self.check()?;
        self.engine.introduced().await;
        Ok(Box::pin(self.list_waiters()).await)
    }
}

impl<K, F> fmt::Debug for Lock<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("resource", &self.name)
            .field("mode", &self.options.mode)
            .field("ttl", &self.options.ttl)
            .field("wait", &self.options.wait)
            .field("renewal", &self.options.renewal)
            .field("max_hold", &self.options.max_hold)
            .finish_non_exhaustive()
    }
}
