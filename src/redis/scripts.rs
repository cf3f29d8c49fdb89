//! The Lua scripts that the servers run, each in one atomic step.

use std::sync::{LazyLock, OnceLock};

use super::redisson::Publishing;

/// Defines a script from its files, in which each may use the functions of the ones before it.
macro_rules! script {
    ($number:literal, $($name:literal),+) => {
        LazyLock::new(|| Script::new($number, &[$(include_str!(concat!("scripts/", $name, ".lua"))),+]))
    };
}

/// A script. A server that has run it once also knows it by its hash.
#[derive(Debug)]
pub struct Script {
    text: String,
    hash: String,
    number: u8,
    /// The variant for a cluster member.
    member: OnceLock<Box<Script>>,
}

/// Stores the token if the key is free, and issues its fencing number.
pub static ACQUIRE: LazyLock<Script> = script!(0, "number", "fence", "acquire");
/// Enters the queue for a lock.
pub static ENQUEUE: LazyLock<Script> = script!(1, "untrack", "queue", "enqueue");
/// Raises the fencing counters to a number, if the locks are the attempt's own.
pub static WRITE_BACK: LazyLock<Script> = script!(2, "untrack", "number", "fence", "readers", "write_back");
/// Leaves the queue.
pub static LEAVE_QUEUE: LazyLock<Script> = script!(3, "untrack", "queue", "leave_queue");
/// Lists the waiters in the queue.
pub static LIST_WAITERS: LazyLock<Script> = script!(27, "untrack", "queue", "list_waiters");
/// Adds a hold to the log of a lock.
pub static LOG_HOLD: LazyLock<Script> = script!(29, "log_hold");
/// Reads the log of a lock.
pub static READ_LOG: LazyLock<Script> = script!(30, "untrack", "read_log");
/// Replaces the token of the key by the next one.
pub static TRANSFER: LazyLock<Script> = script!(4, "number", "fence", "transfer");
/// Extends the TTL of the key if it holds our token, or stores it again.
pub static RENEW: LazyLock<Script> = script!(5, "untrack", "number", "fence", "renew");
/// Deletes the key if it holds our token, and notifies the next waiter.
pub static RELEASE: LazyLock<Script> = script!(6, "untrack", "delete_own", "queue", "release");
/// Releases the lock, and offers it to the next waiter.
pub static OFFER: LazyLock<Script> = script!(26, "untrack", "number", "fence", "queue", "offer");
/// Deletes the key if it holds our token, and leaves a tombstone.
pub static CANCEL: LazyLock<Script> = script!(7, "untrack", "cancel");
/// Reads the holder of the key.
pub static INSPECT: LazyLock<Script> = script!(8, "inspect");

/// Adds the token to the readers of the lock.
pub static ACQUIRE_SHARED: LazyLock<Script> = script!(9, "number", "fence", "readers", "acquire_shared");
/// Extends the TTL of a reader, stores it again, or makes an exclusive holder a reader.
pub static RENEW_SHARED: LazyLock<Script> =
    script!(10, "untrack", "number", "fence", "readers", "renew_shared");
/// Removes a reader, and deletes the key with the last one.
pub static RELEASE_SHARED: LazyLock<Script> =
    script!(12, "untrack", "number", "fence", "queue", "readers", "end_share", "release_shared");
/// Removes a reader, and leaves a tombstone.
pub static CANCEL_SHARED: LazyLock<Script> =
    script!(13, "untrack", "number", "fence", "queue", "readers", "end_share", "cancel_shared");
/// Refuses new readers, for a writer that waits.
pub static INTEND: LazyLock<Script> = script!(14, "number", "fence", "readers", "intend");
/// Withdraws that.
pub static DESIST: LazyLock<Script> = script!(15, "number", "fence", "readers", "desist");

/// The scripts for one kind of claim other than one exclusive lock.
pub(crate) struct Family {
    pub(crate) acquire: &'static LazyLock<Script>,
    pub(crate) renew: &'static LazyLock<Script>,
    pub(crate) release: &'static LazyLock<Script>,
    pub(crate) cancel: &'static LazyLock<Script>,
}

