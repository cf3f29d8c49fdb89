//! A handle to N nodes, and what all its locks share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

pub use builder::{Builder, RestartGuard};

use crate::alarm::Until;
use crate::clock::Sleep;
use crate::election::Election;
use crate::entropy::Entropy;
use crate::error::ConfigError;
use crate::examination::judge;
use crate::examination::{Examination, Finding, Setting};
use crate::health::Health;
use crate::keeper::Renewals;
use crate::lock::{Fencing, Lock, Options, Plan};
use crate::meter::Meters;
use crate::protocol::{Draw, Drift, FencingToken, Mode, Moment, Ticket};
use crate::round::Nodes;
use crate::semaphore::Semaphore;
use crate::tasks::{Helped, Registry, Tasks};
use crate::wait::line::Lines;

mod builder;

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
    pub(crate) shared: Arc<Shared>,
    /// For those who want several locks at once: they stand in lines of their own.
    together: Arc<OnceLock<Arc<Shared>>>,
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
    /// [`shared`](Lock::shared) and [`fair`](Lock::fair), which are refused; leases are not
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
    /// of fencing tokens within a day.
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
        Examination::of(&join_all(nodes).await, &self.shared.setting())
    }

    /// What stands out in how the connected nodes introduced themselves: eviction, replicas, a
    /// promotion, memory that is nearly full, other clients with another `max_ttl`. Asks nobody, and is the same that a `tracing` warning
    /// tells of each connection. [`examine`](Coordinator::examine) finds far more.
    #[must_use]
    pub fn noticed(&self) -> Vec<Finding> {
        let told = self.shared.nodes.iter().filter_map(|node| Some((Arc::from(node.name()), node.facts()?)));
        let of_nodes = told.flat_map(|(name, facts)| judge::on_sight(&name, &facts));
        let max_ttls = &self.shared.nodes.max_ttls;
        let differs = max_ttls.differing().map(|theirs| judge::max_ttl_differs(max_ttls.ours(), theirs));
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
        self.shared.nodes.alarms.ring_all();
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

/// What all locks of a coordinator share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) drift: Drift,
    pub(crate) ttl: Duration,
    least_ttl: Duration,
    pub(crate) max_ttl: Duration,
    /// The longest that the first use waits for connections.
    introduction: Duration,
    pub(crate) key_prefix: String,
    pub(crate) label: Arc<str>,
    /// Of a lock for which nothing else is set.
    pub(crate) options: Arc<Options>,
    host: String,
    /// What others read of a holder in the process of this number, with the usual label: made once, since
    /// nearly all have it.
    context: (u32, Arc<str>),
    /// What is unique to it: an address may be used again.
    pub(crate) number: u64,
    pub(crate) tasks: Tasks,
    pub(crate) closing: CancellationToken,
    pub(crate) lines: Arc<Lines>,
    /// Those who want to share a lock have lines of their own.
    pub(crate) readers: Arc<Lines>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) meters: Meters,
}

impl Shared {
    pub(crate) fn next_number() -> u64 {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        NUMBERS.fetch_add(1, Ordering::Relaxed)
    }

    /// The same over other nodes, with lines of its own that hear the same hints.
    pub(crate) fn over(&self, nodes: Nodes) -> Arc<Shared> {
        Arc::new(Shared { nodes: Arc::new(nodes), ..self.branch() })
    }

    /// The same, with lines of its own that hear the same hints.
    pub(crate) fn aside(&self) -> Arc<Shared> {
        Arc::new(self.branch())
    }

    fn branch(&self) -> Shared {
        let number = Shared::next_number();
        Shared { number, lines: self.lines.branch(), readers: self.readers.branch(), ..self.clone() }
    }

    /// Those who wait in this mode.
    pub(crate) fn lines_of(&self, mode: Mode) -> &Arc<Lines> {
        match mode {
            Mode::Exclusive => &self.lines,
            Mode::Shared => &self.readers,
        }
    }

