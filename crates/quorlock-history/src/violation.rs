use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history::Answer;
use crate::hold::Hold;
use crate::names::{Client, Node, Resource, Token};
use crate::stamp::{Stamp, nanos};

/// A violated guarantee, with the evidence. `Display` is one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "violation", rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant documents its evidence")]
pub enum Violation {
    /// The history is inconsistent: the recorder is at fault.
    Flawed { at: Stamp, attempt: Token, flaw: Flaw },
    /// Two clients certainly held a lock at the same time, for `by`.
    Overlap {
        earlier: Hold,
        later: Hold,
        #[serde(with = "nanos")]
        by: Duration,
    },
    /// More clients certainly held permits of a semaphore at the same time than it has; this hold
    /// exceeded the number.
    Overfull { later: Hold, holders: usize },
    /// Two clients certainly held permits of a semaphore at the same time and disagreed about the
    /// number of permits.
    LimitsDiffer { earlier: Hold, later: Hold },
    /// An observer was given a leader that never campaigned, or whose lease had ended too long ago.
    Misled { client: Client, resource: Resource, at: Stamp, leader: Token, gone_by: Option<Stamp> },
    /// An observer was given a fencing token other than the leader's.
    OtherToken { client: Client, at: Stamp, observed: u64, leader: Hold },
    /// A guarded resource accepted a smaller fencing token after a larger one.
    TokenFell { before: Write, after: Write },
    /// Two attempts had the same fencing token.
    TokenShared { fencing_token: u64, first: Token, second: Token },
    /// A write had a fencing token that its attempt never got: `own` is what it got, if any.
    TokenOfAnother { write: Write, own: Option<u64> },
    /// The later attempt began after the earlier one had returned, but has a smaller token.
    TokenOrder { earlier: Hold, later: Hold },
    /// A write was refused although its client certainly held the lock.
    FencedWrongly { hold: Hold, write: Write },
    /// No order of the acquisitions and releases explains their results: the longest places
    /// `placed` of the operations, and the acquisition of this hold, which must come next, is not
    /// possible. `for_tokens` is set if an order exists when fencing tokens are ignored.
    NoOrder { hold: Hold, placed: usize, operations: usize, for_tokens: bool },
    /// A key remained on a node after its attempt had ended and the time for clean-up had passed.
    Orphan { key: KeySeen, gone_by: Stamp },
    /// A key's value belongs to no attempt for this resource.
    Stranger { key: KeySeen },
    /// A key had more time left than the longest TTL.
    KeyTooLong {
        key: KeySeen,
        #[serde(with = "nanos")]
        max_ttl: Duration,
    },
    /// A counter decreased on a node that had lost no data.
    CounterFell { node: Node, resource: Resource, since: Stamp, before: u64, at: Stamp, after: u64 },
    /// A client got no lock after all faults had healed, in `attempts` attempts.
    Starved {
        client: Client,
        since: Stamp,
        #[serde(with = "nanos")]
        bound: Duration,
        attempts: usize,
    },
    /// The holder was notified of the loss after the deadline, or never.
    LossReportedLate { hold: Hold, due: Stamp, reported: Option<Stamp> },
    /// A renewal extended the deadline of a lease that had ended.
    RenewedLate { hold: Hold, over: Stamp, at: Stamp, renewed: Stamp },
    /// A lease that had ended was reported as valid.
    ValidLate { hold: Hold, over: Stamp, at: Stamp },
}

/// The checks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Check {
    /// The history is consistent.
    Record,
    /// No two clients hold a lock at the same time.
    Exclusion,
    /// Fencing tokens protect a resource that checks them.
    Register,
    /// The lock behaves as one mutex.
    Mutex,
    /// Nothing is left behind on the nodes.
    Orphans,
    /// Every client eventually gets a lock.
    Liveness,
    /// A loss is reported in time, and is final.
    Loss,
    /// A semaphore has no more holders than permits.
    Permits,
    /// Observers are given leaders that lead, or did so recently.
    Observers,
}

