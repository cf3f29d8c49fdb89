//! Every error of the library, on one page.
//!
//! An error names its subject and the numbers, what was needed, and what would work. No error contains a
//! password.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::address::AddressError;
use crate::duration;
use crate::node::Reason;
use crate::node::{Capability, Expiry};
use quorlock_protocol::votes::{Holder, VoteOutcome, VoteReport, holders};
use quorlock_protocol::{Drift, Resource, ResourceError, printable};

/// A setting that cannot work, found before anything is sent.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No nodes were given.
    #[error("no nodes were given; name an odd number of independent masters, such as three or five")]
    NoNodes,
    /// More nodes than a round can ask.
    #[error("{given} nodes were given, more than the {most} supported; five or seven are plenty")]
    TooManyNodes {
        /// How many there are.
        given: usize,
        /// How many there may be.
        most: usize,
    },
    /// An address cannot be understood.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Two addresses name the same server, which must not vote twice.
    #[error("{name} is given twice; each node must be a server of its own, or it votes twice")]
    SameServerTwice {
        /// The address.
        name: Arc<str>,
    },
    /// A node that only its own host can reach, among several.
    #[error(
        "the node {name} exists on this host only, and on another host its address leads to another store: use it \
         alone, or use only nodes that every host can reach"
    )]
    OneHostOfSeveral {
        /// The node.
        name: Arc<str>,
    },
    /// A node whose store other programs lock in directly, among several.
    #[error(
        "other programs lock in the store of the node {name} directly, and a quorum of several nodes does not exclude \
         them: use it as the only node"
    )]
    SharedStoreOfSeveral {
        /// The node.
        name: Arc<str>,
    },
    /// Two kinds of node claim the same URL scheme.
    #[error(
        "two kinds of node claim the scheme {scheme}://; register only one of them, or give the other its own scheme"
    )]
    SchemeTwice {
        /// The scheme.
        scheme: Arc<str>,
    },
    /// An address that no node can be made of.
    #[error("the node {name} cannot be used: {problem:#}")]
    Node {
        /// The address.
        name: Arc<str>,
        /// Why, as its kind says.
        problem: Reason,
    },
    /// A quorum that is no majority, or larger than the number of nodes.
    #[error(
        "a quorum of {needed} of {nodes} nodes is not possible; it must be at least {}, more than half, \
         and at most {nodes}",
        nodes / 2 + 1
    )]
    Quorum {
        /// What was asked for.
        needed: usize,
        /// How many nodes there are.
        nodes: usize,
    },
    /// A drift factor out of range.
    #[error(
        "a drift factor of {factor} is out of range; it is a share of the TTL between 0 and {}",
        Drift::MAX_FACTOR
    )]
    Drift {
        /// What was asked for.
        factor: f64,
    },
    /// A TTL of which nothing would be left for the holder.
    #[error("{}", too_short(*.ttl, *.least))]
    TtlTooShort {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The shortest that works with these settings.
        least: Duration,
    },
    /// A TTL above the deployment's limit.
    #[error("{}", too_long(*.ttl, *.max_ttl))]
    TtlTooLong {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The longest allowed.
        max_ttl: Duration,
    },
    /// A `max_ttl` that is no time: restarted nodes would wait for it.
    #[error("a max_ttl of {:?} is above {:?}, ten years; restarted nodes wait for it, so an hour is long", .max_ttl, .most)]
    MaxTtlTooLong {
        /// What was asked for.
        max_ttl: Duration,
        /// The longest allowed.
        most: Duration,
    },
    /// A [prefix](crate::Builder::key_prefix) that makes every request long.
    #[error("a key prefix has {} bytes, more than the {} allowed", .length, .most)]
    KeyPrefixTooLong {
        /// Its length in bytes.
        length: usize,
        /// The longest allowed.
        most: usize,
    },
    /// A [log](crate::Builder::log) of more holds than a node sends in one response.
    #[error("a log of {} holds is longer than the {} that a node sends: use at most those", .holds, .most)]
    LogTooLong {
        /// How many were asked for.
        holds: usize,
        /// The most allowed.
        most: usize,
    },
    /// A time setting of zero, where that cannot work.
    #[error("{setting} is zero; give it a length of time, such as 50ms")]
    Zero {
        /// Which setting.
        setting: &'static str,
    },
    /// Renewals so frequent that they occupy the nodes.
    #[error(
        "renewing every {:?} is too frequent: each renewal is a request to every node, and more of them make no lease \
         safer; renew every {:?} or less often", .every, .least
    )]
    RenewalTooFrequent {
        /// The interval that was asked for.
        every: Duration,
        /// The shortest allowed.
        least: Duration,
    },
    /// Renewals so rare that one failed renewal loses the lease.
    #[error(
        "renewing every {:?} is too rare for a TTL of {:?}: a lease must survive one failed renewal, so renew \
         at least every {:?}", .every, .ttl, *.ttl / 2
    )]
    RenewalTooRare {
        /// The interval that was asked for.
        every: Duration,
        /// The TTL.
        ttl: Duration,
    },
    /// Settings for TLS that cannot work, such as a file that cannot be read.
    #[error("{problem:#}")]
    Tls {
        /// What is wrong.
        problem: Reason,
    },
    /// The file with the password cannot be read.
    #[error("{problem:#}")]
    Password {
        /// Why.
        problem: Reason,
    },
    /// A resource name that cannot be a key.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// A reentrant lock, acquired outside of an owner's scope.
    #[error(
        "a reentrant lock was acquired outside of an owner's scope; wrap the work in `Owner::scope`, or without async \
         in `Owner::scope_blocking`"
    )]
    NoOwner,
    /// An owner that holds a shared lease, and acquires the lock exclusively.
    #[error(
        "its owner holds a shared lease of this lock and cannot acquire it exclusively as well: it would wait for \
         itself; release the shared lease first, or acquire exclusively and downgrade"
    )]
    Upgrade,
    /// An owner that holds one of the resources together with others, or without them, and would wait for itself.
    #[error(
        "its owner holds `{held}`, which shares a resource with this lock, and would wait for itself: an owner \
         acquires only the same resources again; acquire all of them in the outer call and none in the inner one, or \
         release `{held}` first"
    )]
    Overlap {
        /// What it holds.
        held: Resource,
    },
    /// The [owner](crate::Owner) holds the lock without a fencing token, and asks for a lease that has one.
    #[error(
        "its owner holds this lock without fencing, so a lease that has a fencing token cannot be added; acquire it first with \
         fencing, or both times without"
    )]
    HeldUnfenced,
    /// A lock of no resources, or of too many.
    #[error(
        "a lock of {given} resources is not possible; it has between 1 and {most}, because a server does nothing else \
         while it looks at them"
    )]
    Resources {
        /// How many there are.
        given: usize,
        /// The most there may be.
        most: usize,
    },
    /// A node that cannot do what the lock needs.
    #[error("the node {node} does not support {capability}; {}", instead_of(*.capability))]
    Unsupported {
        /// Which node.
        node: Arc<str>,
        /// What it does not support.
        capability: Capability,
    },
    /// A node that cannot keep the number of a semaphore's permits, which all holders must keep together.
    #[error(
        "the node {node} keeps no semaphores: all holders would keep the number of permits, and a key there is kept by one \
         program; use a lock, or nodes of another kind"
    )]
    NoSemaphores {
        /// Which node.
        node: Arc<str>,
    },
    /// A lock that cannot be [retained](crate::Lease::retain) as it should be.
    #[error("the lock cannot stay taken after the work: {reason}")]
    NoRetention {
        /// Why not.
        reason: &'static str,
    },
    /// A TTL for which a node cannot keep a key.
    #[error("a TTL of {} is too short for the node {node}, which keeps keys for at least {}", duration::format(*.ttl), duration::format(*.least))]
    TtlTooShortForNode {
        /// What was asked for.
        ttl: Duration,
        /// The shortest that the node can keep.
        least: Duration,
        /// Which node.
        node: Arc<str>,
    },
    /// A TTL with which too little is left after a renewal for two more.
    #[error(
        "a TTL of {} leaves no room for renewals on the node {node}: a renewal proves the lock there for {} at least, of which \
         the drift allowance for this TTL takes {}; use a shorter TTL or a smaller drift (with ZooKeeper also a longer \
         `?session=`)",
        duration::format(*.ttl), duration::format(*.proven), duration::format(*.drift)
    )]
    NoRoomToRenew {
        /// What was asked for.
        ttl: Duration,
        /// For how long a renewal proves the lock.
        proven: Duration,
        /// The drift allowance.
        drift: Duration,
        /// Which node.
        node: Arc<str>,
    },
    /// A semaphore with no permits, or too many.
    #[error(
        "a semaphore of {given} permits is not possible; it has between 1 and {most}, because a waiter watches each \
         of them"
    )]
    Permits {
        /// What was asked for.
        given: usize,
        /// The most there may be.
        most: usize,
    },
    /// The system grants no thread for the blocking API.
    #[error("the background thread of the blocking API cannot be started: {problem:#}")]
    NoBackground {
        /// The system's error.
        problem: Reason,
    },
    /// A label that is too long.
    #[error(
        "a label of {length} bytes is longer than the {most} allowed; it is stored on every node, and what a \
         candidate announces is one"
    )]
    LabelTooLong {
        /// Its length in bytes.
        length: usize,
        /// The longest allowed.
        most: usize,
    },
}

