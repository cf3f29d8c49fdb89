//! Every error of the library, on one page.
//!
//! An error names the thing, counts, says what was needed, and what would be right. None of them
//! ever contains a password.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use crate::address::AddressError;
use crate::duration;
use crate::node::Capability;
use crate::quorum::vote_report::{Holder, VoteReport, holders};
use crate::reason::Reason;
use quorlock_protocol::{Drift, Resource, ResourceError};

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
    /// A node that only its own host reaches, among several.
    #[error(
        "the node {name} is of this host only, and on another one its address leads to another store: use it alone, \
         or use only nodes that every host reaches"
    )]
    OneHostOfSeveral {
        /// The node.
        name: Arc<str>,
    },
    /// A node in whose store other programs lock, among several.
    #[error(
        "other programs lock in the store of the node {name} alone, and a quorum of several nodes does not exclude them: \
         use it as the only node"
    )]
    SharedStoreOfSeveral {
        /// The node.
        name: Arc<str>,
    },
    /// Two kinds of node want the addresses of one scheme.
    #[error(
        "two kinds of node have the scheme {scheme}://; register one of them only, or give the other one a scheme of its own"
    )]
    SchemeTwice {
        /// The scheme.
        scheme: Arc<str>,
    },
    /// No node can be made of an address.
    #[error("the node {name} cannot be used: {problem:#}")]
    Node {
        /// The address.
        name: Arc<str>,
        /// Why, as its kind says.
        problem: Reason,
    },
    /// A quorum that is no majority, or more than all.
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
    /// Nothing of the TTL would remain for the holder.
    #[error(
        "a TTL of {:?} is too short: the node limit and the allowance for drift leave nothing to hold; \
         use {:?} or more", .ttl, .least
    )]
    TtlTooShort {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The shortest that works with these settings.
        least: Duration,
    },
    /// A TTL above the deployment's limit.
    #[error(
        "a TTL of {0:?} is above the deployment's max_ttl of {1:?}, for which restarted nodes wait: use a TTL of at \
         most {1:?}, or set max_ttl to {0:?} at every client (`Builder::max_ttl`, --max-ttl, `max-ttl` in the file)",
        .ttl, .max_ttl
    )]
    TtlTooLong {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The longest allowed.
        max_ttl: Duration,
    },
    /// A time setting of zero, where that cannot work.
    #[error("{setting} is zero; give it a length of time, such as 50ms")]
    Zero {
        /// Which setting.
        setting: &'static str,
    },
    /// Renewals so rare that one failure loses the lease.
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
    #[error(transparent)]
    Tls {
        /// What is wrong.
        problem: Reason,
    },
    /// A resource name that cannot be a key.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// A reentrant lock that nobody could re-enter.
    #[error(
        "a reentrant lock was acquired outside of an owner's scope; wrap the work in `Owner::scope`, or without async in `Owner::scope_blocking`"
    )]
    NoOwner,
    /// An owner that shares a lock and wants it alone.
    #[error(
        "its owner shares this lock and cannot have it alone as well: it would wait for itself, and two who \
         do so for each other; give the share back first, or begin alone and downgrade"
    )]
    Upgrade,
    /// A lock of no resources, or of too many.
    #[error(
        "a lock of {given} resources at once is not possible; it has between 1 and {most}, because a server \
         does nothing else while it looks at them"
    )]
    Resources {
        /// How many there are.
        given: usize,
        /// The most there may be.
        most: usize,
    },
    /// Several resources, and an option that makes no sense for them.
    #[error(
        "several resources at once cannot be {option}: {reason}; leave out `{option}`, or lock one resource"
    )]
    Several {
        /// Which option: `shared`.
        option: &'static str,
        /// Why it is not possible.
        reason: &'static str,
    },
    /// A node that cannot do what the lock needs.
    #[error("the node {node} cannot carry out {capability}; {}", instead_of(*.capability))]
    Unsupported {
        /// Which node.
        node: Arc<str>,
        /// What it cannot do.
        capability: Capability,
    },
    /// A TTL for which a node cannot keep a key.
    #[error("a TTL of {} is too short for the node {node}, which keeps keys for {} at least", duration::format(*.ttl), duration::format(*.least))]
    TtlTooShortForNode {
        /// What was asked for.
        ttl: Duration,
        /// The shortest that the node can keep.
        least: Duration,
        /// Which node.
        node: Arc<str>,
    },
    /// A semaphore that cannot have so many permits.
    #[error(
        "a semaphore of {given} permits is not possible; it has between 1 and {most}, because whoever \
         waits watches each of them"
    )]
    Permits {
        /// What was asked for.
        given: usize,
        /// The most there may be.
        most: usize,
    },
    /// There is no thread for the blocking API.
    #[error("the background thread of the blocking API cannot be started")]
    NoBackground {
        /// What the system says.
        source: Reason,
    },
    /// A label that would not fit.
    #[error("a label has {length} bytes, more than the {most} allowed; it is stored at every node")]
    LabelTooLong {
        /// Its length in bytes.
        length: usize,
        /// The longest allowed.
        most: usize,
    },
}

