//! A handle to N nodes, from which locks, semaphores and elections are made.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::join_all;

pub use builder::{Builder, RestartGuard};

use crate::doctor::rules;
use crate::doctor::{Finding, Report, Setting};
use crate::election::Election;
use crate::engine::context::EngineContext;
use crate::engine::offer::withdraw_all;
use crate::error::PermitError;
use crate::health::Health;
use crate::lock::{Listing, Lock, MultiLock, listing};
use crate::node::{ListedKeys, Reach, risk_of_one};
use crate::runtime::tasks::{Helped, Registry};
use crate::semaphore::{Semaphore, Semaphores};
use quorlock_protocol::LeaseTiming;
use quorlock_protocol::machine::Deployment as _;

mod builder;

/// Coordinates locks over N independent nodes. Cheap to clone; one per program is enough.
///
/// Connections are opened when they are first needed, and stay open. They belong to the Tokio runtime that was
/// current then: while that runtime is not driven, no node answers and no lease is renewed.
///
/// # Examples
///
/// ```
/// use quorlock::Coordinator;
///
/// let coordinator = Coordinator::builder()
///     .nodes(["redis://10.0.0.1", "redis://10.1.0.1", "redis://10.2.0.1"])
///     .build()?; // parses all, contacts no one
/// # Ok::<(), quorlock::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Coordinator {
    pub(crate) engine: Arc<EngineContext>,
    /// The context of `MultiLock`s, which have queues of their own.
    together: Arc<OnceLock<Arc<EngineContext>>>,
    semaphores: Arc<Semaphores>,
    #[expect(dead_code, reason = "keeps tasks that no runtime drives for as long as there is a coordinator")]
    registry: Arc<Registry>,
}

impl Coordinator {
    /// Starts with the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns a lock on `resource`. Sends nothing; a name that cannot work is refused when the lock is acquired or
    /// [validated](Lock::validate).
    pub fn lock(&self, resource: impl AsRef<str>) -> Lock {
        Lock::new(self.engine.clone(), resource.as_ref())
    }

