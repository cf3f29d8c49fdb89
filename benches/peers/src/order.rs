//! The protocol of a driver: one line of JSON per order and per answer.
//!
//! All drivers speak it, in every language. A driver is started with the name of its subject and the addresses of its
//! servers, prints one [`Ready`] when it is connected, and then answers each [`Order`] with one [`Findings`] until its
//! input ends.

use serde::{Deserialize, Serialize};

/// Printed once, when the driver has connected.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ready {
    /// Versions of the library under test and its dependencies, for people.
    pub(crate) version: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) work: Work,
    pub(crate) tasks: usize,
    /// After this time no new acquisition begins. Unused by [`Work::Together`].
    pub(crate) millis: u64,
    /// How long each holder keeps the lock. Unused by [`Work::Cycles`].
    pub(crate) hold_millis: u64,
    pub(crate) ttl_millis: u64,
    /// The name of the lock. For [`Work::Cycles`] each lock is a new one: a slash and the number of the task follow, and a
    /// slash and the number of the lock.
    pub(crate) name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Work {
    /// Each task acquires and releases one new lock after another.
    Cycles,
    /// All tasks contend for the same lock, repeatedly, and hold it for a while.
    Contend,
    /// All tasks contend for the same lock at the same moment, once each.
    Together,
}

/// Drivers may report more.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Findings {
    /// Cycles, or grants within the time.
    pub(crate) count: u64,
    /// Grants, including those after the time is over: waiting tasks are still served.
    pub(crate) all: u64,
    /// Calls that returned an error.
    pub(crate) failures: u64,
    /// How often two tasks of a process held the lock at the same time.
    pub(crate) overlaps: u64,
    /// The duration.
    pub(crate) micros: u64,
    /// Microseconds of a cycle.
    pub(crate) p50: u64,
    /// For each task, when each of its grants began: microseconds since the beginning of 1970.
    pub(crate) grants: Vec<Vec<u64>>,
}
