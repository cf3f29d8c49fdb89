use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history::Answer;
use crate::hold::Hold;
use crate::names::{Client, Node, Resource, Token};
use crate::stamp::{Stamp, nanos};

/// A promise that the history breaks, with the evidence. `Display` is one sentence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "violation", rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant says what its evidence is")]
pub enum Violation {
    /// The history cannot be true: it is the recorder that is wrong.
    Flawed { at: Stamp, attempt: Token, flaw: Flaw },
    /// Two clients certainly held one lock at once, for so long.
    Overlap {
        earlier: Hold,
        later: Hold,
        #[serde(with = "nanos")]
        by: Duration,
    },
    /// More certainly held permits of a semaphore at once than it has: this hold was one too many.
    Overfull { later: Hold, holders: usize },
    /// Two certainly held permits of one semaphore at once, and differed about how many there are.
    LimitsDiffer { earlier: Hold, later: Hold },
    /// An observer was told of a leader that never asked to lead, or that had been over for too long.
    Misled { client: Client, resource: Resource, at: Stamp, leader: Token, gone_by: Option<Stamp> },
    /// An observer was told another fencing token than the leader has.
    OtherToken { client: Client, at: Stamp, told: u64, leader: Hold },
    /// A guarded resource accepted a smaller fencing token after a larger one.
    TokenFell { before: Write, after: Write },
    /// Two attempts had the same fencing token.
    TokenShared { fencing_token: u64, first: Token, second: Token },
    /// The later attempt began after the earlier one had returned, and has a smaller token.
    TokenOrder { earlier: Hold, later: Hold },
    /// A write was refused although its client certainly held the lock.
    FencedWrongly { hold: Hold, write: Write },
    /// No order of the acquisitions and releases explains what they returned: the best one places
    /// so many of the operations, and the acquisition of this hold cannot come next although it has to.
    /// It is for the tokens alone if there is an order without them.
    NoOrder { hold: Hold, placed: usize, operations: usize, for_tokens: bool },
    /// A key stood at a node after its attempt was over and the time to clean up had passed.
    Orphan { key: KeySeen, gone_by: Stamp },
    /// A key's value belongs to no attempt at this resource.
    Stranger { key: KeySeen },
    /// A key had more time left than the longest TTL.
    KeyTooLong {
        key: KeySeen,
        #[serde(with = "nanos")]
        max_ttl: Duration,
    },
    /// A node counted back without having forgotten anything.
    CounterFell { node: Node, resource: Resource, since: Stamp, before: u64, at: Stamp, after: u64 },
    /// A client got no lock although all faults had healed: it had tried so often in the time.
    Starved {
        client: Client,
        since: Stamp,
        #[serde(with = "nanos")]
        bound: Duration,
        attempts: usize,
    },
    /// The holder heard of the loss after it was due, or never.
    ToldLate { hold: Hold, due: Stamp, told: Option<Stamp> },
    /// A renewal moved the end of a lease that was over.
    RenewedLate { hold: Hold, over: Stamp, at: Stamp, renewed: Stamp },
    /// A lease that was over said that it holds.
    ValidLate { hold: Hold, over: Stamp, at: Stamp },
}

/// Which of the checks found a violation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Check {
    /// The history itself.
    Record,
    /// No two clients hold one lock at once.
    Exclusion,
    /// Fencing tokens protect a resource that checks them.
    Register,
    /// The lock behaves as one mutex.
    Mutex,
    /// Nothing is left at the nodes.
    Orphans,
    /// Everybody gets a lock in the end.
    Liveness,
    /// A loss is told in time, and is for ever.
    Loss,
    /// No more hold a semaphore's permits at once than it has.
    Permits,
    /// Observers are told of leaders that are, or were just now.
    Observers,
}

/// Why a history cannot be true.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Flaw {
    /// Something happened to an attempt that never began.
    NeverInvoked,
    /// What happens to an attempt once happened twice.
    Twice,
    /// Something happened to the lease of an attempt that had returned none.
    NotHeld,
}