/// The scripts for a shared claim.
pub(crate) static SHARED: Family = Family {
    acquire: &ACQUIRE_SHARED,
    renew: &RENEW_SHARED,
    release: &RELEASE_SHARED,
    cancel: &CANCEL_SHARED,
};

/// The scripts for a claim of several locks.
pub(crate) static SEVERAL: Family = Family {
    acquire: &ACQUIRE_SEVERAL,
    renew: &RENEW_SEVERAL,
    release: &RELEASE_SEVERAL,
    cancel: &CANCEL_SEVERAL,
};

/// `SET NX` for a server that may still carry out requests of a connection that has ended.
pub static TAKE: LazyLock<Script> = script!(22, "take");

/// Stores the token under several keys if all are free, and issues one fencing number.
pub static ACQUIRE_SEVERAL: LazyLock<Script> =
    script!(16, "untrack", "number", "fence", "several", "acquire_several");
/// Extends the TTL of several keys if all hold our token, or stores missing ones again.
pub static RENEW_SEVERAL: LazyLock<Script> =
    script!(17, "untrack", "number", "fence", "several", "renew_several");
/// Deletes those of several keys that hold our token.
pub static RELEASE_SEVERAL: LazyLock<Script> =
    script!(19, "untrack", "number", "fence", "several", "queue", "end_several", "release_several");
/// Deletes those of several keys that hold our token, and leaves a tombstone.
pub static CANCEL_SEVERAL: LazyLock<Script> =
    script!(20, "untrack", "number", "fence", "several", "queue", "end_several", "cancel_several");
/// Issues a fencing number for a token that is stored without one.
pub static DRAW: LazyLock<Script> = script!(23, "untrack", "number", "fence", "draw");
/// Returns how long a promoted server has been master. Not a vote: requested once for a connection.
pub(crate) static GATE: LazyLock<Script> = script!(21, "gate");
/// Notes when the history of a server has begun. Not a vote: requested once for a connection.
pub(crate) static START: LazyLock<Script> = script!(31, "start");
/// Returns the `max_ttl` of other clients, and records ours. Not a vote: requested once for a connection.
pub static MAX_TTL: LazyLock<Script> = script!(25, "max_ttl");
/// Returns the lists of nodes of clients, and records ours. Not a vote: requested now and then.
pub static NODE_LISTS: LazyLock<Script> = script!(28, "node_lists");

// The same for Redisson's layout. A session uses one layout, so their numbers are those of other scripts.

/// Stores the token if the key is free, and issues its fencing number.
pub(crate) static REDISSON_ACQUIRE: LazyLock<Script> =
    script!(0, "redisson/take", "number", "redisson/lock", "redisson/count", "redisson/acquire");
/// Replaces the token of the key by the next one.
pub(crate) static REDISSON_TRANSFER: LazyLock<Script> =
    script!(1, "number", "redisson/lock", "redisson/count", "redisson/transfer");
/// Extends the TTL of the key if it holds our token, or stores it again.
pub(crate) static REDISSON_RENEW: LazyLock<Script> =
    script!(2, "untrack", "number", "redisson/lock", "redisson/count", "redisson/renew");
/// Deletes the key if it holds our token, and notifies Redisson's waiters.
pub(crate) static REDISSON_RELEASE: LazyLock<Script> = script!(3, "redisson/release");
/// The same, and leaves a tombstone.
pub(crate) static REDISSON_CANCEL: LazyLock<Script> = script!(4, "redisson/cancel");
/// Raises the counter to a number, if the lock is the attempt's own.
pub(crate) static REDISSON_WRITE_BACK: LazyLock<Script> =
    script!(5, "untrack", "number", "redisson/lock", "redisson/count", "redisson/write_back");
/// Reads the holder of the key.
pub(crate) static REDISSON_INSPECT: LazyLock<Script> =
    script!(6, "number", "redisson/lock", "redisson/count", "redisson/inspect");
