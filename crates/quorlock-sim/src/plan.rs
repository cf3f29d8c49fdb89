//! A plan: the deployment, clients and fault schedule of one seed. All of it is data generated
//! before the run, so that a run can be repeated with parts left out.

use std::time::Duration;

use clap::ValueEnum;
use quorlock_testkit::SeededRng;

use crate::fault::{Aim, Kind};
use crate::world::clock::Rate;

/// The options shared by all seeds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// For how long faults are injected.
    pub span: Duration,
    /// The kinds of faults.
    pub faults: Vec<Kind>,
    /// A deliberately broken protection, or another variation.
    pub twist: Twist,
    /// What the clients acquire.
    pub subject: Subject,
    /// The maximum number of clients.
    pub most_clients: usize,
    /// The entries of the schedule to keep; all if `None`.
    pub kept: Option<Vec<usize>>,
    /// Whether every event is printed.
    pub trace: bool,
}

impl Default for Options {
    /// A minute of every fault that the library is designed to tolerate.
    fn default() -> Options {
        Options {
            span: Duration::from_secs(60),
            faults: Kind::PROMISED.to_vec(),
            twist: Twist::None,
            subject: Subject::Locks,
            most_clients: usize::MAX,
            kept: None,
            trace: false,
        }
    }
}

/// A variation of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[non_exhaustive]
pub enum Twist {
    /// Nothing.
    None,
    /// A third of all packets exceed a node's timeout.
    LatePackets,
    /// Every other node declares that it keeps its data across restarts, and does.
    Remembering,
    /// Calendars differ by up to a day, and all nodes keep their data.
    AnyCalendars,
    /// The same where keys may end early, so that two may hold a lock: only the order of fencing tokens is judged.
    OnlyFencing,
    /// Canary: these nodes declare so, but lose it.
    FalseMemory,
    /// Canary: votes of restarted nodes count immediately.
    GuardOff,
    /// Canary: the nodes' clocks run 10 % fast.
    FastNodes,
    /// Canary: clients rely on their leases without checking the clock.
    Careless,
    /// Canary: calendars differ by more than fencing tokens allow for when nodes lose their data.
    WrongCalendars,
    /// Canary: nodes release a lock without comparing the token.
    ReleasesWithoutComparing,
    /// Canary: nodes confirm a release without deleting the key.
    KeepsReleasedKeys,
    /// Canary: nodes offer a lock without comparing the holder's token.
    OffersWithoutComparing,
    /// Canary: offers expire on the nodes long before the time in their messages.
    OffersEndEarly,
    /// Canary: clients that disagree about a semaphore's permits acquire without the nodes
    /// comparing the number.
    LimitIgnored,
    /// Canary: observers believe the first node that answers.
    Credulous,
}

/// What the clients of a run acquire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[non_exhaustive]
pub enum Subject {
    /// Locks, exclusive or shared.
    Locks,
    /// Permits of semaphores; some clients disagree about their number.
    Semaphores,
    /// Leadership; observers watch.
    Elections,
}

/// The plan of one run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) span: Duration,
    pub(crate) twist: Twist,
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// The number of tasks of each client.
    pub(crate) workers: usize,
    pub(crate) resources: usize,
    pub(crate) subject: Subject,
    /// The permits of each semaphore.
    pub(crate) permits: Vec<Permits>,
    /// Whether most acquisitions are shared.
    pub(crate) readers: bool,
    pub(crate) max_ttl: Duration,
    pub(crate) drift: f64,
    /// The maximum base latency between two hosts.
    pub(crate) distance: Duration,
    pub(crate) rates: Vec<Rate>,
    pub(crate) schedule: Vec<Entry>,
}

impl Plan {
    /// Whether this node declares that it keeps its data.
    pub(crate) fn remembers(&self, node: usize) -> bool {
        matches!(self.twist, Twist::Remembering | Twist::FalseMemory) && node.is_multiple_of(2)
    }
}

/// The number of permits of a semaphore.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permits {
    pub(crate) right: usize,
    /// The number that some clients believe in, if any do.
    pub(crate) wrong: Option<usize>,
}

/// The distance between the key numbers of two semaphores.
const SLOTS: usize = 64;

/// One fault.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its number in the whole schedule, before any entry was left out.
    pub(crate) number: usize,
    pub(crate) at: Duration,
    pub(crate) aim: Aim,
    /// The delay after its trigger.
    pub(crate) after: Duration,
    pub(crate) kind: Kind,
    /// The client it hits, unless its trigger determines it.
    pub(crate) client: usize,
    pub(crate) nodes: Vec<usize>,
    pub(crate) lasts: Duration,
    /// The amount of latency, delay or step.
    pub(crate) size: Duration,
    /// The variant.
    pub(crate) flavour: usize,
}

/// The drift allowance of all clients, in millionths, and the part of it that both clocks may use.
const DRIFT: i64 = 10_000;
const USED: i64 = DRIFT * 45 / 100;

impl Plan {
    pub(crate) fn of(seed: u64, options: &Options) -> Plan {
        let rng = SeededRng::new(seed, "deployment");
        let nodes = rng.pick(&[3, 3, 5, 5, 5, 4]);
        let clients = rng.pick(&[2, 3, 3, 4]);
        let workers = rng.pick(&[1, 2, 2, 3]);
        let resources = rng.pick(&[1, 1, 2, 3]);
        let max_ttl = Duration::from_secs(rng.pick(&[2, 4, 8, 20]));
        let readers = rng.percent(50);
        let distance = Duration::from_micros(rng.pick(&[500, 3_000, 6_000, 12_000]));
        let rate = |host: usize| {
            if options.twist == Twist::FastNodes && host < nodes {
                return Rate(100_000);
            }
            Rate(i64::try_from(rng.number(0, 2 * USED.unsigned_abs())).unwrap_or(0) - USED)
        };
        let rates = (0..nodes + clients).map(rate).collect();
        let mut plan = Plan {
            seed,
            span: options.span,
            twist: options.twist,
            nodes,
            clients,
            workers,
            resources,
            subject: options.subject,
            permits: Vec::new(),
            readers,
            max_ttl,
            drift: 0.01,
            distance,
            rates,
            schedule: Vec::new(),
        };
        plan.permits = plan.permits(&SeededRng::new(seed, "permits"));
        plan.schedule = plan.faults(&SeededRng::new(seed, "faults"), options);
        plan.clients = clients.min(options.most_clients);
        plan
    }

