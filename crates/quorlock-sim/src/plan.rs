//! What one seed means: a deployment, its clients, and what goes wrong when. All of it is data,
//! made before the run, so that a run can be repeated with parts of it left out.

use std::time::Duration;

use crate::clock::Rate;
use crate::dice::Dice;
use crate::fault::{Aim, Kind};

/// What all seeds of a series have in common.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// For how long things go wrong.
    pub span: Duration,
    /// What may go wrong.
    pub faults: Vec<Kind>,
    /// What is broken on purpose, or otherwise special.
    pub twist: Twist,
    /// What the clients want.
    pub subject: Subject,
    /// The most clients.
    pub most_clients: usize,
    /// Which entries of the schedule are kept; all of them if `None`.
    pub kept: Option<Vec<usize>>,
    /// Whether everything that happens is printed.
    pub trace: bool,
}

impl Default for Options {
    /// A minute of everything that the library promises to survive.
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

/// What is special about a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Twist {
    /// Nothing.
    None,
    /// A third of all packets are later than a node may be.
    LatePackets,
    /// Every other node is of a kind that remembers, whatever happens to its process.
    Remembering,
    /// Canary: these nodes say so, and forget.
    FalseMemory,
    /// Canary: votes of restarted nodes count at once.
    GuardOff,
    /// Canary: the nodes' clocks run a tenth too fast.
    FastNodes,
    /// Canary: clients rely on their leases without looking at the clock.
    Careless,
    /// Canary: calendars are further apart than fencing tokens allow for when nodes forget.
    WrongCalendars,
    /// Canary: nodes release a lock for whoever asks.
    ReleasesForAnybody,
    /// Canary: nodes say that they have released, and have not.
    KeepsWhatIsReleased,
    /// Canary: nodes offer a lock for whichever holder asks.
    OffersForAnybody,
    /// Canary: an offer ends at the nodes long before its messages say.
    OffersEndEarly,
    /// Canary: those who differ about a semaphore's permits take theirs without the nodes comparing.
    LimitIgnored,
    /// Canary: observers believe the first node that answers.
    Credulous,
}

/// What the clients of a run want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Subject {
    /// Locks, alone or shared.
    Locks,
    /// Permits of semaphores, about whose number some of them differ.
    Semaphores,
    /// To lead, or to be told who does.
    Elections,
}

impl Subject {
    /// All of them, by the names that the command line knows.
    pub const ALL: [(&'static str, Subject); 3] =
        [("locks", Subject::Locks), ("semaphores", Subject::Semaphores), ("elections", Subject::Elections)];

    /// What the command line calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Subject::ALL.iter().find(|(_, subject)| *subject == self).map_or("locks", |(name, _)| name)
    }
}

impl Twist {
    /// All of them, by the names that the command line knows.
    pub const ALL: [(&'static str, Twist); 14] = [
        ("none", Twist::None),
        ("late-packets", Twist::LatePackets),
        ("remembering", Twist::Remembering),
        ("false-memory", Twist::FalseMemory),
        ("guard-off", Twist::GuardOff),
        ("fast-nodes", Twist::FastNodes),
        ("careless", Twist::Careless),
        ("wrong-calendars", Twist::WrongCalendars),
        ("releases-for-anybody", Twist::ReleasesForAnybody),
        ("keeps-what-is-released", Twist::KeepsWhatIsReleased),
        ("offers-for-anybody", Twist::OffersForAnybody),
        ("offers-end-early", Twist::OffersEndEarly),
        ("limit-ignored", Twist::LimitIgnored),
        ("credulous", Twist::Credulous),
    ];

    /// What the command line calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Twist::ALL.iter().find(|(_, twist)| *twist == self).map_or("none", |(name, _)| name)
    }
}

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) span: Duration,
    pub(crate) twist: Twist,
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// Tasks of each client that want locks.
    pub(crate) workers: usize,
    pub(crate) resources: usize,
    pub(crate) subject: Subject,
    /// How many permits each semaphore has, and how many some believe that it has.
    pub(crate) permits: Vec<Permits>,
    /// Whether most want to read.
    pub(crate) readers: bool,
    pub(crate) max_ttl: Duration,
    pub(crate) drift: f64,
    /// The base latency between two hosts is up to this.
    pub(crate) distance: Duration,
    pub(crate) rates: Vec<Rate>,
    pub(crate) schedule: Vec<Entry>,
}

impl Plan {
    /// Whether this node says that it remembers.
    pub(crate) fn remembers(&self, node: usize) -> bool {
        matches!(self.twist, Twist::Remembering | Twist::FalseMemory) && node.is_multiple_of(2)
    }
}

/// How many permits a semaphore has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permits {
    pub(crate) right: usize,
    /// What some believe, if any do.
    pub(crate) wrong: Option<usize>,
}

/// The numbers of the keys of one semaphore are this far apart from those of the next.
const SLOTS: usize = 64;

/// One fault.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its number in the whole schedule, whatever was left out.
    pub(crate) number: usize,
    pub(crate) at: Duration,
    pub(crate) aim: Aim,
    /// How long after what it aims at.
    pub(crate) after: Duration,
    pub(crate) kind: Kind,
    /// Whom it concerns, unless it aims at somebody.
    pub(crate) client: usize,
    pub(crate) nodes: Vec<usize>,
    pub(crate) lasts: Duration,
    /// How much: of latency, of lateness, of a step.
    pub(crate) size: Duration,
    /// Which variety.
    pub(crate) flavour: usize,
}

/// The drift allowance of all clients, in millionths, and what both clocks may use of it.
const DRIFT: i64 = 10_000;
const USED: i64 = DRIFT * 45 / 100;

