//! The record of what the clients did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quorlock::runtime::Mutex;
use quorlock::{LeaseWatch, protocol::Mode};
use quorlock_history::{History, Stamp, Token, What};
use quorlock_testkit::BuiltinServer;

use crate::plan::Plan;
use crate::world::clock::HostClock;
use crate::world::{Time, World};

mod finding;
mod holding;
mod judge;
mod observing;

pub use finding::{Finding, Rule};
pub(crate) use holding::Holding;
pub(crate) use observing::Seen;

macro_rules! counts {
    ($($what:ident),+) => {
        /// How often each event happened.
        #[derive(Clone, Copy, Debug, Default)]
        #[expect(missing_docs, reason = "each name states what it counts")]
        #[non_exhaustive]
        pub struct Counts {
            $(pub $what: u64),+
        }

        impl std::ops::AddAssign for Counts {
            fn add_assign(&mut self, other: Counts) {
                $(self.$what += other.$what;)+
            }
        }
    };
}

counts!(
    asked,
    granted,
    contended,
    unavailable,
    given_up,
    shared,
    several,
    downgraded,
    differing,
    observed,
    lost,
    checks
);

/// Keeps the record of a run.
pub(crate) struct Recorder {
    world: Arc<World>,
    plan: Arc<Plan>,
    state: Mutex<State>,
    /// The current nodes.
    pub(crate) servers: Mutex<Vec<BuiltinServer>>,
    /// Set when clients should finish their work, and then acquire each lock once more.
    pub(crate) peace: AtomicBool,
}

#[derive(Default)]
struct State {
    /// For elections: which leaders each node has stored, and when last.
    stored: BTreeMap<Vec<u8>, BTreeMap<usize, Time>>,
    /// The operation last reported as leader to each observer.
    last_leader: BTreeMap<(usize, usize), Option<usize>>,
    /// For the judge at the end.
    history: History,
    /// Possible triggers since the nemesis last looked.
    moments: Vec<(Moment, usize)>,
    operations: Vec<Operation>,
    holds: Vec<Hold>,
    /// When each node last lost its data.
    amnesia: BTreeMap<usize, Time>,
    /// Keys of operations that are over, by node and operation, and since when they are seen there.
    left_behind: BTreeMap<(usize, usize), Time>,
    findings: Vec<Finding>,
    counts: Counts,
    /// The number of workers that have acquired all locks once more.
    content: usize,
}

/// Triggers of the nemesis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    Asking,
    Granted,
    Ending,
}

struct Operation {
    client: usize,
    life: u32,
    mode: Mode,
    /// The resources of the attempt, all or none.
    resources: Vec<usize>,
    over: Option<Time>,
}

struct Hold {
    client: usize,
    operation: usize,
    /// When the lease was last confirmed as valid, and until when.
    seen: Time,
    until: Time,
    resources: Vec<usize>,
    token: Vec<u8>,
    ended: bool,
}