/// A write as a guarded resource saw it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Write {
    /// When the resource decided.
    pub at: Stamp,
    /// Under whose lease it was written.
    pub attempt: Token,
    /// The fencing token that came with it.
    pub fencing_token: u64,
    /// What the resource decided.
    pub answer: Answer,
}

/// A key as it was seen at a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeySeen {
    /// When.
    pub at: Stamp,
    /// Where.
    pub node: Node,
    /// What it locks.
    pub resource: Resource,
    /// To which attempt its value belongs.
    pub attempt: Token,
    /// The rest of its TTL.
    #[serde(with = "nanos")]
    pub remaining: Duration,
}

impl Violation {
    /// Which check finds this.
    #[must_use]
    pub fn check(&self) -> Check {
        match self {
            Violation::Flawed { .. } => Check::Record,
            Violation::Overlap { .. } => Check::Exclusion,
            Violation::Overfull { .. } | Violation::LimitsDiffer { .. } => Check::Permits,
            Violation::Misled { .. } | Violation::OtherToken { .. } => Check::Observers,
            Violation::TokenFell { .. }
            | Violation::TokenShared { .. }
            | Violation::TokenOrder { .. }
            | Violation::FencedWrongly { .. } => Check::Register,
            Violation::NoOrder { .. } => Check::Mutex,
            Violation::Orphan { .. }
            | Violation::Stranger { .. }
            | Violation::KeyTooLong { .. }
            | Violation::CounterFell { .. } => Check::Orphans,
            Violation::Starved { .. } => Check::Liveness,
            Violation::ToldLate { .. } | Violation::RenewedLate { .. } | Violation::ValidLate { .. } => {
                Check::Loss
            }
        }
    }
}

/// Where to look for it.
impl Violation {
    /// When the promise was broken, where the evidence says.
    #[must_use]
    pub fn at(&self) -> Option<Stamp> {
        match self {
            Violation::Flawed { at, .. }
            | Violation::CounterFell { at, .. }
            | Violation::Misled { at, .. }
            | Violation::OtherToken { at, .. }
            | Violation::RenewedLate { at, .. }
            | Violation::ValidLate { at, .. } => Some(*at),
            Violation::Overlap { later: hold, .. }
            | Violation::Overfull { later: hold, .. }
            | Violation::LimitsDiffer { later: hold, .. }
            | Violation::TokenOrder { later: hold, .. }
            | Violation::NoOrder { hold, .. } => Some(hold.acquired),
            Violation::TokenFell { after: write, .. } | Violation::FencedWrongly { write, .. } => {
                Some(write.at)
            }
            Violation::Orphan { key, .. }
            | Violation::Stranger { key }
            | Violation::KeyTooLong { key, .. } => Some(key.at),
            Violation::Starved { since, bound, .. } => Some(since.plus(*bound)),
            Violation::ToldLate { due, .. } => Some(*due),
            Violation::TokenShared { .. } => None,
        }
    }

