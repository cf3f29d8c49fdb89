//! The scripts that the nodes run, each in one atomic step.

use std::sync::{LazyLock, OnceLock};

/// A script, behind the files whose functions it uses.
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
    /// The same for a member of a cluster.
    member: OnceLock<Box<Script>>,
}

/// Stores the token if the key is free, and draws its fencing token.
pub static ACQUIRE: LazyLock<Script> = script!(0, "fence", "acquire");
/// Waits in the queue for a lock.
pub static ENQUEUE: LazyLock<Script> = script!(1, "queue", "enqueue");
/// Raises the counter of fencing tokens if the key is ours.
pub static WRITE_BACK: LazyLock<Script> = script!(2, "fence", "write_back");
/// Waits in the queue no longer.
pub static LEAVE_QUEUE: LazyLock<Script> = script!(3, "queue", "leave_queue");
/// Lists those who wait in the queue.
pub static LIST_WAITERS: LazyLock<Script> = script!(27, "queue", "list_waiters");
/// Passes the key on from one token to the next.
pub static TRANSFER: LazyLock<Script> = script!(4, "fence", "transfer");
/// Prolongs the key if it is ours, or stores it anew.
pub static RENEW: LazyLock<Script> = script!(5, "fence", "renew");
/// Deletes the key if it is ours, and tells the next.
pub static RELEASE: LazyLock<Script> = script!(6, "delete_own", "queue", "release");
/// Releases the lock, and offers it to the next.
pub static OFFER: LazyLock<Script> = script!(26, "fence", "queue", "offer");
/// Deletes the key if it is ours, and stops late requests.
pub static CANCEL: LazyLock<Script> = script!(7, "cancel");
/// Tells who holds the key.
pub static INSPECT: LazyLock<Script> = script!(8, "inspect");

/// Lets the token share the lock.
pub static ACQUIRE_SHARED: LazyLock<Script> = script!(9, "fence", "readers", "acquire_shared");
/// Prolongs a share, stores it anew, or makes one of what was held alone.
pub static RENEW_SHARED: LazyLock<Script> = script!(10, "fence", "readers", "renew_shared");
/// Raises the counter of fencing tokens if the lock is shared by us.
pub static WRITE_BACK_SHARED: LazyLock<Script> = script!(11, "fence", "readers", "write_back_shared");
/// Ends a share, and the key with the last one.
pub static RELEASE_SHARED: LazyLock<Script> =
    script!(12, "fence", "queue", "readers", "end_share", "release_shared");
/// Ends a share, and stops late requests.
pub static CANCEL_SHARED: LazyLock<Script> =
    script!(13, "fence", "queue", "readers", "end_share", "cancel_shared");
/// Keeps new readers out, for a writer that waits.
pub static INTEND: LazyLock<Script> = script!(14, "fence", "readers", "intend");
/// Takes that back.
pub static DESIST: LazyLock<Script> = script!(15, "fence", "readers", "desist");

/// The scripts about one kind of claim that is not of one lock alone.
pub(crate) struct Family {
    pub(crate) acquire: &'static LazyLock<Script>,
    pub(crate) renew: &'static LazyLock<Script>,
    pub(crate) write_back: &'static LazyLock<Script>,
    pub(crate) release: &'static LazyLock<Script>,
    pub(crate) cancel: &'static LazyLock<Script>,
}

/// About a claim that shares its lock.
pub(crate) static SHARED: Family = Family {
    acquire: &ACQUIRE_SHARED,
    renew: &RENEW_SHARED,
    write_back: &WRITE_BACK_SHARED,
    release: &RELEASE_SHARED,
    cancel: &CANCEL_SHARED,
};

/// About a claim of several locks.
pub(crate) static SEVERAL: Family = Family {
    acquire: &ACQUIRE_SEVERAL,
    renew: &RENEW_SEVERAL,
    write_back: &WRITE_BACK_SEVERAL,
    release: &RELEASE_SEVERAL,
    cancel: &CANCEL_SEVERAL,
};