impl Recorder {
    pub(crate) fn new(world: &Arc<World>, plan: &Arc<Plan>) -> Arc<Recorder> {
        Arc::new(Recorder {
            world: world.clone(),
            plan: plan.clone(),
            state: Mutex::default(),
            servers: Mutex::default(),
            peace: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_peace(&self) -> bool {
        self.peace.load(Ordering::Relaxed)
    }

    /// A client requests a lock. The returned number is part of the label in the keys it stores.
    pub(crate) fn asked(&self, client: usize, life: u32, resource: usize, mode: Mode) -> usize {
        self.ask(client, life, resource, mode, None)
    }

    /// A client requests one of `permits` permits.
    pub(crate) fn asked_for_one(&self, client: usize, life: u32, semaphore: usize, permits: usize) -> usize {
        let wrong = self.plan.permits[semaphore].right != permits;
        self.state.lock().counts.differing += u64::from(wrong);
        self.ask(client, life, Plan::slot(semaphore, 0), Mode::Exclusive, Some(permits))
    }

    fn ask(&self, client: usize, life: u32, resource: usize, mode: Mode, permits: Option<usize>) -> usize {
        let mut state = self.state.lock();
        state.counts.asked += 1;
        state.moments.push((Moment::Asking, client));
        let resources = vec![resource];
        state.operations.push(Operation { client, life, mode, resources, over: None });
        let operation = state.operations.len() - 1;
        let (who, what) = (name("client", client), self.plan.key(resource));
        // The number of the permit is not known yet.
        let what = if permits.is_some() { what.split('#').next().unwrap_or(&what) } else { &what };
        let invoked =
            What::Invoked { client: who.as_str().into(), resource: what.into(), attempt: attempt(operation) };
        state.history.record(self.stamp(), invoked);
        if let Some(permits) = permits {
            state.history.record(self.stamp(), What::OneOf { attempt: attempt(operation), permits });
        }
        if mode == Mode::Shared {
            state.history.record(self.stamp(), What::Shares { attempt: attempt(operation) });
        }
        drop(state);
        self.note("ask", [client, operation, resource], || {
            let of = permits.map(|permits| format!(", one of {permits}")).unwrap_or_default();
            format!("client {client} wants {what} (op{operation}, {mode:?}{of})")
        });
        operation
    }

    /// The attempt also locks this resource.
    pub(crate) fn also(&self, operation: usize, resource: usize) {
        let mut state = self.state.lock();
        state.operations[operation].resources.push(resource);
        let resource_name = self.plan.key(resource).as_str().into();
        let wants = What::Wants { attempt: attempt(operation), resource: resource_name };
        state.history.record(self.stamp(), wants);
        drop(state);
        self.note("also", [operation, resource, 0], || format!("op{operation} wants r{resource} as well"));
    }

    /// A client acquired the lock.
    pub(crate) fn granted(
        self: &Arc<Self>,
        [client, resource, operation]: [usize; 3],
        lease: &LeaseWatch,
        clock: &HostClock,
    ) -> Holding {
        let token = lease.token().as_bytes().to_vec();
        let mut state = self.state.lock();
        state.counts.granted += 1;
        let mode = state.operations[operation].mode;
        state.counts.shared += u64::from(mode == Mode::Shared);
        state.moments.push((Moment::Granted, client));
        let now = self.world.now();
        let until = now + clock.until_it_shows(lease.remaining());
        let (seen, ended) = (now, false);
        // The client learns the number of its permit only when it is granted.
        let resources = match self.plan.permit(resource) {
            Some(_) => vec![resource],
            None => state.operations[operation].resources.clone(),
        };
        state.counts.several += u64::from(resources.len() > 1);
        state.holds.push(Hold { client, operation, seen, until, resources, token, ended });
        let (deadline, fencing_token) = (Stamp::from_nanos(until), Some(u64::from(lease.fencing_token())));
        let acquired = What::Acquired { attempt: attempt(operation), deadline, fencing_token };
        state.history.record(self.stamp(), acquired);
        if let Some((_, number)) = self.plan.permit(resource) {
            state.history.record(self.stamp(), What::Permit { attempt: attempt(operation), number });
        }
        let hold = state.holds.len() - 1;
        drop(state);
        self.note("grant", [client, hold, resource], || {
            let what = self.plan.key(resource);
            format!("client {client} has {what} (hold {hold}, {:?})", lease.token())
        });
        let holding = Holding { recorder: self.clone(), clock: clock.clone(), hold };
        holding.confirmed(lease);
        holding
    }

    pub(crate) fn refused(&self, contended: bool) {
        let mut state = self.state.lock();
        if contended {
            state.counts.contended += 1;
        } else {
            state.counts.unavailable += 1;
        }
    }

    pub(crate) fn given_up(&self) {
        self.state.lock().counts.given_up += 1;
    }

    /// The attempt has ended.
    pub(crate) fn over(&self, operation: usize) {
        let now = self.world.now();
        let mut state = self.state.lock();
        state.operations[operation].over = Some(now);
        if state.holds.iter().rev().all(|hold| hold.operation != operation) {
            state.history.record(self.stamp(), What::NotAcquired { attempt: attempt(operation) });
        }
        drop(state);
        self.note("over", [operation, 0, 0], || format!("op{operation} is over"));
    }

    /// A client crashed: all its holds end.
    pub(crate) fn died(&self, client: usize) {
        let mut state = self.state.lock();
        let its = state.holds.iter_mut().enumerate().filter(|(_, hold)| hold.client == client && !hold.ended);
        let numbers: Vec<usize> = its
            .map(|(number, hold)| {
                hold.ended = true;
                number
            })
            .collect();
        state.history.record(self.stamp(), What::Crashed { client: name("client", client).as_str().into() });
        drop(state);
        for hold in numbers {
            self.note("died", [hold, client, 0], || format!("hold {hold}, with client {client}"));
        }
    }

    /// A node lost its data.
    pub(crate) fn forgot(&self, node: usize) {
        let now = self.world.now();
        let mut state = self.state.lock();
        state.amnesia.insert(node, now);
        state.history.record(self.stamp(), What::Forgot { node: name("node", node).as_str().into() });
    }

    /// The network has delivered requests a second time.
    pub(crate) fn repeated(&self) {
        self.state.lock().history.record(self.stamp(), What::Repeated);
    }

    /// A worker has acquired each lock once more.
    pub(crate) fn is_content(&self) {
        self.state.lock().content += 1;
    }

    pub(crate) fn content(&self) -> usize {
        self.state.lock().content
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    pub(crate) fn moments(&self) -> Vec<(Moment, usize)> {
        std::mem::take(&mut self.state.lock().moments)
    }

    fn stamp(&self) -> Stamp {
        Stamp::from_nanos(self.world.now())
    }

    fn note(&self, what: &'static str, words: [usize; 3], text: impl FnOnce() -> String) {
        self.world.note(what, words.map(|word| word as u64), text);
    }
}

fn name(of: &str, number: usize) -> String {
    format!("{of}{number}")
}

/// Returns the name of an operation in the history.
fn attempt(operation: usize) -> Token {
    name("op", operation).as_str().into()
}

/// Returns the operation that a token belongs to.
fn number_of(token: &[u8]) -> Option<usize> {
    String::from_utf8_lossy(token).rsplit_once(" op").and_then(|(_, number)| number.parse().ok())
}
