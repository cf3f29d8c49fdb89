use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::{Client, Resource, Token};
use crate::stamp::Stamp;

/// One lock held once: the evidence that findings cite.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hold {
    /// Whose lock.
    pub client: Client,
    /// What was locked.
    pub resource: Resource,
    /// By which attempt.
    pub attempt: Token,
    /// When the attempt began.
    pub invoked: Stamp,
    /// Since when it was no more than a share, if it was one at some time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<Stamp>,
    /// Which permit of a semaphore it was, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<Permit>,
    /// When it returned the lease.
    pub acquired: Stamp,
    /// The end of validity after the last renewal.
    pub deadline: Stamp,
    /// When the holder stopped relying on the lock: the first of release, end of validity, the
    /// news of a loss, and crash.
    pub end: Stamp,
    /// Which of them it was.
    pub ending: Ending,
    /// The fencing token, if there was one.
    pub fencing_token: Option<u64>,
}

/// One of a semaphore's permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Permit {
    /// How many there are, as its holder believes.
    pub of: usize,
    /// Which of them; unknown where permits have no numbers.
    pub number: Option<usize>,
}

/// What ended a hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
    /// The holder began to give the lock back.
    Released,
    /// The holder was told that the lease is over.
    Lost,
    /// The client stopped for good.
    Crashed,
    /// The validity ended.
    Lapsed,
}

impl Hold {
    /// From when to when this client certainly held the lock, whatever clocks that are off by up
    /// to `epsilon` make of it. `None` if there is no such time.
    pub(crate) fn certain(&self, epsilon: Duration) -> Option<(Stamp, Stamp)> {
        let (from, to) = (self.acquired.plus(epsilon), self.end.minus(epsilon));
        (from < to).then_some((from, to))
    }
}

/// Some time of a hold in which it was of one kind.
pub(crate) struct Part<'hold> {
    pub(crate) from: Stamp,
    pub(crate) to: Stamp,
    pub(crate) shared: bool,
    pub(crate) hold: &'hold Hold,
}

impl Hold {
    /// Whether it was a share from the beginning: a reader's.
    pub(crate) fn began_shared(&self) -> bool {
        self.shared.is_some_and(|shared| shared <= self.acquired)
    }

    /// As [`Hold::certain`], apart for the time alone and the time together with others.
    pub(crate) fn parts(&self, epsilon: Duration) -> Vec<Part<'_>> {
        let Some((from, to)) = self.certain(epsilon) else { return Vec::new() };
        let part = |from, to, shared| Part { from, to, shared, hold: self };
        let parts = match self.shared {
            None => vec![part(from, to, false)],
            Some(_) if self.began_shared() => vec![part(from, to, true)],
            Some(at) => {
                vec![part(from, to.min(at.minus(epsilon)), false), part(from.max(at.plus(epsilon)), to, true)]
            }
        };
        parts.into_iter().filter(|part| part.from < part.to).collect()
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hold { client, attempt, acquired, end, ending, .. } = self;
        write!(f, "{client} ({attempt}")?;
        if let Some(token) = self.fencing_token {
            write!(f, ", fencing token {token}")?;
        }
        match self.permit {
            Some(Permit { of, number: Some(number) }) => write!(f, ", permit {number} of {of}")?,
            Some(Permit { of, number: None }) => write!(f, ", one of {of} permits")?,
            None => {}
        }
        if let Some(shared) = self.shared {
            write!(f, ", shared from {shared}")?;
        }
        write!(f, ") from {acquired} until it {ending} at {end}")
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ending::Released => "released",
            Ending::Lost => "lost it",
            Ending::Crashed => "crashed",
            Ending::Lapsed => "lapsed",
        })
    }
}