/// What to do where a node cannot do that.
fn instead_of(capability: Capability) -> &'static str {
    match capability {
        Capability::Shared => "leave out `shared`, or use nodes that can",
        Capability::Several => "lock one resource after the other, or use nodes that can",
        Capability::Queue | Capability::Transfer | Capability::Offer => "use nodes that can",
    }
}

/// Why a lock was not acquired.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Others hold it, and did so for as long as the caller was willing to wait.
    #[error("{}", held(.resource, .report, *.waited))]
    Contended {
        /// What was to be locked.
        resource: Resource,
        /// How the nodes voted in the last round.
        report: Box<VoteReport>,
        /// How long the caller waited.
        waited: Duration,
    },
    /// Too few nodes answered, so nobody knows whether the lock is free.
    #[error("no quorum for `{resource}`: {report}")]
    Unavailable {
        /// What was to be locked.
        resource: Resource,
        /// How the nodes voted in the last round.
        report: Box<VoteReport>,
        /// How long the caller waited.
        waited: Duration,
    },
    /// So many nodes cannot grant until somebody mends something that waiting is pointless: rights
    /// are missing, an address leads to a replica or to a server that is counted already, or the
    /// key holds data.
    #[error("no quorum for `{resource}` until its nodes are mended: {report}")]
    Misconfigured {
        /// What was to be locked.
        resource: Resource,
        /// How the nodes voted.
        report: Box<VoteReport>,
    },
    /// A quorum of the nodes has another number of permits for the semaphore: this program is wrong, or those
    /// that hold permits are.
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
    /// Others hold all permits of the semaphore, and did so for as long as the caller was willing to
    /// wait.
    #[error(transparent)]
    Full(#[from] SemaphoreFull),
    /// The options of the lock cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The coordinator was closed.
    #[error("the coordinator is closed")]
    Closed,
    /// A call of the blocking API where it must not wait.
    #[error(transparent)]
    InAsyncContext(#[from] InAsyncContext),
}

impl AcquireError {
    /// How the nodes voted, if they were asked.
    #[must_use]
    pub fn report(&self) -> Option<&VoteReport> {
        match self {
            AcquireError::Contended { report, .. }
            | AcquireError::Unavailable { report, .. }
            | AcquireError::Misconfigured { report, .. }
            | AcquireError::OtherPermits { report, .. } => Some(report),
            AcquireError::Full(_)
            | AcquireError::Config(_)
            | AcquireError::Closed
            | AcquireError::InAsyncContext(_) => None,
        }
    }
}

fn other_permits(resource: &Resource, found: &str, asked: &str) -> String {
    let permits = if found == "1" { "permit" } else { "permits" };
    let were = if asked == "1" { "was" } else { "were" };
    format!(
        "the semaphore `{resource}` has {found} {permits}, and {asked} {were} asked for: all programs must ask \
         for the same number; another is possible when nobody has held a permit for one TTL"
    )
}

fn held(resource: &Resource, report: &VoteReport, waited: Duration) -> String {
    let waited = after(waited);
    match report.holder() {
        Some(Holder { token, remaining, key, .. }) if token.is_retained() => format!(
            "`{}` stays taken for up to {} more: {token}{waited}",
            key.as_deref().unwrap_or(resource.as_str()),
            duration::format(remaining),
        ),
        // Not at how many nodes: those that have not been heard by then may well have it.
        Some(Holder { token, remaining, readers, key, .. }) => format!(
            "`{resource}` is held{} by {} for up to {} more{waited}",
            key.map(|key| format!(" at `{key}`")).unwrap_or_default(),
            holders(&token, &readers),
            duration::format(remaining),
        ),
        None => format!("`{resource}` is wanted by several at once{waited}: {report}"),
    }
}

/// All permits of a semaphore are taken.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("all {} permits of `{resource}` are taken{}: {}", holders.len(), after(*.waited), by_number(.holders))]
#[non_exhaustive]
pub struct SemaphoreFull {
    /// The semaphore.
    pub resource: Resource,
    /// Who holds each permit, by number; `None` where several contend for it right now.
    pub holders: Vec<Option<Holder>>,
    /// How long the caller waited.
    pub waited: Duration,
}

fn by_number(holders: &[Option<Holder>]) -> String {
    let holder = |(number, holder): (usize, &Option<Holder>)| match holder {
        Some(Holder { token, .. }) => format!("#{number} {token}"),
        None => format!("#{number} wanted by several"),
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

/// The lease is over, and must not be relied on any more.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the lease of `{resource}` is over: {reason}")]
#[non_exhaustive]
pub struct Lost {
    /// What was locked.
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
    /// So many nodes no longer hold its key that others may have got it.
    #[error("so many nodes lost its key that somebody else may hold it")]
    QuorumLost,
    /// It was held for as long as `max_hold` allows.
    #[error("it was held for as long as max_hold allows")]
    MaxHold,
    /// It was released on purpose.
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
    /// No quorum confirmed the renewal in time. The lease keeps its old end, and may be renewed
    /// until then.
    #[error("the renewal of `{resource}` was not confirmed, its old end stands: {report}")]
    Unconfirmed {
        /// What is locked.
        resource: Resource,
        /// How the nodes voted.
        report: Box<VoteReport>,
    },
    /// A call of the blocking API where it must not wait.
    #[error(transparent)]
    InAsyncContext(#[from] InAsyncContext),
}

/// Why a lock does not [stay taken](crate::Lease::retain).
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetainError {
    /// The lease was over before.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// No quorum confirmed it while the lease lasted: others may acquire the lock before the time is up.
    #[error("whether `{resource}` stays taken is not certain: {report}")]
    Unconfirmed {
        /// What was locked.
        resource: Resource,
        /// How the nodes voted in the last round.
        report: Box<VoteReport>,
    },
    /// Not a lock that can. This lease of it was given back.
    #[error("`{resource}` does not stay taken: {reason}; it was given back")]
    Unsupported {
        /// What was locked.
        resource: Resource,
        /// Why not.
        reason: &'static str,
    },
    /// A call of the blocking API where it must not wait. The lease was given back.
    #[error(transparent)]
    InAsyncContext(#[from] InAsyncContext),
}

/// A call of the blocking API within an async task, where waiting would stall the
/// executor. Nothing was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a blocking call in an async context would stall its executor; use the async API there, or make the \
     call in `tokio::task::spawn_blocking`"
)]
#[expect(clippy::exhaustive_structs, reason = "complete: there is nothing more to say")]
pub struct InAsyncContext;

/// Why work under a lock did not succeed: an error for work that has none of its own, or for callers who
/// tell apart what came of the lock and what of the work.
///
/// Any error that can be made from an [`AcquireError`] and from [`Lost`] will do for [`Lock::with`]: see
/// [there](crate::Lock::with).
///
/// [`Lock::with`]: crate::Lock::with
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WithError<E = Infallible> {
    /// The lock was not acquired, and the work not started.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lease was lost, and the work stopped where it waited. If the work had ended already,
    /// nobody knows whether all of it was protected.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The work itself failed, and said so with `map_err(WithError::Work)`. The lock was released.
    #[error(transparent)]
    Work(E),
}
