//! A handle to N nodes, and what all its locks share.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::join_all;

pub use builder::{Builder, RestartGuard};
pub use kinds::Kinds;

use crate::doctor::rules;
use crate::doctor::{Examination, Finding, Setting};
use crate::election::Election;
use crate::engine::context::EngineContext;
use crate::health::Health;
use crate::lock::Lock;
use crate::node::{Reach, risk_of_one};
use crate::runtime::tasks::{Helped, Registry};
use crate::semaphore::Semaphore;

mod builder;
mod kinds;

/// Coordinates locks over N independent nodes. Cheap to clone; one for a program is enough.
///
/// Connections are made when they are first needed, and stay. They belong to the Tokio runtime
/// that was running then: while nobody drives that one no node answers, and leases are not renewed.
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
    pub(crate) shared: Arc<EngineContext>,
    /// For those who want several locks at once: they stand in lines of their own.
    together: Arc<OnceLock<Arc<EngineContext>>>,
    #[expect(dead_code, reason = "tasks that no runtime drives are kept as long as there is one of these")]
    registry: Arc<Registry>,
}

impl Coordinator {
    /// Starts with the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A lock for `resource`, to be acquired. Asks nobody; a name that cannot work is refused when
    /// the lock is acquired or [validated](Lock::validate).
    pub fn lock(&self, resource: impl AsRef<str>) -> Lock {
        Lock::new(self.shared.clone(), resource.as_ref())
    }

    /// A lock of all these `resources` at once, to be acquired as one: all or none of them, in one
    /// round, with one lease, one end and one fencing token. Asks nobody; names that cannot work are
    /// refused when the lock is acquired or [validated](Lock::validate), and so are none at all and more
    /// than [64](crate::protocol::MOST_RESOURCES).
    ///
    /// It excludes everybody who holds any of them, alone, shared or together with others, in whatever
    /// program. The order in which they are given is of no matter, and nobody who waits holds anything:
    /// so two who want the same in opposite orders do not wait for each other for ever. One resource,
    /// or the same one twice, is a plain [`lock`](Coordinator::lock).
    ///
    /// The lease is lost when it is lost at any of them. All options of a lock work but
    /// [`shared`](Lock::shared), which is refused; leases are not
    /// [handed over](Lock::hand_over) within the process; and an [`Owner`](crate::Owner) enters the same
    /// set again, not one that overlaps. Whoever wants more at once has worse chances where others keep
    /// taking single ones: there is no order among those who wait for different sets.
    ///
    /// All keys are in each request, so on nodes that are Redis Clusters they must be in one hash slot:
    /// give their names one `{tag}`.
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
    pub fn lock_all(&self, resources: impl IntoIterator<Item = impl AsRef<str>>) -> Lock {
        let names: Vec<Arc<str>> = resources.into_iter().map(|name| name.as_ref().into()).collect();
        let together = self.together.get_or_init(|| self.shared.aside());
        match names.first() {
            Some(one) => Lock::together(together, &names).unwrap_or_else(|| self.lock(one)),
            None => Lock::of_nothing(together),
        }
    }

    /// Examines the deployment: asks each node all that bears on locks, over a connection of its own,
    /// takes a lock of its own there and gives it back, and says what is unsafe, what is wrong and
    /// what could not be found out, each with its cure.
    ///
    /// Takes some forty round trips, and at most a minute, or thirty times the connect limit if that is
    /// set. Changes nothing
    /// but a free key `quorlock-doctor-…` behind the coordinator's key prefix, and that key's siblings,
    /// all of which are removed again; if a node is lost meanwhile they end by themselves, the counter
    /// of fencing tokens within five minutes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the check-up; its keys end by themselves.
    pub async fn examine(&self) -> Examination {
        let nodes = self.shared.nodes.iter().map(|node| {
            // One for each: two addresses may lead to the same server.
            let random = self.shared.entropy.half();
            let key = format!("{}quorlock-doctor-{random:016x}", self.shared.key_prefix);
            let (name, facts) = (Arc::from(node.name()), node.examine(key.into()));
            async move { (name, facts.await) }
        });
        Examination::of(&join_all(nodes).await, &setting(&self.shared))
    }