/// Below this the milliseconds that Redis rounds to are too large a share of a TTL.
pub(crate) const LEAST_TTL: Duration = Duration::from_millis(20);
/// The longest time that a lock is retained, and the longest `max_ttl`: servers cannot count any number of milliseconds.
pub(crate) const TEN_YEARS: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);
/// The TTL must be this many times the node timeout, so that a hung node costs a small share of it.
pub(crate) const TIMEOUTS_IN_A_TTL: u32 = 10;

fn too_short(ttl: Duration, least: Duration) -> String {
    if least == Duration::MAX {
        "the node timeout is longer than a tenth of any TTL: set it to a tenth of the TTL at most".to_owned()
    } else if least > LEAST_TTL {
        let timeout = least / TIMEOUTS_IN_A_TTL;
        format!(
            "a node timeout of {timeout:?} needs a TTL and a max_ttl of {least:?} or more, and the TTL is {ttl:?}: make \
             them longer, or the node timeout shorter"
        )
    } else {
        format!("a TTL of {ttl:?} is too short: use a TTL and a max_ttl of {least:?} or more")
    }
}

fn too_long(ttl: Duration, max_ttl: Duration) -> String {
    let or_longer = if ttl > TEN_YEARS {
        String::new()
    } else {
        format!(
            ", or set max_ttl to {ttl:?} at every client (`Builder::max_ttl`, --max-ttl, `max-ttl` in the file)"
        )
    };
    format!(
        "a TTL of {ttl:?} is above the deployment's max_ttl of {max_ttl:?}, for which restarted nodes wait: use a TTL of at \
         most {max_ttl:?}{or_longer}"
    )
}

