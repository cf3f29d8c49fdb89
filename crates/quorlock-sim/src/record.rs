//! What the clients did, and whether it was right: judged while it happens.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorlock::{LeaseWatch, Mode, Token};
use quorlock_history::{Check, Expectations, History, Stamp, Violation, What, check};
use quorlock_testkit::BuiltinServer;

use crate::clock::HostClock;
use crate::dice::nanos;
use crate::oracle::{Exclusion, Happening, Oracle, Permits};
use crate::plan::{Plan, Subject, Twist};
use crate::standing::Standings;
use crate::world::{Time, World};

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// When, since the start of the simulation.
    pub at: Duration,
    /// Which promise.
    pub rule: Rule,
    /// What happened.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} broken at {:.6} s: {}", self.rule, self.at.as_secs_f64(), self.text)
    }
}

/// A promise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Rule {
    /// No two hold a lock at once.
    Exclusion,
    /// No more hold a semaphore's permits than it has, and it fills up to that.
    Permits,
    /// An observer is told of leaders that a quorum of nodes had while it was asked, and of whoever stays.
    Observing,
    /// Whoever is told that its lease holds has its key at a quorum of the nodes.
    Backing,
    /// Whoever gets a lock later has the larger fencing token.
    Fencing,
    /// A loss is told by the end of validity.
    Telling,
    /// What has ended leaves no key behind.
    Orphan,
    /// Once nothing goes wrong any more, everybody gets the lock.
    Liveness,
    /// Whoever waits for a time does not wait much longer.
    Patience,
    /// Nothing panics.
    Panic,
}

/// What has happened how often.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "each name says what it counts")]
#[non_exhaustive]
pub struct Counts {
    pub asked: u64,
    pub granted: u64,
    pub contended: u64,
    pub unavailable: u64,
    pub given_up: u64,
    pub shared: u64,
    pub several: u64,
    pub downgraded: u64,
    pub differing: u64,
    pub observed: u64,
    pub lost: u64,
    pub checks: u64,
}

/// Keeps the record of a run.
pub(crate) struct Recorder {
    world: Arc<World>,
    plan: Arc<Plan>,
    state: Mutex<State>,
    /// The nodes as they are now.
    pub(crate) servers: Mutex<Vec<BuiltinServer>>,
    /// Clients are to finish what they do, and then to get each lock once more.
    pub(crate) peace: AtomicBool,
}

#[derive(Default)]
struct State {
    exclusion: Exclusion,
    permits: Permits,
    /// For elections: which nodes have had whom lead, and when last.
    standings: Standings,
    /// Of whom each observer was told last, by the number of its operation.
    told: BTreeMap<(usize, usize), Option<usize>>,
    /// For those who judge at the end.
    history: History,
    /// For whom the nemesis may lie in wait, since it last looked.
    moments: Vec<(Moment, usize)>,
    operations: Vec<Operation>,
    holds: Vec<Hold>,
    /// When each node last forgot everything.
    amnesia: BTreeMap<usize, Time>,
    findings: Vec<Finding>,
    counts: Counts,
    /// Workers that have got all locks once more.
    content: usize,
}

/// What the nemesis may wait for.
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
    /// What it wants, all at once.
    resources: Vec<usize>,
    /// Of how many permits it wants one.
    permits: Option<usize>,
    over: Option<Time>,
}

struct Hold {
    client: usize,
    operation: usize,
    /// When the lease was last seen to hold, and until when it said so.
    seen: Time,
    until: Time,
    resources: Vec<usize>,
    token: Vec<u8>,
    ended: bool,
}