/// `SET NX` for a server that may still carry out what was sent over a connection that has ended.
pub static TAKE: LazyLock<Script> = script!(22, "take");

/// Stores the token under several keys if all are free, and draws one fencing token.
pub static ACQUIRE_SEVERAL: LazyLock<Script> = script!(16, "fence", "several", "acquire_several");
/// Prolongs several keys if all are ours, or stores those anew that are gone.
pub static RENEW_SEVERAL: LazyLock<Script> = script!(17, "fence", "several", "renew_several");
/// Raises the counters of fencing tokens if all keys are ours.
pub static WRITE_BACK_SEVERAL: LazyLock<Script> = script!(18, "fence", "several", "write_back_several");
/// Deletes those of several keys that are ours.
pub static RELEASE_SEVERAL: LazyLock<Script> =
    script!(19, "fence", "several", "queue", "end_several", "release_several");
/// Deletes those of several keys that are ours, and stops late requests.
pub static CANCEL_SEVERAL: LazyLock<Script> =
    script!(20, "fence", "several", "queue", "end_several", "cancel_several");
/// Deletes the counter of fencing tokens.
pub static FORGET: LazyLock<Script> = script!(24, "forget");
/// Draws a number for a token that stands there without one.
pub static DRAW: LazyLock<Script> = script!(23, "fence", "draw");
/// Tells since when a server that was promoted is a master. No vote: asked once for a connection.
pub(crate) static GATE: LazyLock<Script> = script!(21, "gate");
/// Tells which `max_ttl` other clients have, and notes ours. No vote: asked once for a connection.
pub static MAX_TTL: LazyLock<Script> = script!(25, "max_ttl");

/// Each of them.
#[must_use]
pub fn all() -> [&'static Script; 26] {
    [
        &TAKE,
        &ACQUIRE,
        &ENQUEUE,
        &WRITE_BACK,
        &LEAVE_QUEUE,
        &LIST_WAITERS,
        &TRANSFER,
        &RENEW,
        &RELEASE,
        &OFFER,
        &CANCEL,
        &INSPECT,
        &ACQUIRE_SHARED,
        &RENEW_SHARED,
        &WRITE_BACK_SHARED,
        &RELEASE_SHARED,
        &CANCEL_SHARED,
        &INTEND,
        &DESIST,
        &ACQUIRE_SEVERAL,
        &RENEW_SEVERAL,
        &WRITE_BACK_SEVERAL,
        &RELEASE_SEVERAL,
        &CANCEL_SEVERAL,
        &DRAW,
        &FORGET,
    ]
}

impl Script {
    fn new(number: u8, parts: &[&str]) -> Script {
        // Comments are for us: the server would read them with every request.
        let lines = parts
            .iter()
            .flat_map(|part| part.lines())
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("--"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Script { text, hash, number, member: OnceLock::new() }
    }

    /// The same for a member of a cluster: it also takes the name of the history that the server had
    /// when it introduced itself, as its last argument, and does nothing under another one.
    pub(crate) fn for_member(&self) -> &Script {
        self.member.get_or_init(|| {
            Box::new(Script::new(self.number, &[include_str!("scripts/member.lua"), &self.text]))
        })
    }

    /// What it does, in Lua.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What servers call it: the SHA-1 of the text, in hexadecimal.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// Which scripts the server at the other end of a connection has run.
///
/// The first time a script is sent in full, and then by its hash: a kilobyte less to send, and to
/// hash, for each request: 7 % of an acquisition, measured on loopback.
#[derive(Debug, Default)]
pub(crate) struct Library {
    known: u32,
}

impl Library {
    /// Whether the script may be called by its hash.
    pub(crate) fn has(&self, script: &Script) -> bool {
        self.known & (1 << script.number) != 0
    }

    /// The same. From now on it may.
    pub(crate) fn knows(&mut self, script: &Script) -> bool {
        let bit = 1 << script.number;
        let knew = self.known & bit != 0;
        self.known |= bit;
        knew
    }

    /// The server has forgotten its scripts, as it may at any time.
    pub(crate) fn forget(&mut self) {
        self.known = 0;
    }
}