/// What to do where a node lacks a capability.
fn instead_of(capability: Capability) -> &'static str {
    match capability {
        Capability::Shared => "leave out `shared`, or use nodes that do",
        Capability::Several => "lock one resource after the other, or use nodes that do",
        Capability::Transfer => {
            "without it the lock cannot stay taken after the work: leave out --at-least and --once-per (in a program \
             `retain` and `every`), or use nodes that do"
        }
        Capability::Queue | Capability::Offer | Capability::Log | _ => "use nodes that do",
    }
}

/// Why a lock was not acquired.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Other clients held it for as long as the caller waited.
    #[error("{}", held(.resource, .report, *.waited))]
    Contended {
        /// The resource.
        resource: Resource,
        /// How the nodes voted in the last round, or what they said of the holder since.
        report: Box<VoteReport>,
        /// How long the caller waited.
        waited: Duration,
    },
    /// Too few nodes answered: whether the lock is free is unknown.
    #[error("no quorum for `{resource}`: {report}")]
    Unavailable {
        /// The resource.
        resource: Resource,
        /// How the nodes voted in the last round.
        report: Box<VoteReport>,
        /// How long the caller waited.
        waited: Duration,
    },
    /// Too many nodes cannot grant the lock until their configuration is fixed, so waiting is pointless:
    /// permissions are missing, an address leads to a replica or to a server that is counted already, or
    /// the key holds other data.
    #[error("cannot reach a quorum for `{resource}`, nodes are misconfigured: {report}")]
    Misconfigured {
        /// The resource.
        resource: Resource,
        /// How the nodes voted.
        report: Box<VoteReport>,
    },
    /// Name or options of the lock cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The coordinator was closed.
    #[error("the coordinator is closed")]
    Closed,
}

impl AcquireError {
    /// Returns how the nodes voted, if they were asked.
    #[must_use]
    pub fn report(&self) -> Option<&VoteReport> {
        match self {
            AcquireError::Contended { report, .. }
            | AcquireError::Unavailable { report, .. }
            | AcquireError::Misconfigured { report, .. } => Some(report),
            AcquireError::Config(_) | AcquireError::Closed => None,
        }
    }

