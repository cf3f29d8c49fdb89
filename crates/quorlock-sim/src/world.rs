//! Simulated time, the event queue and the trace.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64};
use std::task::Waker;
use std::time::Duration;

use quorlock::runtime::Mutex;
use quorlock_testkit::SeededRng;

pub(crate) mod clock;
pub(crate) mod network;

use clock::Timer;
use network::Network;

/// True simulated time in nanoseconds since the start. No host sees it: each has its own clock.
pub(crate) type Time = u64;

/// Converts a duration to simulated time.
pub(crate) fn nanos(time: Duration) -> Time {
    Time::try_from(time.as_nanos()).unwrap_or(Time::MAX)
}

/// A machine, or a process on it: the nodes come first, then the clients.
pub(crate) type Host = usize;

/// The state shared by all hosts: time, the network and the trace.
pub(crate) struct World {
    now: AtomicU64,
    inside: Mutex<Inside>,
}

pub(crate) struct Inside {
    upcoming: BinaryHeap<Upcoming>,
    scheduled: u64,
    /// Determines latencies and timer delays.
    pub(crate) rng: SeededRng,
    pub(crate) network: Network,
    pub(crate) hosts: Vec<HostState>,
    /// To be woken once the world is unlocked.
    pub(crate) wakers: Vec<Waker>,
    trace: Trace,
}

/// The state of a host.
#[derive(Default)]
pub(crate) struct HostState {
    /// Counts the starts of its process. Events of an earlier life are void.
    pub(crate) life: u32,
    pub(crate) up: bool,
    /// How many faults keep its process from running.
    pub(crate) stopped: u32,
    /// When that last began or ended.
    pub(crate) stopped_last: Time,
    /// Since when its timers have been stopped.
    pub(crate) frozen_since: Option<Time>,
    /// How long they have been stopped in total.
    pub(crate) frozen: Time,
    /// Timers that became due while they were stopped.
    pub(crate) overdue: Vec<Arc<Timer>>,
}

/// An event.
pub(crate) enum Event {
    /// A timer of a host is due.
    Timer(Arc<Timer>),
    /// Bytes reach the end of a connection, given by its number and direction.
    Arrival(usize, usize),
    /// A server should accept a connection.
    Accept(usize),
    /// An entry of the schedule is due: it waits for its trigger from now on.
    Armed(usize),
    /// A fault is injected.
    Strike(usize),
    /// The middle of a fault, for those that have one.
    Half(usize),
    /// The end of a fault.
    Relief(usize),
    /// Time to search for orphaned keys.
    Look,
    /// The end of all faults.
    Peace,
}

struct Upcoming {
    at: Time,
    number: u64,
    event: Event,
}

impl World {
    pub(crate) fn new(rng: SeededRng, network: Network, hosts: usize, trace: Trace) -> Arc<World> {
        let inside = Inside {
            upcoming: BinaryHeap::new(),
            scheduled: 0,
            rng,
            network,
            hosts: (0..hosts).map(|_| HostState::default()).collect(),
            wakers: Vec::new(),
            trace,
        };
        Arc::new(World { now: AtomicU64::new(0), inside: Mutex::new(inside) })
    }

    pub(crate) fn now(&self) -> Time {
        self.now.load(atomic::Ordering::Relaxed)
    }

    /// Changes the state, and wakes the tasks concerned.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Inside, Time) -> T) -> T {
        let mut inside = self.inside.lock();
        let result = change(&mut inside, self.now());
        let wakers = std::mem::take(&mut inside.wakers);
        drop(inside);
        for waker in wakers {
            waker.wake();
        }
        result
    }

    /// Advances time to the next event.
    pub(crate) fn next(&self) -> Option<Event> {
        let mut inside = self.inside.lock();
        let Upcoming { at, event, .. } = inside.upcoming.pop()?;
        debug_assert!(at >= self.now(), "time goes backwards");
        self.now.store(at, atomic::Ordering::Relaxed);
        Some(event)
    }

    pub(crate) fn schedule(&self, at: Time, event: Event) {
        self.inside.lock().schedule(at.max(self.now()), event);
    }

    /// Adds to the trace. `what` and `words` are part of its hash; `text` is generated only if the
    /// trace is printed.
    pub(crate) fn note(&self, what: &'static str, words: [u64; 3], text: impl FnOnce() -> String) {
        let now = self.now();
        self.inside.lock().trace.add(now, what, words, text);
    }

    /// Returns the hash of the trace so far.
    pub(crate) fn trace_hash(&self) -> u64 {
        self.inside.lock().trace.hasher.finish()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &Duration::from_nanos(self.now())).finish_non_exhaustive()
    }
}

impl Inside {
    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        self.scheduled += 1;
        self.upcoming.push(Upcoming { at, number: self.scheduled, event });
    }
}

/// All events, hashed; and printed on request.
#[derive(Debug)]
pub(crate) struct Trace {
    hasher: DefaultHasher,
    shown: bool,
}

impl Trace {
    pub(crate) fn new(shown: bool) -> Trace {
        Trace { hasher: DefaultHasher::new(), shown }
    }

    fn add(&mut self, now: Time, what: &'static str, words: [u64; 3], text: impl FnOnce() -> String) {
        (what, now, words).hash(&mut self.hasher);
        if self.shown {
            // What cannot be printed fails the program at the latest with its verdict.
            let at = Duration::from_nanos(now).as_secs_f64();
            drop(writeln!(io::stdout(), "{at:>14.6} {what:<9} {}", text()));
        }
    }
}

// The earliest first; of two at the same time, the one scheduled first.
impl Ord for Upcoming {
    fn cmp(&self, other: &Upcoming) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Upcoming {
    fn partial_cmp(&self, other: &Upcoming) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Upcoming {
    fn eq(&self, other: &Upcoming) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Upcoming {}
