//! The keys that this process has stored: holders, and places of its waiters.

use quorlock::protocol::Moment;

/// What is known of a key of this process. Its lease may live on for others.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) value: Vec<u8>,
    /// The revision at which the key was created, which orders the places; `i64::MAX` until that is known.
    pub(crate) created: i64,
    /// The TTL of its lease, in seconds.
    pub(crate) class: u64,
    /// From when the TTL of the lease counted when it was stored, and when that was answered.
    pub(crate) from: Moment,
    pub(crate) put: Moment,
}