    /// Returns who holds the lock, if it is [`Contended`](AcquireError::Contended): the client that most of the nodes
    /// name. `None` also where no node names one, because several clients contend for it right now, or because others that
    /// wait come first, of this process or of others.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # use quorlock::{Coordinator, Wait};
    /// # let coordinator = Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(3)).build()?;
    /// # let lease = coordinator.lock("orders/42").acquire().await?;
    /// let lock = coordinator.lock("orders/42").wait(Wait::Never);
    /// if let Err(error) = lock.acquire().await
    ///     && let Some(holder) = error.holder()
    /// {
    ///     println!("{}, for {:?} unless it renews or releases", holder.describe(), holder.remaining);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        match self {
            AcquireError::Contended { report, .. } => report.holder(),
            AcquireError::Unavailable { .. }
            | AcquireError::Misconfigured { .. }
            | AcquireError::Config(_)
            | AcquireError::Closed => None,
        }
    }

    /// Returns for how much longer the [holder](AcquireError::holder) has the lock if it neither renews nor releases
    /// it, counted from the nodes' votes. A holder at work renews, so this is not the time after which a retry
    /// succeeds.
    #[must_use]
    pub fn remaining(&self) -> Option<Expiry> {
        self.holder().map(|holder| holder.remaining)
    }
}

/// Why a permit of a semaphore was not acquired.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PermitError {
    /// Other clients held all permits for as long as the caller waited.
    #[error("all {} permits of `{resource}` are taken{}: {}", holders.len(), after(*.waited), by_number(.holders))]
    Full {
        /// The semaphore.
        resource: Resource,
        /// The holder of each permit, by number; `None` where several clients contend for it right now.
        holders: Vec<Option<Holder>>,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The semaphore has another number of permits at too many nodes for a quorum: this program, or others that hold or want
    /// a permit, have the wrong number.
    #[error("{}", other_permits(.resource, .found, .asked))]
    OtherPermits {
        /// The semaphore.
        resource: Resource,
        /// How many permits it has.
        found: Arc<str>,
        /// How many this program asked for.
        asked: Arc<str>,
        /// How the nodes voted.
        report: Box<VoteReport>,
    },
    /// As [`AcquireError::Unavailable`], for a permit.
    #[error("no quorum for `{resource}`: {report}")]
    Unavailable {
        /// The permit, or the semaphore.
        resource: Resource,
        /// How the nodes voted in the last round.
        report: Box<VoteReport>,
        /// How long the caller waited.
        waited: Duration,
    },
    /// As [`AcquireError::Misconfigured`], for a permit.
    #[error("cannot reach a quorum for `{resource}`, nodes are misconfigured: {report}")]
    Misconfigured {
        /// The permit.
        resource: Resource,
        /// How the nodes voted.
        report: Box<VoteReport>,
    },
    /// Name, number of permits or options cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The coordinator was closed.
    #[error("the coordinator is closed")]
    Closed,
}

impl PermitError {
    /// Returns how the nodes voted, if one vote decided.
    #[must_use]
    pub fn report(&self) -> Option<&VoteReport> {
        match self {
            PermitError::OtherPermits { report, .. }
            | PermitError::Unavailable { report, .. }
            | PermitError::Misconfigured { report, .. } => Some(report),
            PermitError::Full { .. } | PermitError::Config(_) | PermitError::Closed => None,
        }
    }

    /// Returns for how much longer all permits are taken if no holder renews or releases, as
    /// [`AcquireError::remaining`]: the shortest time of those holders that are known.
    #[must_use]
    pub fn remaining(&self) -> Option<Expiry> {
        match self {
            PermitError::Full { holders, .. } => {
                holders.iter().flatten().map(|holder| holder.remaining).min()
            }
            PermitError::OtherPermits { .. }
            | PermitError::Unavailable { .. }
            | PermitError::Misconfigured { .. }
            | PermitError::Config(_)
            | PermitError::Closed => None,
        }
    }
}

fn other_permits(resource: &Resource, found: &str, asked: &str) -> String {
    let permits = if found == "1" { "permit" } else { "permits" };
    let were = if asked == "1" { "was" } else { "were" };
    format!(
        "the semaphore `{resource}` has {found} {permits}, and {asked} {were} asked for: all programs must ask for the \
         same number; another number can be used when no permit has been held, nor asked for with this one, for one TTL, and the time is \
         over for which any was left taken"
    )
}

fn held(resource: &Resource, report: &VoteReport, waited: Duration) -> String {
    let waited = after(waited);
    match report.holder() {
        Some(Holder { token, remaining, key, .. }) if token.is_retained() => format!(
            "`{}` stays taken {}: {token}{waited}",
            printable(key.as_deref().unwrap_or(resource.as_str())),
            until(remaining),
        ),
        // Without the number of nodes: those that had not answered yet may hold it too.
        Some(Holder { token, remaining, readers, key, .. }) => format!(
            "`{resource}` is held{} by {} {}{waited}",
            key.map(|key| format!(" at `{}`", printable(&key))).unwrap_or_default(),
            holders(&token, &readers),
            until(remaining),
        ),
        None if report.votes().iter().any(|vote| vote.outcome == VoteOutcome::NotYourTurn) => {
            format!("other clients come first for `{resource}`{waited}: {report}")
        }
        // Not asked for a vote: the caller was not the first of its process.
        None if report.votes().iter().any(|vote| vote.outcome == VoteOutcome::Free) => {
            format!("another caller of this process came first for `{resource}`{waited}: {report}")
        }
        None => format!("votes for `{resource}` were split between several clients{waited}: {report}"),
    }
}

