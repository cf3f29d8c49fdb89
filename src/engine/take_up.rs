//! Takes up offers in time while the runtime of their holder is blocked (rule O-12).
//!
//! A lease from an offer is valid for 1.2 s at most until its first renewal is confirmed. That renewal waits for a moment,
//! since most holders are done by then; but a holder may block the only thread of its runtime meanwhile, so that nothing
//! sends it, or nothing reads the answers. A thread of this process does, and mostly finds that runtimes were faster.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Arc, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use super::lease_state::LeaseState;
use crate::runtime::Mutex;
use crate::transport::go_past_the_runtime;
use quorlock_protocol::Moment;

/// How often it looks: several times before the shortest lease ends.
const EVERY: Duration = Duration::from_millis(25);
/// How long it stays without such a lease, so that not each needs a new thread.
const IDLE: Duration = Duration::from_secs(10);

struct Untaken {
    /// When each is to be taken up.
    leases: Vec<(Weak<LeaseState>, Moment)>,
    watcher: Option<Watcher>,
}

struct Watcher {
    /// The process whose thread it is: not the parent, after a fork.
    process: u32,
    thread: Thread,
    is_idle: bool,
}

static UNTAKEN: Mutex<Untaken> = Mutex::new(Untaken { leases: Vec::new(), watcher: None });

/// Has the lease renewed at `due`, and the answers read, also if its runtime is blocked.
pub(super) fn take_up_in_time(lease: &Arc<LeaseState>, due: Moment) {
    // Others hold it for a moment; after a fork at that moment it would stay locked.
    let Some(mut untaken) = (0..1_000).find_map(|_| {
        let untaken = UNTAKEN.try_lock();
        if untaken.is_none() {
            thread::yield_now();
        }
        untaken
    }) else {
        return;
    };
    let here = process::id();
    if untaken.watcher.as_ref().is_some_and(|watcher| watcher.process != here) {
        // The leases are the parent's, as their sockets are.
        (untaken.leases, untaken.watcher) = (Vec::new(), None);
    }
    untaken.leases.push((Arc::downgrade(lease), due));
    if let Some(watcher) = &mut untaken.watcher {
        if watcher.is_idle {
            watcher.is_idle = false;
            watcher.thread.unpark();
        }
    } else {
        let started = thread::Builder::new().name("quorlock offers".into()).spawn(watch);
        untaken.watcher = started.ok().map(|started| {
            let thread = started.thread().clone();
            Watcher { process: here, thread, is_idle: false }
        });
    }
}

/// Looks after the leases until none has come for a while.
fn watch() {
    go_past_the_runtime();
    loop {
        thread::park_timeout(EVERY);
        let mut leases = std::mem::take(&mut UNTAKEN.lock().leases);
        leases.retain(|(lease, due)| lease.upgrade().is_some_and(|lease| look_after(&lease, *due)));
        let mut untaken = UNTAKEN.lock();
        untaken.leases.append(&mut leases);
        if !untaken.leases.is_empty() {
            continue;
        }
        set_idle(&mut untaken, true);
        drop(untaken);
        thread::park_timeout(IDLE);
        let mut untaken = UNTAKEN.lock();
        set_idle(&mut untaken, false);
        if untaken.leases.is_empty() {
            untaken.watcher = None;
            return;
        }
    }
}

fn set_idle(untaken: &mut Untaken, is_idle: bool) {
    if let Some(watcher) = &mut untaken.watcher {
        watcher.is_idle = is_idle;
    }
}

/// Returns whether to look again.
fn look_after(lease: &Arc<LeaseState>, due: Moment) -> bool {
    let is_open = lease.is_untaken();
    // A runtime that is driven has done it by then.
    if is_open && lease.timers.now() >= due + EVERY {
        // A node that panics when it is asked ends this lease, and not the thread.
        drop(catch_unwind(AssertUnwindSafe(|| lease.attend())));
    }
    is_open
}