    /// The key of the resource of that name. Where that is the same, it is kept once.
    pub(crate) fn key(&self, name: &Arc<str>) -> Arc<str> {
        if self.key_prefix.is_empty() { name.clone() } else { format!("{}{name}", self.key_prefix).into() }
    }

    pub(crate) fn now(&self) -> Moment {
        self.nodes.clock.now()
    }

    pub(crate) fn sleep_until(&self, moment: Moment) -> Sleep {
        self.nodes.clock.sleep_until(moment)
    }

    /// The same for what several runtimes may drive: a timer of its own would belong to one of them.
    pub(crate) fn rest_until(&self, moment: Moment) -> Until {
        self.nodes.alarms.until(Some(moment))
    }

    /// A place in the line of those who wait in fair order, as of now.
    pub(crate) fn ticket(&self) -> Ticket {
        let micros = u64::try_from(self.nodes.clock.wall().as_micros()).unwrap_or(u64::MAX);
        Ticket::new(micros, self.entropy.half())
    }

    /// How the nodes are to draw the number of a new attempt; `None` where fencing is off.
    pub(crate) fn draw(&self, plan: &Plan, seen: Option<FencingToken>) -> Option<Draw> {
        match plan.fencing {
            Fencing::On => Some(Draw::at(self.nodes.clock.wall(), seen, self.clock_bound())),
            Fencing::Off => None,
        }
    }

    /// As long as wall clocks differ by no more than this, fencing tokens keep their order even
    /// when nodes lose their data.
    pub(crate) fn clock_bound(&self) -> Duration {
        self.max_ttl / 2
    }

    /// What a check-up judges by.
    fn setting(&self) -> Setting {
        Setting {
            quorum: self.nodes.quorum,
            ttl: self.ttl,
            max_ttl: self.max_ttl,
            drift: self.drift,
            quarantine: self.nodes.quarantine(),
            node_limit: self.nodes.set_limit,
        }
    }

    /// A TTL that leaves something to hold and that restarted nodes wait for.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), ConfigError> {
        if ttl < self.least_ttl {
            Err(ConfigError::TtlTooShort { ttl, least: self.least_ttl })
        } else if ttl > self.max_ttl {
            Err(ConfigError::TtlTooLong { ttl, max_ttl: self.max_ttl })
        } else {
            Ok(())
        }
    }

    /// What others read of a holder with this label.
    pub(crate) fn context(&self, label: &Arc<str>) -> Arc<str> {
        let (process, usual) = &self.context;
        // After a fork the coordinator may be in another one.
        let is_usual = Arc::ptr_eq(label, &self.label) && *process == std::process::id();
        if is_usual { usual.clone() } else { context(&self.host, label).into() }
    }

    /// Before the first round: waits for the connections, so that a cold start is not taken for
    /// an outage. Ends when a quorum is there, or when every node has been contacted or has failed to be,
    /// or when the time for connecting is up. The others are asked as soon as they are there. Later
    /// rounds wait for nobody.
    pub(crate) async fn introduced(&self) {
        if !self.nodes.introduced.load(Ordering::Acquire) {
            Box::pin(self.introduce()).await;
        }
    }

    async fn introduce(&self) {
        let mut contacts: FuturesUnordered<_> = self.nodes.iter().map(|node| node.ready()).collect();
        let end = self.now() + self.introduction;
        let mut connected = 0;
        while connected < self.nodes.quorum.needed() {
            tokio::select! {
                biased;
                contact = contacts.next() => match contact {
                    Some(Ok(())) => connected += 1,
                    Some(Err(_)) => {}
                    None => break,
                },
                () = self.rest_until(end) => break,
            }
        }
        self.nodes.introduced.store(true, Ordering::Release);
    }
}

/// `host:pid`, and a label.
fn context(host: &str, label: &str) -> String {
    let mut context = format!("{host}:{}", std::process::id());
    if !label.is_empty() {
        context.push(' ');
        context.push_str(label);
    }
    context
}
