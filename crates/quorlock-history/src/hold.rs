//! One hold of a lock, and the time in which it certainly lasted.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::{Client, Resource, Token};
use crate::stamp::Stamp;

/// One hold of a lock: the evidence cited by violations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Hold {
    /// The holder.
    pub client: Client,
    /// The locked resource.
    pub resource: Resource,
    /// The attempt that acquired it.
    pub attempt: Token,
    /// When the attempt began.
    pub invoked: Stamp,
    /// When it became shared, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<Stamp>,
    /// The semaphore permit, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit: Option<Permit>,
    /// When the lease was returned.
    pub acquired: Stamp,
    /// The deadline after the last renewal.
    pub deadline: Stamp,
    /// When the holder stopped relying on the lock: at its release, its deadline, the notification
    /// of its loss or its crash, whichever came first.
    pub end: Stamp,
    /// Which of these it was.
    pub ending: Ending,
    /// The fencing token, if fencing was on.
    pub fencing_token: Option<u64>,
}

/// One permit of a semaphore.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Permit {
    /// The number of permits the holder believes the semaphore has.
    pub of: usize,
    /// The permit number; `None` where permits have no numbers.
    pub number: Option<usize>,
}

/// Why a hold ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
    /// The holder began to release the lock.
    Released,
    /// The holder was notified of the loss.
    Lost,
    /// The client crashed.
    Crashed,
    /// The deadline passed.
    Lapsed,
}

impl Hold {
    /// Returns the interval in which the client certainly held the lock, given clocks that are off
    /// by at most `epsilon`. `None` if there is no such interval.
    pub(crate) fn certain(&self, epsilon: Duration) -> Option<(Stamp, Stamp)> {
        let (from, to) = (self.acquired.plus(epsilon), self.end.minus(epsilon));
        (from < to).then_some((from, to))
    }
}

/// A part of a hold that was either exclusive or shared.
pub(crate) struct Part<'hold> {
    pub(crate) from: Stamp,
    pub(crate) to: Stamp,
    pub(crate) shared: bool,
    pub(crate) hold: &'hold Hold,
}

impl Hold {
    /// Whether it was shared from the beginning.
    pub(crate) fn began_shared(&self) -> bool {
        self.shared.is_some_and(|shared| shared <= self.acquired)
    }

    /// Like [`Hold::certain`], split into the exclusive and the shared part.
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