    fn permits(&self, rng: &SeededRng) -> Vec<Permits> {
        let semaphores = if self.subject == Subject::Semaphores { self.resources } else { 0 };
        let permits = |_| {
            let right = rng.pick(&[1, 2, 2, 3, 4, 10]);
            let other = rng.pick(&[right + 1, right.max(2) - 1, 10]);
            Permits { right, wrong: (other != right && rng.percent(50)).then_some(other) }
        };
        (0..semaphores).map(permits).collect()
    }

    /// Returns the key number of a permit.
    pub(crate) fn slot(semaphore: usize, number: usize) -> usize {
        semaphore * SLOTS + number
    }

    /// Returns the name of a lock, an election or a permit.
    pub(crate) fn key(&self, resource: usize) -> String {
        match self.subject {
            Subject::Locks => format!("r{resource}"),
            Subject::Semaphores => format!("s{}#{}", resource / SLOTS, resource % SLOTS),
            Subject::Elections => format!("e{resource}"),
        }
    }

    /// Returns the semaphore and the number of a permit, if the subject is semaphores.
    pub(crate) fn permit(&self, resource: usize) -> Option<(usize, usize)> {
        (self.subject == Subject::Semaphores).then_some((resource / SLOTS, resource % SLOTS))
    }

    /// Returns the numbers of all keys that may be stored on the nodes.
    pub(crate) fn keys(&self) -> Vec<usize> {
        let most = |permits: &Permits| permits.right.max(permits.wrong.unwrap_or_default());
        let of = |(semaphore, permits)| (0..most(permits)).map(move |number| Plan::slot(semaphore, number));
        match self.subject {
            Subject::Locks | Subject::Elections => (0..self.resources).collect(),
            Subject::Semaphores => self.permits.iter().enumerate().flat_map(of).collect(),
        }
    }

    /// Returns the maximum difference between the calendars of two hosts.
    pub(crate) fn calendars_apart(&self) -> Duration {
        if self.keeps_all_data() {
            return Duration::from_secs(86_400);
        }
        if self.twist == Twist::WrongCalendars { self.max_ttl * 10 } else { self.max_ttl / 2 }
    }

    /// Whether no restart loses data.
    pub(crate) fn keeps_all_data(&self) -> bool {
        matches!(self.twist, Twist::AnyCalendars | Twist::OnlyFencing)
    }

    /// Returns the size of a majority of the nodes.
    pub(crate) fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }

    fn faults(&self, rng: &SeededRng, options: &Options) -> Vec<Entry> {
        // Half of the runs hit at most a minority at a time, the others any number of nodes.
        let most = if rng.percent(50) { self.nodes - self.quorum() } else { self.nodes };
        let pace = rng.pick(&[400, 1_000, 2_500]);
        // Some runs have every kind of fault, some only a few kinds, but those often.
        let mut kinds = options.faults.clone();
        if rng.percent(50) {
            kinds = (0..3).filter(|_| !kinds.is_empty()).map(|_| rng.pick(&kinds)).collect();
        }
        let mut schedule = Vec::new();
        let mut at = Duration::from_millis(500);
        while !kinds.is_empty() && at < options.span {
            let entry = self.entry(rng, at, rng.pick(&kinds), most, schedule.len());
            schedule.push(entry);
            at += rng.between(Duration::ZERO, Duration::from_millis(2 * pace));
        }
        if let Some(kept) = &options.kept {
            schedule.retain(|entry| kept.contains(&entry.number));
        }
        schedule
    }

    fn entry(&self, rng: &SeededRng, at: Duration, kind: Kind, most: usize, number: usize) -> Entry {
        let millis = Duration::from_millis;
        let hit = 1 + rng.below(most);
        let mut nodes: Vec<usize> = (0..self.nodes).collect();
        while nodes.len() > hit {
            nodes.swap_remove(rng.below(nodes.len()));
        }
        let aim = rng.pick(&[Aim::Nothing, Aim::Granted, Aim::Granted, Aim::Asking, Aim::Ending]);
        let after = match aim {
            Aim::Nothing => Duration::ZERO,
            Aim::Granted if rng.percent(50) => rng.between(Duration::ZERO, self.max_ttl),
            Aim::Granted | Aim::Asking | Aim::Ending => rng.between(Duration::ZERO, self.distance * 6),
        };
        let lasts = match rng.below(3) {
            0 => rng.between(millis(1), millis(200)),
            1 => rng.between(millis(200), millis(2_000)),
            _ => rng.between(millis(500), self.max_ttl + self.max_ttl / 2),
        };
        let size = match rng.below(3) {
            0 => rng.between(millis(1), millis(60)),
            1 => rng.between(millis(30), millis(400)),
            _ => rng.between(millis(100), self.max_ttl + self.max_ttl / 4),
        };
        let (client, flavour) = (rng.below(self.clients), rng.below(64));
        Entry { number, at, aim, after, kind, client, nodes, lasts, size, flavour }
    }
}