/// Why a history is inconsistent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Flaw {
    /// An event belongs to an attempt that never began.
    NeverInvoked,
    /// An event that happens once per attempt happened twice.
    Twice,
    /// An event concerns the lease of an attempt that had returned none.
    NotHeld,
}

/// A write as seen by a guarded resource.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Write {
    /// When the resource decided.
    pub at: Stamp,
    /// The attempt whose lease the writer held.
    pub attempt: Token,
    /// The fencing token sent with the write.
    pub fencing_token: u64,
    /// The decision.
    pub answer: Answer,
}

/// A key found on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeySeen {
    /// When it was found.
    pub at: Stamp,
    /// The node.
    pub node: Node,
    /// The locked resource.
    pub resource: Resource,
    /// The attempt that its value belongs to.
    pub attempt: Token,
    /// The remaining TTL.
    #[serde(with = "nanos")]
    pub remaining: Duration,
}

impl Violation {
    /// Returns the check that finds this violation.
    #[must_use]
    pub fn check(&self) -> Check {
        self.summary().0
    }

    /// Returns when the guarantee was violated, if the evidence tells.
    #[must_use]
    pub fn at(&self) -> Option<Stamp> {
        self.summary().1
    }

    /// Returns the lock concerned, if the evidence tells.
    #[must_use]
    pub fn resource(&self) -> Option<&Resource> {
        self.summary().2
    }