/// Returns whether a hash is a lock. Not a vote: requested for a listing.
pub(crate) static REDISSON_IS_LOCK: LazyLock<Script> = script!(7, "redisson/is_lock");

/// Returns all scripts.
#[must_use]
pub fn all() -> [&'static Script; 25] {
    [
        &TAKE,
        &ACQUIRE,
        &ENQUEUE,
        &WRITE_BACK,
        &LEAVE_QUEUE,
        &LIST_WAITERS,
        &LOG_HOLD,
        &READ_LOG,
        &TRANSFER,
        &RENEW,
        &RELEASE,
        &OFFER,
        &CANCEL,
        &INSPECT,
        &ACQUIRE_SHARED,
        &RENEW_SHARED,
        &RELEASE_SHARED,
        &CANCEL_SHARED,
        &INTEND,
        &DESIST,
        &ACQUIRE_SEVERAL,
        &RENEW_SEVERAL,
        &RELEASE_SEVERAL,
        &CANCEL_SEVERAL,
        &DRAW,
    ]
}

/// Makes each script that was not used yet. A process that is forked while another of its threads makes one leaves the child a
/// script that is never made, for which it would wait for ever.
pub fn make_all() {
    for script in all() {
        script.for_member();
    }
    for script in [
        &GATE,
        &START,
        &MAX_TTL,
        &NODE_LISTS,
        &REDISSON_ACQUIRE,
        &REDISSON_TRANSFER,
        &REDISSON_RENEW,
        &REDISSON_RELEASE,
        &REDISSON_CANCEL,
        &REDISSON_WRITE_BACK,
        &REDISSON_INSPECT,
        &REDISSON_IS_LOCK,
    ] {
        LazyLock::force(script);
    }
}

impl Script {
    pub(super) fn new(number: u8, parts: &[&str]) -> Script {
        // Without comments: the server would parse them with every request.
        let lines = parts
            .iter()
            .flat_map(|part| part.lines())
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("--"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Script { text, hash, number, member: OnceLock::new() }
    }

    /// Returns the variant for a cluster member: it takes the server's history at the handshake as an
    /// additional last argument, and does nothing under another one.
    pub(crate) fn for_member(&self) -> &Script {
        self.member.get_or_init(|| {
            Box::new(Script::new(self.number, &[include_str!("scripts/member.lua"), &self.text]))
        })
    }

    #[cfg(test)]
    pub(super) fn is_made_for_members(&self) -> bool {
        self.member.get().is_some()
    }

    /// Returns the Lua source.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the hash by which servers know the script: the SHA-1 of the source, in hexadecimal.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// The scripts that the server at the other end of a connection has run.
///
/// A script is sent in full the first time, and then by its hash. That saves sending and hashing a kilobyte
/// for each request: 7 % of an acquisition, measured on loopback.
#[derive(Debug, Default)]
pub(crate) struct Library {
    known: u32,
    /// How releases are published, if the scripts are those of Redisson's layout.
    redisson: Option<Publishing>,
}

impl Library {
    /// Creates a library of the scripts for a layout, of which the server knows none.
    pub(super) fn new(redisson: Option<Publishing>) -> Library {
        Library { known: 0, redisson }
    }

    /// Returns how releases are published, if the scripts are those of Redisson's layout.
    pub(super) fn redisson(&self) -> Option<Publishing> {
        self.redisson
    }

    /// Returns whether the script may be called by its hash.
    pub(crate) fn has(&self, script: &Script) -> bool {
        self.known & (1 << script.number) != 0
    }

    /// Like [`has`](Library::has), and records that it may from now on.
    pub(crate) fn knows(&mut self, script: &Script) -> bool {
        let bit = 1 << script.number;
        let knew = self.known & bit != 0;
        self.known |= bit;
        knew
    }

    /// Records that the server has lost its scripts, as it may at any time.
    pub(crate) fn forget(&mut self) {
        self.known = 0;
    }
}
