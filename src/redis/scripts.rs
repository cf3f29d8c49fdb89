//! The scripts that the nodes run, each in one atomic step.

use std::sync::{LazyLock, OnceLock};

macro_rules! plain {
    ($number:literal, $name:literal) => {
        LazyLock::new(|| Script::new($number, include_str!(concat!("scripts/", $name, ".lua"))))
    };
}

/// A script that uses the counter of fencing tokens.
macro_rules! fenced {
    ($number:literal, $name:literal) => {
        LazyLock::new(|| {
            let script = include_str!(concat!("scripts/", $name, ".lua"));
            Script::new($number, &[include_str!("scripts/fence.lua"), script].concat())
        })
    };
}

/// A script that may tell the next who waits in the queue.
macro_rules! queued {
    ($number:literal, $name:literal) => {
        LazyLock::new(|| {
            let script = include_str!(concat!("scripts/", $name, ".lua"));
            Script::new($number, &[include_str!("scripts/queue.lua"), script].concat())
        })
    };
}

/// A script that draws a fencing token for the next who waits in the queue.
macro_rules! offering {
    ($number:literal, $name:literal) => {
        LazyLock::new(|| {
            let script = include_str!(concat!("scripts/", $name, ".lua"));
            let before = [include_str!("scripts/fence.lua"), include_str!("scripts/queue.lua")];
            Script::new($number, &[before.concat().as_str(), script].concat())
        })
    };
}

/// A script about those who share the lock.
macro_rules! shared {
    ($number:literal, $name:literal) => {
        LazyLock::new(|| {
            let script = include_str!(concat!("scripts/", $name, ".lua"));
            let before = [include_str!("scripts/fence.lua"), include_str!("scripts/readers.lua")];
            Script::new($number, &[before.concat().as_str(), script].concat())
        })
    };
}

/// A script about several locks at once.
macro_rules! several {
    ($number:literal, $name:literal) => {
        LazyLock::new(|| {
            let script = include_str!(concat!("scripts/", $name, ".lua"));
            let before = [include_str!("scripts/fence.lua"), include_str!("scripts/several.lua")];
            Script::new($number, &[before.concat().as_str(), script].concat())
        })
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
pub static ACQUIRE: LazyLock<Script> = fenced!(0, "acquire");
/// Waits in the queue for a lock.
pub static ENQUEUE: LazyLock<Script> = queued!(1, "enqueue");
/// Raises the counter of fencing tokens if the key is ours.
pub static WRITE_BACK: LazyLock<Script> = fenced!(2, "write_back");
/// Waits in the queue no longer.
pub static LEAVE_QUEUE: LazyLock<Script> = queued!(3, "leave_queue");
/// Lists those who wait in the queue.
pub static LIST_WAITERS: LazyLock<Script> = queued!(27, "list_waiters");
/// Passes the key on from one token to the next.
pub static TRANSFER: LazyLock<Script> = fenced!(4, "transfer");
/// Prolongs the key if it is ours, or stores it anew.
pub static RENEW: LazyLock<Script> = fenced!(5, "renew");
/// Deletes the key if it is ours, and tells the next.
pub static RELEASE: LazyLock<Script> = queued!(6, "release");
/// Releases the lock, and offers it to the next.
pub static OFFER: LazyLock<Script> = offering!(26, "offer");
/// Deletes the key if it is ours, and stops late requests.
pub static CANCEL: LazyLock<Script> = plain!(7, "cancel");
/// Tells who holds the key.
pub static INSPECT: LazyLock<Script> = plain!(8, "inspect");

/// Lets the token share the lock.
pub static ACQUIRE_SHARED: LazyLock<Script> = shared!(9, "acquire_shared");
/// Prolongs a share, stores it anew, or makes one of what was held alone.
pub static RENEW_SHARED: LazyLock<Script> = shared!(10, "renew_shared");
/// Raises the counter of fencing tokens if the lock is shared by us.
pub static WRITE_BACK_SHARED: LazyLock<Script> = shared!(11, "write_back_shared");
/// Ends a share, and the key with the last one.
pub static RELEASE_SHARED: LazyLock<Script> = shared!(12, "release_shared");
/// Ends a share, and stops late requests.
pub static CANCEL_SHARED: LazyLock<Script> = shared!(13, "cancel_shared");
/// Keeps new readers out, for a writer that waits.
pub static INTEND: LazyLock<Script> = shared!(14, "intend");
/// Takes that back.
pub static DESIST: LazyLock<Script> = shared!(15, "desist");

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
pub static TAKE: LazyLock<Script> = plain!(22, "take");

/// Stores the token under several keys if all are free, and draws one fencing token.
pub static ACQUIRE_SEVERAL: LazyLock<Script> = several!(16, "acquire_several");
/// Prolongs several keys if all are ours, or stores those anew that are gone.
pub static RENEW_SEVERAL: LazyLock<Script> = several!(17, "renew_several");
/// Raises the counters of fencing tokens if all keys are ours.
pub static WRITE_BACK_SEVERAL: LazyLock<Script> = several!(18, "write_back_several");
/// Deletes those of several keys that are ours.
pub static RELEASE_SEVERAL: LazyLock<Script> = several!(19, "release_several");
/// Deletes those of several keys that are ours, and stops late requests.
pub static CANCEL_SEVERAL: LazyLock<Script> = several!(20, "cancel_several");
/// Deletes the counter of fencing tokens.
pub static FORGET: LazyLock<Script> = plain!(24, "forget");
/// Draws a number for a token that stands there without one.
pub static DRAW: LazyLock<Script> = fenced!(23, "draw");
/// Tells since when a server that was promoted is a master. No vote: asked once for a connection.
pub(crate) static GATE: LazyLock<Script> = plain!(21, "gate");
/// Tells which `max_ttl` other clients have, and notes ours. No vote: asked once for a connection.
pub static MAX_TTL: LazyLock<Script> = plain!(25, "max_ttl");

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
    fn new(number: u8, text: &str) -> Script {
        // Comments are for us: the server would read them with every request.
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Script { text, hash, number, member: OnceLock::new() }
    }

    /// The same for a member of a cluster: it also takes the name of the history that the server had
    /// when it introduced itself, as its last argument, and does nothing under another one.
    pub(crate) fn for_member(&self) -> &Script {
        self.member.get_or_init(|| {
            let text = [include_str!("scripts/member.lua"), &self.text].concat();
            Box::new(Script::new(self.number, &text))
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