fn until(expiry: Expiry) -> String {
    match expiry {
        Expiry::In(remaining) => format!("for up to {} more", duration::format(remaining)),
        Expiry::Never => "and never expires".to_owned(),
    }
}

fn by_number(holders: &[Option<Holder>]) -> String {
    let holder = |(number, holder): (usize, &Option<Holder>)| match holder {
        Some(Holder { token, .. }) => format!("#{number} {token}"),
        None => format!("#{number} contended"),
    };
    holders.iter().enumerate().map(holder).collect::<Vec<_>>().join(", ")
}

fn after(waited: Duration) -> String {
    if waited < Duration::from_millis(1) {
        String::new()
    } else {
        format!(", waited {}", duration::format(waited))
    }
}

/// The lease is over, and must not be relied on any longer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the lease of `{resource}` is over: {reason}")]
#[non_exhaustive]
pub struct Lost {
    /// The locked resource.
    pub resource: Resource,
    /// Why the lease ended.
    pub reason: LossReason,
}

impl Lost {
    pub(crate) fn new(resource: Resource, reason: LossReason) -> Lost {
        Lost { resource, reason }
    }
}

/// Why a lease ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// Its validity ended before a quorum had renewed it.
    #[error("its validity ended before a quorum renewed it")]
    Expired,
    /// Too many nodes no longer hold its key: another client may have acquired the lock.
    #[error("too many nodes lost its key; another client may hold the lock")]
    QuorumLost,
    /// It was held for as long as `max_hold` allows.
    #[error("it was held for as long as max_hold allows")]
    MaxHold,
    /// It was released.
    #[error("it was released")]
    Released,
    /// Its coordinator was closed.
    #[error("its coordinator was closed")]
    Closed,
}

/// Why a renewal on demand did not succeed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// The lease is over.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// A lease cannot be [extended](crate::Lease::extend) to this TTL. It goes on as before.
    #[error(transparent)]
    Refused(ConfigError),
    /// No quorum confirmed the renewal in time. The lease keeps its old end, and may be renewed until then.
    #[error("the renewal of `{resource}` was not confirmed, the lease keeps its old end: {report}")]
    Unconfirmed {
        /// The locked resource.
        resource: Resource,
        /// How the nodes voted.
        report: Box<VoteReport>,
    },
}

/// Why a lock was not [retained](crate::Lease::retain).
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetainError {
    /// The lease was over before, or the nodes had lost the key by then.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// No quorum confirmed it while the lease was valid: others may acquire the lock before the time is up.
    #[error("no quorum confirmed that `{resource}` stays taken: {report}")]
    Unconfirmed {
        /// The locked resource.
        resource: Resource,
        /// How the nodes voted in the last round.
        report: Box<VoteReport>,
    },
    /// This lease cannot be retained, and was released.
    #[error("`{resource}` cannot be retained: {reason}; this lease was released")]
    Unsupported {
        /// The locked resource.
        resource: Resource,
        /// Why not.
        reason: &'static str,
    },
}

/// Why work under a lock did not succeed: an error for work that has none of its own, and for callers that
/// tell the lock's errors from the work's.
///
/// [`Lock::with`](crate::Lock::with) takes any error type that [`AcquireError`] and [`Lost`] convert to. `A` is
/// [`PermitError`] for [`Semaphore::with`](crate::Semaphore::with).
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WithError<E = Infallible, A = AcquireError> {
    /// The lock was not acquired, and the work not started.
    #[error(transparent)]
    Acquire(A),
    /// The lease was lost, and the work dropped at the point where it waited. If the work had ended already,
    /// some of it may have run without protection.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The work itself failed, and said so with `map_err(WithError::Work)`. The lock was released.
    #[error(transparent)]
    Work(E),
}

impl<E> From<AcquireError> for WithError<E> {
    fn from(error: AcquireError) -> WithError<E> {
        WithError::Acquire(error)
    }
}

impl<E> From<PermitError> for WithError<E, PermitError> {
    fn from(error: PermitError) -> WithError<E, PermitError> {
        WithError::Acquire(error)
    }
}
