//! What a driver is told to do, and what it has to say about it: a line of JSON each.
//!
//! All drivers speak this, in whichever language they are written. A driver is started with the name
//! of its subject and the addresses of its servers, prints one [`Ready`] when it is connected, and then
//! answers each [`Order`] by one [`Findings`] until its input ends.

use serde::{Deserialize, Serialize};

/// Printed once, when the driver has connected.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// Of the library under test and what it stands on, for people.
    pub(crate) version: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) work: Work,
    pub(crate) tasks: usize,
    /// How long no new acquisition begins after. Unused by [`Work::Together`].
    pub(crate) millis: u64,
    /// How long each holder keeps the lock. Unused by [`Work::Cycles`].
    pub(crate) hold_millis: u64,
    pub(crate) ttl_millis: u64,
    /// Of the lock; for [`Work::Cycles`] followed by a slash and the number of the task.
    pub(crate) name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Work {
    /// Each task acquires and releases a lock of its own, over and over.
    Cycles,
    /// All tasks want the same lock, over and over, and hold it for a while.
    Contend,
    /// All tasks want the same lock at the same moment, once each.
    Together,
}

#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Findings {
    /// Cycles, or grants within the time.
    pub(crate) count: u64,
    /// Grants, those after the end of the time included: whoever waits then is still served.
    pub(crate) all: u64,
    /// Calls that ended with an error.
    pub(crate) failures: u64,
    /// How often somebody held the lock while another one did.
    pub(crate) overlaps: u64,
    /// How long it took.
    pub(crate) micros: u64,
    /// Of a cycle, or from the end of one hold to the beginning of the next one; in microseconds.
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    /// How many grants each task had.
    pub(crate) shares: Vec<u64>,
}