    /// Returns a lock on all of `resources`, acquired as one: all or none of them, in one round, with one lease, one
    /// end and one fencing token. Sends nothing; names that cannot work are refused when the lock is acquired or
    /// [validated](Lock::validate), as are no names, and more than [64](crate::protocol::MOST_RESOURCES).
    ///
    /// It excludes every client that holds any of the resources, exclusively, shared or together with others, in any
    /// program. The order of the names does not matter, and a waiter holds nothing, so two clients that want the
    /// same resources in opposite orders do not deadlock. A name given twice counts once; one name alone is a plain
    /// [`lock`](Coordinator::lock).
    ///
    /// The lease is lost when it is lost on any of them. An [`Owner`](crate::Owner) can acquire the same set again, and
    /// is refused one that overlaps. A large set is at a disadvantage where other clients keep taking single resources:
    /// there is no order among waiters for different sets.
    ///
    /// All keys are in each request, so on nodes that are Redis Clusters they must be in one hash slot: give their
    /// names one `{tag}`.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
    /// let transfer = coordinator.lock_all(["accounts/1", "accounts/2"]);
    /// let lease = transfer.acquire().await?;
    /// assert!(coordinator.lock("accounts/2").try_acquire().await?.is_none(), "both are locked");
    /// lease.release().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn lock_all(&self, resources: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        let names = resources.into_iter().map(|name| name.as_ref().into()).collect();
        MultiLock::of(&self.engine, self.together.get_or_init(|| self.engine.aside()), names)
    }

    /// Examines the deployment, as `quorlock doctor` does: asks each node for everything that bears on locks, over a
    /// connection of its own, acquires and releases a lock of its own there, and reports what is unsafe, what is
    /// wrong and what could not be found out, each with its cure.
    ///
    /// Takes some forty round trips, and at most a minute, or thirty times the connect timeout if that is set. Changes
    /// nothing but a free key `quorlock-doctor-…` under the coordinator's key prefix and its siblings, which are
    /// deleted again, or expire if a node is lost meanwhile. The counter of fencing tokens stays, as that of every lock:
    /// on Redis one for each of 16,384 hash slots, which all locks of the slot share.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the check-up; its keys expire.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn doctor(&self) -> Report {
        let nodes = self.engine.nodes.iter().map(|node| {
            // A key for each node: two addresses may lead to the same server.
            let random = self.engine.entropy.next_u64();
            let key = format!("{}quorlock-doctor-{random:016x}", self.engine.key_prefix);
            let (name, facts) = (Arc::from(node.name()), node.examine(key.into()));
            async move { (name, facts.await) }
        });
        Report::of(&join_all(nodes).await, &setting(&self.engine))
    }

    /// Returns the warnings about the connected nodes, as they described themselves: eviction, replicas, a promotion,
    /// memory that is nearly full, two addresses of one server, other clients with another `max_ttl` or other nodes, which
    /// are compared unless the [restart guard is off](crate::RestartGuard::Off). Sends nothing; the same warnings are
    /// logged for each connection. [`doctor`](Coordinator::doctor) finds far more.
    #[must_use]
    pub fn warnings(&self) -> Vec<Finding> {
        let known = self.engine.nodes.iter().filter_map(|node| Some((Arc::from(node.name()), node.facts()?)));
        let of_nodes = known.flat_map(|(name, facts)| rules::on_sight(&name, &facts));
        let max_ttls = &self.engine.nodes.max_ttls;
        let differs = max_ttls.differing().map(|theirs| rules::max_ttl_differs(max_ttls.ours(), theirs));
        let lists = &self.engine.lists;
        let lists = lists
            .differing(self.engine.now())
            .map(|(ours, theirs)| rules::lists_differ(&ours, lists.quorum(), &theirs, None));
        let same = self.engine.nodes.board.same_servers();
        differs.into_iter().chain(lists).chain(same).chain(of_nodes).collect()
    }

    /// Returns the status of the nodes, now and whenever it changes. Sends nothing.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(&self.engine.nodes)
    }

    /// Returns an election of one leader, under the name of `resource`: see [`Election`]. Sends nothing.
    pub fn election(&self, resource: impl AsRef<str>) -> Election {
        Election::new(self.lock(resource))
    }

    /// Returns a semaphore of `permits`, under the name of `resource`: see [`Semaphore`]. Sends nothing.
    pub fn semaphore(&self, resource: impl AsRef<str>, permits: usize) -> Semaphore {
        Semaphore::new(&self.engine, &self.semaphores, resource.as_ref(), permits)
    }

    /// Returns how many permits the semaphore of this name has, as most of the nodes that answer in time store it.
    /// `None` where enough nodes store none: no permit is taken, or there is no such semaphore.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](PermitError::Unavailable) and [`Misconfigured`](PermitError::Misconfigured) where no node stores a
    /// number, and too few answer to know that none does; [`Config`](PermitError::Config) for a name that cannot work.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the nodes.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn permits(&self, resource: impl AsRef<str>) -> Result<Option<usize>, PermitError> {
        Box::pin(crate::semaphore::permits(&self.engine, resource.as_ref())).await
    }

    /// Lists the names of locks that begin with `prefix`, as the nodes store them: held, or with waiters. What a name's
    /// lock is now, [`Lock::inspect`] tells.
    ///
    /// As many nodes list everything as intersect every quorum, such as three of five, so a lock that a quorum holds
    /// is listed. No more of them list at the same time than a quorum can do without, two of five, page by page and
    /// with pauses: acquisitions do not wait for them. A Redis server takes 45 s for a million keys. It lists
    /// every key of such a name that could be a lock, so use a [`key_prefix`](Builder::key_prefix) where it also keeps
    /// other data. A node that cannot list is replaced by the next.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
    /// let _lease = coordinator.lock("orders/42").acquire().await?;
    /// let mut listing = coordinator.list("orders/", quorlock::node::ListedKeys::Locks);
    /// while let Some(page) = listing.next_page().await {
    ///     println!("{}: {:?}", page.node, page.names?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn list(&self, prefix: impl AsRef<str>, which: ListedKeys) -> Listing {
        listing::list(&self.engine, prefix.as_ref(), which)
    }

    /// Returns when leases with this TTL are renewed on these nodes, and how much validity is left then: for a program that must
    /// end before its lease does. What a renewal proves may depend on the servers, and is known after the first acquisition.
    #[must_use]
    pub fn lease_timing(&self, ttl: Duration) -> LeaseTiming {
        self.engine.timing(ttl)
    }

    /// Ends and releases every lease, refuses new ones, and waits until all nodes have confirmed, also what leases
    /// dropped just before have sent, for at most `timeout`. What is not confirmed by then expires with its TTL.
    /// [`Lease::lost`](crate::Lease::lost) returns for each lease. A program that ends without it, and without
    /// [`Lease::release`](crate::Lease::release), may leave its locks taken for their TTL.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn close(&self, timeout: Duration) {
        self.engine.closing.cancel();
        self.engine.nodes.timers.fire_all();
        withdraw_all(&self.engine);
        self.engine.tasks.tracker.close();
        let end = self.engine.now() + timeout;
        tokio::select! {
            biased;
            () = Helped::new(self.engine.tasks.registry(), Box::pin(self.engine.tasks.tracker.wait())) => {}
            () = self.engine.sleep_until(end) => {}
        }
    }
}

impl Coordinator {
    /// How many keys, or sets of keys, are held or contended for by this coordinator.
    fn queues(&self) -> usize {
        let together = self.together.get().map_or(0, |together| together.queues.len());
        self.engine.queues.len() + self.engine.readers.len() + together
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.engine.nodes.iter().map(|node| node.name().to_owned());
        f.debug_struct("Coordinator")
            .field("nodes", &names.collect::<Vec<_>>())
            .field("quorum", &self.engine.nodes.quorum)
            .field("queues", &self.queues())
            .finish_non_exhaustive()
    }
}

/// The settings that a check-up judges by.
fn setting(engine: &EngineContext) -> Setting {
    Setting {
        quorum: engine.nodes.quorum,
        ttl: engine.ttl,
        max_ttl: engine.max_ttl,
        drift: engine.drift,
        quarantine: engine.nodes.quarantine(),
        node_timeout: engine.nodes.set_timeout,
        one_host: engine.nodes.iter().any(|node| node.capabilities().reach == Reach::OneHost),
        risk_of_one: engine.nodes.iter().next().and_then(|node| risk_of_one(node.capabilities())),
    }
}