    /// What stands out in how the connected nodes introduced themselves: eviction, replicas, a
    /// promotion, memory that is nearly full, other clients with another `max_ttl`. Asks nobody, and is the same that a `tracing` warning
    /// tells of each connection. [`examine`](Coordinator::examine) finds far more.
    #[must_use]
    pub fn noticed(&self) -> Vec<Finding> {
        let told = self.shared.nodes.iter().filter_map(|node| Some((Arc::from(node.name()), node.facts()?)));
        let of_nodes = told.flat_map(|(name, facts)| rules::on_sight(&name, &facts));
        let max_ttls = &self.shared.nodes.max_ttls;
        let differs = max_ttls.differing().map(|theirs| rules::max_ttl_differs(max_ttls.ours(), theirs));
        differs.into_iter().chain(of_nodes).collect()
    }

    /// How the nodes stand, now and whenever that changes. Asks nobody.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(&self.shared.nodes)
    }

    /// An election of one leader, under the name of `resource`: see [`Election`]. Asks nobody.
    pub fn election(&self, resource: impl AsRef<str>) -> Election {
        Election::new(self.lock(resource))
    }

    /// A semaphore of so many `permits`, under the name of `resource`: see [`Semaphore`]. Asks nobody.
    pub fn semaphore(&self, resource: impl AsRef<str>, permits: usize) -> Semaphore {
        Semaphore::new(&self.shared, resource.as_ref(), permits)
    }

    /// How many permits the semaphore of this name has, as most of the nodes that answer in time keep it.
    /// `None` where none keeps a number: no permit is taken, or there is no such semaphore.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn permits(&self, resource: impl AsRef<str>) -> Option<usize> {
        Box::pin(crate::semaphore::permits(&self.shared, resource.as_ref())).await
    }

    /// Gives back every lease, whose holders are told, refuses new ones, and waits until all nodes
    /// have confirmed, or at most `patience`. What is not confirmed by then ends with its TTL.
    ///
    /// # Cancel safety
    ///
    /// The closing goes on when the future is dropped.
    pub async fn close(&self, patience: Duration) {
        self.shared.closing.cancel();
        self.shared.nodes.timers.ring_all();
        self.shared.tasks.tracker.close();
        let end = self.shared.now() + patience;
        tokio::select! {
            biased;
            () = Helped::new(self.shared.tasks.registry(), Box::pin(self.shared.tasks.tracker.wait())) => {}
            () = self.shared.sleep_until(end) => {}
        }
    }
}

impl Coordinator {
    /// How many keys, or sets of keys, are held or contended for here.
    fn lines(&self) -> usize {
        let together = self.together.get().map_or(0, |together| together.lines.len());
        self.shared.lines.len() + self.shared.readers.len() + together
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.shared.nodes.iter().map(|node| node.name().to_owned());
        f.debug_struct("Coordinator")
            .field("nodes", &names.collect::<Vec<_>>())
            .field("quorum", &self.shared.nodes.quorum)
            .field("lines", &self.lines())
            .finish_non_exhaustive()
    }
}

/// What a check-up judges by.
fn setting(shared: &EngineContext) -> Setting {
    Setting {
        quorum: shared.nodes.quorum,
        ttl: shared.ttl,
        max_ttl: shared.max_ttl,
        drift: shared.drift,
        quarantine: shared.nodes.quarantine(),
        node_limit: shared.nodes.set_limit,
        one_host: shared.nodes.iter().any(|node| node.capabilities().reach == Reach::OneHost),
        risk_of_one: shared.nodes.iter().next().and_then(|node| risk_of_one(node.capabilities())),
    }
}
