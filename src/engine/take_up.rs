//! Reads the answers to the renewals that take up offers while their runtime is blocked (rule O-12).
//!
//! A lease from an offer is valid for 1.2 s at most before its first renewal is confirmed. That renewal has left when
//! the holder learns of the lease, but the holder may then block the only thread of its runtime, so that nothing reads
//! the answers. A thread of this process does, within a tenth of a second. It runs while there are such leases, and mostly
//! finds that their runtimes were faster.

use std::process;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::lease_state::LeaseState;
use crate::runtime::Mutex;

/// How often it looks: several times before the shortest lease ends.
const EVERY: Duration = Duration::from_millis(50);

struct Watched {
    leases: Vec<Weak<LeaseState>>,
    /// The process whose thread looks after them: not the parent, after a fork.
    reader: Option<u32>,
}

static WATCHED: Mutex<Watched> = Mutex::new(Watched { leases: Vec::new(), reader: None });

/// Has the answers about this lease read in time.
pub(super) fn read_in_time(lease: &Arc<LeaseState>) {
    // The thread holds it for a moment; after a fork at that moment it would stay locked.
    let Some(mut watched) = WATCHED.try_lock() else { return };
    watched.leases.push(Arc::downgrade(lease));
    let here = process::id();
    if watched.reader != Some(here)
        && thread::Builder::new().name("quorlock offers".into()).spawn(read).is_ok()
    {
        watched.reader = Some(here);
    }
}

/// Looks after the leases until none is left.
fn read() {
    loop {
        thread::park_timeout(EVERY);
        let leases = std::mem::take(&mut WATCHED.lock().leases);
        let is_open = |lease: &Weak<LeaseState>| lease.upgrade().is_some_and(|lease| lease.read_answers());
        let mut open: Vec<_> = leases.into_iter().filter(is_open).collect();
        let mut watched = WATCHED.lock();
        watched.leases.append(&mut open);
        if watched.leases.is_empty() {
            watched.reader = None;
            return;
        }
    }
}