impl Plan {
    pub(crate) fn of(seed: u64, options: &Options) -> Plan {
        let dice = Dice::new(seed, 1);
        let nodes = dice.pick(&[3, 3, 5, 5, 5, 4]);
        let clients = dice.pick(&[2, 3, 3, 4]);
        let workers = dice.pick(&[1, 2, 2, 3]);
        let resources = dice.pick(&[1, 1, 2, 3]);
        let max_ttl = Duration::from_secs(dice.pick(&[2, 4, 8, 20]));
        let readers = dice.percent(50);
        let distance = Duration::from_micros(dice.pick(&[500, 1_000, 3_000, 12_000]));
        let rate = |host: usize| {
            if options.twist == Twist::FastNodes && host < nodes {
                return Rate(100_000);
            }
            Rate(i64::try_from(dice.nanos(0, 2 * USED.unsigned_abs())).unwrap_or(0) - USED)
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
        plan.permits = plan.permits(&Dice::new(seed, 7));
        plan.schedule = plan.trouble(&Dice::new(seed, 2), options);
        plan.clients = clients.min(options.most_clients);
        plan
    }

    fn permits(&self, dice: &Dice) -> Vec<Permits> {
        let semaphores = if self.subject == Subject::Semaphores { self.resources } else { 0 };
        let permits = |_| {
            let right = dice.pick(&[1, 2, 2, 3, 4, 10]);
            let other = dice.pick(&[right + 1, right.max(2) - 1, 10]);
            Permits { right, wrong: (other != right && dice.percent(50)).then_some(other) }
        };
        (0..semaphores).map(permits).collect()
    }

    /// The number of the key of one of a semaphore's permits.
    pub(crate) fn slot(semaphore: usize, number: usize) -> usize {
        semaphore * SLOTS + number
    }

    /// What people call it: a lock, an election, or one of a semaphore's permits.
    pub(crate) fn key(&self, resource: usize) -> String {
        match self.subject {
            Subject::Locks => format!("r{resource}"),
            Subject::Semaphores => format!("s{}#{}", resource / SLOTS, resource % SLOTS),
            Subject::Elections => format!("e{resource}"),
        }
    }

    /// The semaphore and the number of a permit, if the clients want permits.
    pub(crate) fn permit(&self, resource: usize) -> Option<(usize, usize)> {
        (self.subject == Subject::Semaphores).then_some((resource / SLOTS, resource % SLOTS))
    }

    /// The numbers of all keys that may stand at the nodes.
    pub(crate) fn keys(&self) -> Vec<usize> {
        let most = |permits: &Permits| permits.right.max(permits.wrong.unwrap_or_default());
        let of = |(semaphore, permits)| (0..most(permits)).map(move |number| Plan::slot(semaphore, number));
        match self.subject {
            Subject::Locks | Subject::Elections => (0..self.resources).collect(),
            Subject::Semaphores => self.permits.iter().enumerate().flat_map(of).collect(),
        }
    }

    /// How far the calendars of any two hosts may be apart.
    pub(crate) fn calendars_apart(&self) -> Duration {
        if self.twist == Twist::WrongCalendars { self.max_ttl * 10 } else { self.max_ttl / 2 }
    }

    /// A majority of the nodes.
    pub(crate) fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }

    fn trouble(&self, dice: &Dice, options: &Options) -> Vec<Entry> {
        // In half of the runs no more than a minority is hit at a time; in the others, anything.
        let most = if dice.percent(50) { self.nodes - self.quorum() } else { self.nodes };
        let pace = dice.pick(&[400, 1_000, 2_500]);
        // Some runs see everything, some only a few kinds, but those often.
        let mut kinds = options.faults.clone();
        if dice.percent(50) {
            kinds = (0..3).filter(|_| !kinds.is_empty()).map(|_| dice.pick(&kinds)).collect();
        }
        let mut schedule = Vec::new();
        let mut at = Duration::from_millis(500);
        while !kinds.is_empty() && at < options.span {
            let entry = self.entry(dice, at, dice.pick(&kinds), most, schedule.len());
            schedule.push(entry);
            at += dice.between(Duration::ZERO, Duration::from_millis(2 * pace));
        }
        if let Some(kept) = &options.kept {
            schedule.retain(|entry| kept.contains(&entry.number));
        }
        schedule
    }

    fn entry(&self, dice: &Dice, at: Duration, kind: Kind, most: usize, number: usize) -> Entry {
        let millis = Duration::from_millis;
        let hit = 1 + dice.below(most);
        let mut nodes: Vec<usize> = (0..self.nodes).collect();
        while nodes.len() > hit {
            nodes.swap_remove(dice.below(nodes.len()));
        }
        let aim = dice.pick(&[Aim::Nothing, Aim::Granted, Aim::Granted, Aim::Asking, Aim::Ending]);
        let after = match aim {
            Aim::Nothing => Duration::ZERO,
            Aim::Granted if dice.percent(50) => dice.between(Duration::ZERO, self.max_ttl),
            Aim::Granted | Aim::Asking | Aim::Ending => dice.between(Duration::ZERO, self.distance * 6),
        };
        let lasts = match dice.below(3) {
            0 => dice.between(millis(1), millis(200)),
            1 => dice.between(millis(200), millis(2_000)),
            _ => dice.between(millis(500), self.max_ttl + self.max_ttl / 2),
        };
        let size = match dice.below(3) {
            0 => dice.between(millis(1), millis(60)),
            1 => dice.between(millis(30), millis(400)),
            _ => dice.between(millis(100), self.max_ttl + self.max_ttl / 4),
        };
        let (client, flavour) = (dice.below(self.clients), dice.below(64));
        Entry { number, at, aim, after, kind, client, nodes, lasts, size, flavour }
    }
}