    /// Of which lock, where the evidence says.
    #[must_use]
    pub fn resource(&self) -> Option<&Resource> {
        match self {
            Violation::Overlap { later: hold, .. }
            | Violation::Overfull { later: hold, .. }
            | Violation::LimitsDiffer { later: hold, .. }
            | Violation::OtherToken { leader: hold, .. }
            | Violation::TokenOrder { later: hold, .. }
            | Violation::NoOrder { hold, .. }
            | Violation::FencedWrongly { hold, .. }
            | Violation::ToldLate { hold, .. }
            | Violation::RenewedLate { hold, .. }
            | Violation::ValidLate { hold, .. } => Some(&hold.resource),
            Violation::Orphan { key, .. }
            | Violation::Stranger { key }
            | Violation::KeyTooLong { key, .. } => Some(&key.resource),
            Violation::CounterFell { resource, .. } | Violation::Misled { resource, .. } => Some(resource),
            Violation::Flawed { .. }
            | Violation::TokenFell { .. }
            | Violation::TokenShared { .. }
            | Violation::Starved { .. } => None,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Flawed { at, attempt, flaw } => {
                write!(f, "the record of {attempt} is wrong at {at}: {flaw}")
            }
            Violation::Overlap { earlier, later, by } => {
                write!(f, "`{}` was held twice for {by:?}: by {earlier}, and by {later}", earlier.resource)
            }
            Violation::Overfull { later, holders } => {
                write!(f, "`{}` had {holders} holders at once when it was given to {later}", later.resource)
            }
            Violation::LimitsDiffer { earlier, later } => write!(
                f,
                "`{}` was held at once by two who differ about its permits: by {earlier}, and by {later}",
                later.resource
            ),
            Violation::Misled { client, resource, at, leader, gone_by: None } => {
                write!(
                    f,
                    "{client} was told at {at} that {leader} leads `{resource}`, which never asked for it"
                )
            }
            Violation::Misled { client, resource, at, leader, gone_by: Some(gone_by) } => write!(
                f,
                "{client} was told at {at} that {leader} leads `{resource}`, which was to be gone by {gone_by}"
            ),
            Violation::OtherToken { client, at, told, leader } => {
                write!(f, "{client} was told at {at} of fencing token {told} of {leader}")
            }
            Violation::TokenFell { before, after } => write!(f, "after {before} came {after}"),
            Violation::TokenShared { fencing_token, first, second } => {
                write!(f, "fencing token {fencing_token} belongs to {first} and to {second}")
            }
            Violation::TokenOrder { earlier, later } => write!(
                f,
                "`{}` came later and with a smaller fencing token to {later}, who began at {}, than to {earlier}",
                later.resource, later.invoked,
            ),
            Violation::FencedWrongly { hold, write } => {
                write!(f, "{write}, although `{}` was held by {hold}", hold.resource)
            }
            Violation::NoOrder { hold, placed, operations, for_tokens } => write!(
                f,
                "`{}` was no mutex: no order {}explains how it came to {hold}; {placed} of {operations} operations fit",
                hold.resource,
                if *for_tokens { "that agrees with the fencing tokens " } else { "" },
            ),
            Violation::Orphan { key, gone_by } => write!(f, "{key}, and was to be gone by {gone_by}"),
            Violation::Stranger { key } => write!(f, "{key}, which never asked for it"),
            Violation::KeyTooLong { key, max_ttl } => {
                write!(f, "{key} with {:?} left, of {max_ttl:?} at most", key.remaining)
            }
            Violation::CounterFell { node, resource, since, before, at, after } => write!(
                f,
                "the counter of `{resource}` at {node} fell from {before} at {since} to {after} at {at}, and no loss of data is known"
            ),
            Violation::Starved { client, since, bound, attempts } => write!(
                f,
                "{client} got no lock within {bound:?} from {since} on, when all faults had healed; attempts: {attempts}"
            ),
            Violation::ToldLate { hold, due, told: Some(told) } => {
                write!(f, "the loss of `{}` was told at {told}, due at {due}: {hold}", hold.resource)
            }
            Violation::ToldLate { hold, due, told: None } => {
                write!(f, "the loss of `{}` was never told, due at {due}: {hold}", hold.resource)
            }
            Violation::RenewedLate { hold, over, at, renewed } => write!(
                f,
                "`{}` was over at {over} and renewed at {at} until {renewed}: {hold}",
                hold.resource
            ),
            Violation::ValidLate { hold, over, at } => {
                write!(f, "`{}` was over at {over} and called valid at {at}: {hold}", hold.resource)
            }
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::NeverInvoked => "the attempt never began",
            Flaw::Twice => "this has happened before",
            Flaw::NotHeld => "the attempt has no lease",
        })
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Write { at, attempt, fencing_token, answer } = self;
        let answer = match answer {
            Answer::Accepted => "accepted",
            Answer::Refused => "refused",
        };
        write!(f, "a write of {attempt} with fencing token {fencing_token} {answer} at {at}")
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
        f.write_str(match self {
            Check::Record => "record",
            Check::Exclusion => "exclusion",
            Check::Register => "register",
            Check::Mutex => "mutex",
            Check::Orphans => "orphans",
            Check::Liveness => "liveness",
            Check::Loss => "loss",
            Check::Permits => "permits",
            Check::Observers => "observers",
        })
    }
}