    /// The check, the time and the lock.
    fn summary(&self) -> (Check, Option<Stamp>, Option<&Resource>) {
        fn acquired(check: Check, hold: &Hold) -> (Check, Option<Stamp>, Option<&Resource>) {
            (check, Some(hold.acquired), Some(&hold.resource))
        }
        match self {
            Violation::Flawed { at, .. } => (Check::Record, Some(*at), None),
            Violation::Overlap { later, .. } => acquired(Check::Exclusion, later),
            Violation::Overfull { later, .. } | Violation::LimitsDiffer { later, .. } => {
                acquired(Check::Permits, later)
            }
            Violation::Misled { at, resource, .. } => (Check::Observers, Some(*at), Some(resource)),
            Violation::OtherToken { at, leader, .. } => (Check::Observers, Some(*at), Some(&leader.resource)),
            Violation::TokenFell { after, .. } => (Check::Register, Some(after.at), None),
            Violation::TokenShared { .. } => (Check::Register, None, None),
            Violation::TokenOfAnother { write, .. } => (Check::Register, Some(write.at), None),
            Violation::TokenOrder { later, .. } => acquired(Check::Register, later),
            Violation::FencedWrongly { hold, write } => {
                (Check::Register, Some(write.at), Some(&hold.resource))
            }
            Violation::NoOrder { hold, .. } => acquired(Check::Mutex, hold),
            Violation::Orphan { key, .. }
            | Violation::Stranger { key }
            | Violation::KeyTooLong { key, .. } => (Check::Orphans, Some(key.at), Some(&key.resource)),
            Violation::CounterFell { at, resource, .. } => (Check::Orphans, Some(*at), Some(resource)),
            Violation::Starved { since, bound, .. } => (Check::Liveness, Some(since.plus(*bound)), None),
            Violation::LossReportedLate { hold, due, .. } => (Check::Loss, Some(*due), Some(&hold.resource)),
            Violation::RenewedLate { hold, at, .. } | Violation::ValidLate { hold, at, .. } => {
                (Check::Loss, Some(*at), Some(&hold.resource))
            }
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Flawed { at, attempt, flaw } => {
                write!(f, "the record of {attempt} is inconsistent at {at}: {flaw}")
            }
            Violation::Overlap { earlier, later, by } => {
                write!(f, "`{}` was held twice for {by:?}: by {earlier}, and by {later}", earlier.resource)
            }
            Violation::Overfull { later, holders } => {
                write!(
                    f,
                    "`{}` had {holders} holders at the same time once {later} had acquired it",
                    later.resource
                )
            }
            Violation::LimitsDiffer { earlier, later } => write!(
                f,
                "`{}` had two holders that disagreed about its number of permits: {earlier}, and {later}",
                later.resource
            ),
            Violation::Misled { client, resource, at, leader, gone_by: None } => {
                write!(
                    f,
                    "{client} observed {leader} as leader of `{resource}` at {at}, but it never campaigned"
                )
            }
            Violation::Misled { client, resource, at, leader, gone_by: Some(gone_by) } => write!(
                f,
                "{client} observed {leader} as leader of `{resource}` at {at}, but it should have been gone by {gone_by}"
            ),
            Violation::OtherToken { client, at, observed, leader } => {
                write!(
                    f,
                    "{client} observed fencing token {observed} at {at}, which is not that of the leader {leader}"
                )
            }
            Violation::TokenFell { before, after } => write!(f, "{before} was followed by {after}"),
            Violation::TokenShared { fencing_token, first, second } => {
                write!(f, "fencing token {fencing_token} belongs to {first} and to {second}")
            }
            Violation::TokenOfAnother { write, own: Some(own) } => {
                write!(f, "{write}, although its own is {own}")
            }
            Violation::TokenOfAnother { write, own: None } => write!(f, "{write}, although it got none"),
            Violation::TokenOrder { earlier, later } => write!(
                f,
                "`{}` was acquired with a smaller fencing token by {later}, which began at {}, than earlier by {earlier}",
                later.resource, later.invoked,
            ),
            Violation::FencedWrongly { hold, write } => {
                write!(f, "{write}, although `{}` was held by {hold}", hold.resource)
            }
            Violation::NoOrder { hold, placed, operations, for_tokens } => write!(
                f,
                "`{}` did not behave as a mutex: no order {}explains the acquisition by {hold}; {placed} of {operations} operations fit",
                hold.resource,
                if *for_tokens { "consistent with the fencing tokens " } else { "" },
            ),
            Violation::Orphan { key, gone_by } => {
                write!(f, "{key}, which should have been gone by {gone_by}")
            }
            Violation::Stranger { key } => write!(f, "{key}, which never requested it"),
            Violation::KeyTooLong { key, max_ttl } => {
                write!(f, "{key} with {:?} left, more than the maximum of {max_ttl:?}", key.remaining)
            }
            Violation::CounterFell { node, resource, since, before, at, after } => write!(
                f,
                "the counter of `{resource}` on {node} fell from {before} at {since} to {after} at {at} without a known loss of data"
            ),
            Violation::Starved { client, since, bound, attempts } => write!(
                f,
                "{client} got no lock within {bound:?} from {since}, after all faults had healed; attempts: {attempts}"
            ),
            Violation::LossReportedLate { hold, due, reported: Some(reported) } => {
                write!(f, "the loss of `{}` was reported at {reported}, due at {due}: {hold}", hold.resource)
            }
            Violation::LossReportedLate { hold, due, reported: None } => {
                write!(f, "the loss of `{}` was never reported, due at {due}: {hold}", hold.resource)
            }
            Violation::RenewedLate { hold, over, at, renewed } => write!(
                f,
                "`{}` had ended at {over} but was renewed at {at} until {renewed}: {hold}",
                hold.resource
            ),
            Violation::ValidLate { hold, over, at } => {
                write!(f, "`{}` had ended at {over} but was reported as valid at {at}: {hold}", hold.resource)
            }
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::NeverInvoked => "the attempt never began",
            Flaw::Twice => "it already happened",
            Flaw::NotHeld => "the attempt has no lease",
        })
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Write { at, attempt, fencing_token, answer } = self;
        write!(f, "a write of {attempt} with fencing token {fencing_token} (")?;
        answer.serialize(&mut *f)?;
        write!(f, " at {at})")
    }
}

impl fmt::Display for KeySeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeySeen { at, node, resource, attempt, .. } = self;
        write!(f, "{node} had the key `{resource}` at {at} for {attempt}")
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}
