//! Takes up offers in time while the runtime of their holder is blocked (rule O-12).
//!
//! A lease from an offer is valid for 1.2 s at most until its first renewal is confirmed. That renewal waits for a moment,
//! since most holders are done by then; but a holder may block the only thread of its runtime meanwhile, so that nothing
//! sends it, or nothing reads the answers. A thread of this process does, and mostly finds that runtimes were faster.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use super::lease_state::LeaseState;
use crate::runtime::Mutex;
use crate::transport::go_past_the_runtime;
use quorlock_protocol::Moment;

/// How often it looks, at least.
const EVERY: Duration = Duration::from_millis(25);
/// Into how many pauses it divides what is left of a lease. It sends the renewal after two of them, and reads the answers
/// after three.
const PAUSES: u32 = 8;
/// How long it stays without such a lease, so that not each needs a new thread.
const IDLE: Duration = Duration::from_secs(10);

struct Untaken {
    leases: Vec<UntakenLease>,
    watcher: Option<Watcher>,
}

struct UntakenLease {
    state: Weak<LeaseState>,
    /// When it is to be taken up.
    due: Moment,
    /// How often it is looked after. A runtime that is driven takes it up sooner.
    every: Duration,
}

struct Watcher {
    /// The process whose thread it is: not the parent, after a fork.
    process: u32,
    thread: Thread,
    is_idle: bool,
}

static UNTAKEN: Mutex<Untaken> = Mutex::new(Untaken { leases: Vec::new(), watcher: None });

/// Has the lease renewed at `due`, and the answers read, also if its runtime is blocked. It has this much `left`.
pub(super) fn take_up_in_time(state: &Arc<LeaseState>, due: Moment, left: Duration) {
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
    let lease = UntakenLease { state: Arc::downgrade(state), due, every: looks_every(left) };
    untaken.add(lease, || thread::Builder::new().name("quorlock offers".into()).spawn(watch));
}

/// Returns how often a lease is looked after that has this much left.
fn looks_every(left: Duration) -> Duration {
    EVERY.min(left / PAUSES)
}

impl Untaken {
    fn add(&mut self, lease: UntakenLease, start: impl FnOnce() -> io::Result<JoinHandle<()>>) {
        let here = process::id();
        if self.watcher.as_ref().is_some_and(|watcher| watcher.process != here) {
            // The leases are the parent's, as their sockets are.
            (self.leases, self.watcher) = (Vec::new(), None);
        }
        let is_short = lease.every < EVERY;
        self.leases.push(lease);
        if let Some(watcher) = &mut self.watcher {
            if watcher.is_idle || is_short {
                watcher.is_idle = false;
                watcher.thread.unpark();
            }
            return;
        }
        match start() {
            Ok(started) => {
                let thread = started.thread().clone();
                self.watcher = Some(Watcher { process: here, thread, is_idle: false });
            }
            // The system has no more threads. No other would remove them.
            Err(_) => self.leases = Vec::new(),
        }
    }

    /// Returns how long the thread may sleep.
    fn pause(&self) -> Duration {
        self.leases.iter().map(|lease| lease.every).min().unwrap_or(EVERY)
    }
}

/// Looks after the leases until none has come for a while.
fn watch() {
    go_past_the_runtime();
    loop {
        let pause = UNTAKEN.lock().pause();
        thread::park_timeout(pause);
        let mut leases = std::mem::take(&mut UNTAKEN.lock().leases);
        leases.retain(UntakenLease::look_after);
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

impl UntakenLease {
    /// Returns whether to look again.
    fn look_after(&self) -> bool {
        let Some(lease) = self.state.upgrade() else { return false };
        let is_open = lease.is_untaken();
        // A runtime that is driven has done it by then.
        if is_open && lease.timers.now() >= self.due + self.every {
            // A node that panics when it is asked ends this lease, and not the thread.
            drop(catch_unwind(AssertUnwindSafe(|| lease.attend())));
        }
        is_open
    }
}

#[cfg(test)]
mod tests {
    use quorlock_protocol::{least_left, take_up_after};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn o12_the_thread_sends_the_renewal_and_reads_the_answers_in_half_of_what_is_left_however_short_that_is()
    {
        for life in [20, 100, 300, 1_200].map(|millis| millis * MS) {
            for left in [least_left(life, Duration::ZERO), life / 4, life / 2, life] {
                let every = looks_every(left);
                // It looks just before it may send, sends when it looks next, and reads when it looks once more.
                let done = take_up_after(left) + 3 * every;
                assert!(done <= left / 2, "{done:?} of {left:?}");
            }
        }
    }

    #[test]
    fn without_a_thread_no_lease_is_kept() {
        let lease = |every| UntakenLease { state: Weak::new(), due: Moment::ORIGIN, every };
        let mut untaken = Untaken { leases: Vec::new(), watcher: None };
        untaken.add(lease(EVERY), || Err(io::ErrorKind::WouldBlock.into()));
        assert!(untaken.leases.is_empty() && untaken.watcher.is_none());
        untaken.add(lease(EVERY), || thread::Builder::new().spawn(|| ()));
        untaken.add(lease(MS), || panic!("there is one"));
        assert_eq!((untaken.leases.len(), untaken.pause()), (2, MS));
    }
}