/// How long what has ended may stand at a node that answers.
const GRACE: Duration = Duration::from_millis(2_500);
/// And how much longer at one that has just come back: it is dialled again within five seconds.
pub(crate) const RETURN: Duration = Duration::from_secs(7);

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

    /// Somebody wants a lock. The number is part of the label of what it leaves at the nodes.
    pub(crate) fn asked(&self, client: usize, life: u32, resource: usize, mode: Mode) -> usize {
        self.ask(client, life, resource, mode, None)
    }

    /// Somebody wants one of so many permits.
    pub(crate) fn asked_for_one(&self, client: usize, life: u32, semaphore: usize, permits: usize) -> usize {
        let wrong = self.plan.permits[semaphore].right != permits;
        self.lock().counts.differing += u64::from(wrong);
        self.ask(client, life, Plan::slot(semaphore, 0), Mode::Exclusive, Some(permits))
    }

    fn ask(&self, client: usize, life: u32, resource: usize, mode: Mode, permits: Option<usize>) -> usize {
        let mut state = self.lock();
        state.counts.asked += 1;
        state.moments.push((Moment::Asking, client));
        let resources = vec![resource];
        state.operations.push(Operation { client, life, mode, resources, permits, over: None });
        let operation = state.operations.len() - 1;
        let (who, what) = (name("client", client), self.plan.key(resource));
        // The number of the permit is not known yet.
        let what = if permits.is_some() { what.split('#').next().unwrap_or(&what) } else { &what };
        let invoked = What::Invoked {
            client: who.as_str().into(),
            resource: what.into(),
            attempt: name("op", operation).as_str().into(),
        };
        state.history.record(self.stamp(), invoked);
        if let Some(permits) = permits {
            let attempt = name("op", operation).as_str().into();
            state.history.record(self.stamp(), What::OneOf { attempt, permits });
        }
        if mode == Mode::Shared {
            let attempt = name("op", operation).as_str().into();
            state.history.record(self.stamp(), What::Shares { attempt });
        }
        drop(state);
        self.note("ask", [client, operation, resource], || {
            let of = permits.map(|permits| format!(", one of {permits}")).unwrap_or_default();
            format!("client {client} wants {what} (op{operation}, {mode:?}{of})")
        });
        operation
    }

    /// Whoever has asked wants this as well, or nothing.
    pub(crate) fn also(&self, operation: usize, resource: usize) {
        let mut state = self.lock();
        state.operations[operation].resources.push(resource);
        let attempt = name("op", operation).as_str().into();
        let wants = What::Wants { attempt, resource: self.plan.key(resource).as_str().into() };
        state.history.record(self.stamp(), wants);
        drop(state);
        self.note("also", [operation, resource, 0], || format!("op{operation} wants r{resource} as well"));
    }

    /// Somebody has got it.
    pub(crate) fn granted(
        self: &Arc<Self>,
        [client, resource, operation]: [usize; 3],
        lease: &LeaseWatch,
        clock: &HostClock,
    ) -> Holding {
        let token = lease.token().as_bytes().to_vec();
        let mut state = self.lock();
        state.counts.granted += 1;
        let mode = state.operations[operation].mode;
        state.counts.shared += u64::from(mode == Mode::Shared);
        state.moments.push((Moment::Granted, client));
        let now = self.world.now();
        let until = now + clock.until_it_shows(lease.remaining());
        let (seen, ended) = (now, false);
        // Who asks for a permit, and gets it, learns only then which one it is.
        let resources = match self.plan.permit(resource) {
            Some(_) => vec![resource],
            None => state.operations[operation].resources.clone(),
        };
        state.counts.several += u64::from(resources.len() > 1);
        let (what, named) = (resources.clone(), token.clone());
        state.holds.push(Hold { client, operation, seen, until, resources: what, token: named, ended });
        let attempt = name("op", operation).as_str().into();
        let fencing_token = lease.try_fencing_token().map(u64::from);
        let acquired = What::Acquired { attempt, deadline: Stamp::from_nanos(until), fencing_token };
        state.history.record(self.stamp(), acquired);
        let of = state.operations[operation].permits;
        let permit = of.zip(self.plan.permit(resource));
        if let Some((_, (_, number))) = permit {
            let attempt = name("op", operation).as_str().into();
            state.history.record(self.stamp(), What::Permit { attempt, number });
        }
        let hold = state.holds.len() - 1;
        drop(state);
        self.note("grant", [client, hold, resource], || {
            let what = self.plan.key(resource);
            format!("client {client} has {what} (hold {hold}, {:?})", lease.token())
        });
        self.see(&Happening::Granted { hold, client, resources, token, mode });
        if let Some((of, (semaphore, _))) = permit {
            self.see(&Happening::Permit { hold, semaphore, of });
        }
        let holding = Holding { recorder: self.clone(), clock: clock.clone(), hold };
        holding.confirmed(lease);
        holding
    }

    pub(crate) fn refused(&self, contended: bool) {
        let mut state = self.lock();
        if contended {
            state.counts.contended += 1;
        } else {
            state.counts.unavailable += 1;
        }
    }

    pub(crate) fn given_up(&self) {
        self.lock().counts.given_up += 1;
    }

    /// Whoever wanted a lock has no more to do with it.
    pub(crate) fn over(&self, operation: usize) {
        let now = self.world.now();
        let mut state = self.lock();
        state.operations[operation].over = Some(now);
        if state.holds.iter().rev().all(|hold| hold.operation != operation) {
            let attempt = name("op", operation).as_str().into();
            state.history.record(self.stamp(), What::NotAcquired { attempt });
        }
        drop(state);
        self.note("over", [operation, 0, 0], || format!("op{operation} is over"));
    }

    /// A client is dead, and so holds nothing.
    pub(crate) fn died(&self, client: usize) {
        let mut state = self.lock();
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
            self.see(&Happening::Ended { hold });
        }
    }

    /// A node has forgotten everything.
    pub(crate) fn forgot(&self, node: usize) {
        let now = self.world.now();
        let mut state = self.lock();
        state.amnesia.insert(node, now);
        state.history.record(self.stamp(), What::Forgot { node: name("node", node).as_str().into() });
    }

    /// A worker has got each lock once more.
    pub(crate) fn is_content(&self) {
        self.lock().content += 1;
    }

    pub(crate) fn content(&self) -> usize {
        self.lock().content
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts
    }

    pub(crate) fn moments(&self) -> Vec<(Moment, usize)> {
        std::mem::take(&mut self.lock().moments)
    }

    pub(crate) fn find(&self, rule: Rule, text: String) {
        let at = Duration::from_nanos(self.world.now());
        self.world.note("FINDING", [0; 3], || text.clone());
        self.lock().findings.push(Finding { at, rule, text });
    }

    pub(crate) fn finding(&self) -> Option<Finding> {
        self.lock().findings.first().cloned()
    }

    /// Looks for keys that nobody answers for. `calm` tells since when nothing has come between a
    /// client and a node, if nothing does; `life` which life of a client it is.
    pub(crate) fn look(&self, calm: impl Fn(usize, usize) -> Option<Time>, life: impl Fn(usize) -> u32) {
        let now = self.world.now();
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (node, server) in servers.iter().enumerate() {
            for resource in self.plan.keys() {
                let key = self.plan.key(resource);
                let readers = server.readers(&key);
                for token in server.holder(&key).into_iter().chain(readers) {
                    // The marker of those who share a lock has no number.
                    self.look_at(now, node, number_of(&token), &calm, &life);
                }
            }
        }
    }

    fn look_at(
        &self,
        now: Time,
        node: usize,
        number: Option<usize>,
        calm: impl Fn(usize, usize) -> Option<Time>,
        life: impl Fn(usize) -> u32,
    ) {
        let state = self.lock();
        let known = number.and_then(|number| Some((number, state.operations.get(number)?)));
        let Some((number, operation)) = known else { return };
        let (Some(over), Some(calm)) = (operation.over, calm(operation.client, node)) else { return };
        if operation.life != life(operation.client) {
            return;
        }
        let grace = if calm + nanos(RETURN) > over { GRACE + RETURN } else { GRACE };
        if now > over.max(calm) + nanos(grace) {
            drop(state);
            let since = Duration::from_nanos(now - over);
            let text =
                format!("op{number} has been over for {since:?}, and its key still stands at node {node}");
            self.find(Rule::Orphan, text);
        }
    }

    /// Looks at every node: whom it has lead now.
    pub(crate) fn look_who_leads(&self) {
        if self.plan.subject != Subject::Elections {
            return;
        }
        let now = self.world.now();
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        for (node, server) in servers.iter().enumerate() {
            for resource in self.plan.keys() {
                if let Some(token) = server.holder(&self.plan.key(resource)) {
                    state.standings.see(token, node, now);
                }
            }
        }
    }

    /// An observer was told of this leader, or of none, by nodes that were asked after `asked`.
    pub(crate) fn observed(&self, observer: [usize; 2], asked: Time, leader: Option<&Seen>) {
        let [client, resource] = observer;
        let number = self.glanced(observer, asked, leader);
        self.lock().told.insert((client, resource), number);
    }

    /// As [`Recorder::observed`], by somebody who asked once. Says which operation leads.
    pub(crate) fn glanced(&self, observer: [usize; 2], asked: Time, leader: Option<&Seen>) -> Option<usize> {
        let [client, resource] = observer;
        let mut state = self.lock();
        state.counts.observed += 1;
        let mut number = None;
        let mut found = None;
        if let Some(Seen { token, fencing_token }) = leader {
            let hold = state.holds.iter().rev().find(|hold| hold.token == token.as_bytes());
            // Of one that is not known to have acquired yet, there is nothing to compare it with.
            let fencing_token = fencing_token.filter(|_| hold.is_some());
            number = hold.map(|hold| hold.operation).or_else(|| number_of(token.as_bytes()));
            let nodes = state.standings.since(token.as_bytes(), asked);
            if nodes < self.plan.quorum() {
                found = Some(format!(
                    "client {client} is told that {token} leads, and only {nodes} of {} nodes had that while it was asked",
                    self.plan.nodes
                ));
            }
            let what = What::Observed {
                client: name("client", client).as_str().into(),
                resource: self.plan.key(resource).as_str().into(),
                leader: number.map_or_else(|| token.to_string(), |number| name("op", number)).as_str().into(),
                fencing_token,
                asked: Stamp::from_nanos(asked),
            };
            state.history.record(self.stamp(), what);
        }
        drop(state);
        self.note("observe", [client, resource, number.unwrap_or(usize::MAX)], || {
            let leader = leader.map_or("nobody".to_owned(), |leader| leader.token.to_string());
            format!("client {client} sees that {leader} leads e{resource}")
        });
        if let Some(text) = found {
            self.find(Rule::Observing, text);
        }
        number
    }

    /// Whether all observers of an election have been told of this operation last, or of nobody.
    pub(crate) fn all_were_told(&self, resource: usize, leader: Option<usize>) -> bool {
        let state = self.lock();
        (0..self.plan.clients).all(|client| state.told.get(&(client, resource)) == Some(&leader))
    }

    /// Judges the whole once more, by other means: whether some order of all acquisitions and
    /// releases is that of one mutex.
    pub(crate) fn judge(&self) {
        let history = std::mem::take(&mut self.lock().history);
        // What comes late may tell an observer of somebody who is long over.
        let late = self.plan.max_ttl * 3 + Duration::from_secs(60);
        let report = check(&history, &Expectations::new().max_ttl(self.plan.max_ttl).grace(late));
        // First, because a mutex whose fencing tokens are in disorder is none.
        if let Some(violation) = report.of(Check::Register).next() {
            self.find(Rule::Fencing, violation.to_string());
        }
        for (judged, rule) in [(Check::Permits, Rule::Permits), (Check::Observers, Rule::Observing)] {
            if let Some(violation) = report.of(judged).next() {
                self.find(rule, violation.to_string());
            }
        }
        for judged in [Check::Exclusion, Check::Mutex, Check::Record] {
            if let Some(violation) = report.of(judged).next() {
                let for_tokens = matches!(violation, Violation::NoOrder { for_tokens: true, .. });
                let rule = if for_tokens { Rule::Fencing } else { Rule::Exclusion };
                self.find(rule, violation.to_string());
            }
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp::from_nanos(self.world.now())
    }

    fn see(&self, happening: &Happening) {
        let now = self.world.now();
        let mut state = self.lock();
        let exclusion = state.exclusion.see(now, happening).map(|text| (Rule::Exclusion, text));
        let permits = state.permits.see(now, happening).map(|text| (Rule::Permits, text));
        drop(state);
        for (rule, text) in exclusion.into_iter().chain(permits) {
            self.find(rule, text);
        }
    }

    /// How many nodes hold the token wherever it is claimed, or have forgotten it so late that somebody may rely on it.
    fn backing(&self, resources: &[usize], token: &[u8]) -> usize {
        let now = self.world.now();
        let relied_on = nanos(self.plan.max_ttl) * 2;
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.lock();
        let backs = |(node, server): (usize, &BuiltinServer)| {
            let forgot = state.amnesia.get(&node).is_some_and(|at| at + relied_on > now);
            let holds = |resource: &usize| {
                let key = self.plan.key(*resource);
                let shares = || server.readers(&key).iter().any(|reader| reader == token);
                server.holder(&key).as_deref() == Some(token) || shares()
            };
            // Of several, all of them.
            forgot || resources.iter().all(holds)
        };
        servers.iter().enumerate().filter(|server| backs(*server)).count()
    }

    fn note(&self, what: &'static str, words: [usize; 3], text: impl FnOnce() -> String) {
        self.world.note(what, words.map(|word| word as u64), text);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an observer was told of a leader.
pub(crate) struct Seen {
    pub(crate) token: Token,
    pub(crate) fencing_token: Option<u64>,
}

/// The number of the operation that a token belongs to.
fn number_of(token: &[u8]) -> Option<usize> {
    String::from_utf8_lossy(token).rsplit_once(" op").and_then(|(_, number)| number.parse().ok())
}

fn name(of: &str, number: usize) -> String {
    format!("{of}{number}")
}

/// Somebody who holds a lock, as far as is known.
pub(crate) struct Holding {
    recorder: Arc<Recorder>,
    clock: HostClock,
    hold: usize,
}

impl Holding {
    /// The lease says that it holds: then it must, until the end that it states.
    pub(crate) fn confirmed(&self, lease: &LeaseWatch) {
        let remaining = lease.remaining();
        if remaining.is_zero() {
            return;
        }
        let now = self.recorder.world.now();
        let careless = self.recorder.plan.twist == Twist::Careless;
        let until = if careless { Time::MAX } else { now + self.clock.until_it_shows(remaining) };
        let (ended, resources, token, client) = {
            let mut state = self.recorder.lock();
            state.counts.checks += 1;
            let hold = &mut state.holds[self.hold];
            let renewed = until > hold.until;
            let before = std::mem::replace(&mut hold.seen, now);
            hold.until = hold.until.max(until);
            let known = (hold.ended, hold.resources.clone(), hold.token.clone(), hold.client);
            let attempt = name("op", hold.operation);
            if !known.0 {
                if renewed {
                    // At some moment since the last look.
                    let (attempt, deadline) = (attempt.as_str().into(), Stamp::from_nanos(until));
                    state.history.record(Stamp::from_nanos(before), What::Renewed { attempt, deadline });
                }
                let seen = What::SeenValid { attempt: attempt.as_str().into() };
                state.history.record(Stamp::from_nanos(now), seen);
            }
            known
        };
        if ended {
            return;
        }
        let backing = self.recorder.backing(&resources, &token);
        if backing < self.recorder.plan.quorum() {
            let plan = &self.recorder.plan;
            let (nodes, hold) = (plan.nodes, self.hold);
            let keys = resources.iter().map(|resource| plan.key(*resource)).collect::<Vec<_>>();
            self.recorder.find(
                Rule::Backing,
                format!("client {client} is told that {keys:?} is held (hold {hold}), but only {backing} of {nodes} nodes know of it"),
            );
        }
        self.recorder.see(&Happening::Confirmed { hold: self.hold, until });
    }

    /// The holder is about to share the lock with others.
    pub(crate) fn shared(&self) {
        let mut state = self.recorder.lock();
        let attempt = name("op", state.holds[self.hold].operation).as_str().into();
        state.history.record(self.recorder.stamp(), What::Shares { attempt });
        state.counts.downgraded += 1;
        drop(state);
        self.recorder.note("shared", [self.hold, 0, 0], || format!("hold {}", self.hold));
        self.recorder.see(&Happening::Shared { hold: self.hold });
    }

    /// The holder gives the lock back, or has been told that it is lost.
    pub(crate) fn ended(&self, lost: bool) {
        let mut state = self.recorder.lock();
        let hold = &mut state.holds[self.hold];
        if std::mem::replace(&mut hold.ended, true) {
            return;
        }
        let (client, attempt) = (hold.client, name("op", hold.operation).as_str().into());
        let what =
            if lost { What::Lost { attempt, reason: String::new() } } else { What::Releasing { attempt } };
        state.history.record(self.recorder.stamp(), what);
        state.counts.lost += u64::from(lost);
        if !lost {
            state.moments.push((Moment::Ending, client));
        }
        drop(state);
        let what = if lost { "lost" } else { "end" };
        self.recorder.note(what, [self.hold, 0, 0], || format!("hold {}", self.hold));
        self.recorder.see(&Happening::Ended { hold: self.hold });
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.recorder.lock().holds[self.hold].ended
    }

    /// The end of validity has come, and nobody has said so.
    pub(crate) fn untold(&self) {
        self.recorder
            .find(Rule::Telling, format!("hold {} has run out, and `lost` has not ended", self.hold));
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.ended(false);
    }
}
