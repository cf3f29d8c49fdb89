//! The scenarios and the subjects, as data.

use crate::figures::Window;
use crate::order::Work;

use Language::{Go, Java, Node, Python, Rust};

type Text = &'static str;
pub(crate) type Figure = fn(&Window) -> f64;

/// What the subjects do, and a table of what is measured.
pub(crate) struct Scenario {
    pub(crate) name: Text,
    pub(crate) steps: &'static [Step],
    pub(crate) columns: &'static [Column],
    /// Whether all but the first subject are shown by their ratio to it.
    pub(crate) ratios: bool,
    /// Whether the page names those that are ahead of the first subject.
    pub(crate) rivals: bool,
}

/// Windows in which each process does the same.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) work: Work,
    /// Of each process.
    pub(crate) tasks: usize,
    /// If there are several, they are started for each window, so that no connections of other subjects are open.
    pub(crate) processes: usize,
    /// What proxies add to a round trip, in milliseconds.
    pub(crate) away: u64,
    pub(crate) millis: u64,
}

/// A column; further figures are in brackets.
pub(crate) struct Column {
    pub(crate) head: Text,
    pub(crate) step: usize,
    pub(crate) figures: &'static [Figure],
    /// The file and the title of a plot of it.
    pub(crate) plot: Option<[Text; 2]>,
}

pub(crate) const MOST_TASKS: usize = 64;
const CONTENDERS: usize = 32;

const fn free(tasks: usize) -> Step {
    Step { work: Work::Cycles, tasks, processes: 1, away: 0, millis: 800 }
}

const fn one_lock(work: Work) -> Step {
    Step { work, tasks: CONTENDERS, processes: 1, away: 0, millis: 1500 }
}

const fn fleet(processes: usize) -> Step {
    Step { work: Work::Contend, tasks: 1, processes, away: 0, millis: 1500 }
}

/// In a window there are some fifty grants.
const fn far(processes: usize, away: u64) -> Step {
    Step { away, millis: 6000, ..fleet(processes) }
}

/// Of a figure of a step.
const fn one(head: Text, step: usize, figures: &'static [Figure]) -> Column {
    Column { head, step, figures, plot: None }
}

impl Column {
    const fn drawn(self, file: Text, title: Text) -> Column {
        Column { plot: Some([file, title]), ..self }
    }
}

const RATE: &[Figure] = &[Window::rate];
const CHANGES: &[Figure] = &[Window::changes];
const FAIRNESS: &[Figure] = &[Window::fairness];
const ALL_THREE: &[Figure] = &[Window::changes, Window::rate, Window::fairness];

#[rustfmt::skip]
pub(crate) const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "locks", ratios: true, rivals: true,
        steps: &[free(1), free(MOST_TASKS), one_lock(Work::Contend), one_lock(Work::Together)],
        columns: &[
            one("cycle p50, 1 task (µs)", 0, &[Window::p50]),
            one("cycles/s, 64 tasks", 1, RATE).drawn("cycles-64", "Cycles per second of free locks, 64 tasks"),
            one("client's CPU, 64 tasks (s per 10k cycles)", 1, &[Window::client_cpu]),
            one("servers' CPU, 64 tasks", 1, &[Window::server_cpu]),
            one("changes of holder/s, one lock", 2, CHANGES),
            one("grants/s", 2, RATE),
            one("fairness (Jain)", 2, FAIRNESS),
            one("32 arrive: all have held (ms)", 3, &[Window::millis]).drawn("together", "Milliseconds until 32 that arrive together have held once"),
        ],
    },
    Scenario {
        name: "systems", ratios: true, rivals: false,
        steps: &[free(1), free(MOST_TASKS), one_lock(Work::Contend)],
        columns: &[
            one("cycle p50, 1 task (µs)", 0, &[Window::p50]),
            one("cycles/s, 64 tasks", 1, RATE),
            one("changes of holder/s, one lock", 2, CHANGES),
            one("grants/s", 2, RATE),
            one("fairness (Jain)", 2, FAIRNESS),
        ],
    },
    Scenario {
        name: "processes", ratios: false, rivals: true,
        steps: &[fleet(2), fleet(8), fleet(32), fleet(100)],
        columns: &[
            one("changes of holder/s, 2 processes", 0, CHANGES),
            one("8", 1, CHANGES),
            one("32", 2, CHANGES).drawn("processes", "Changes of holder per second, 32 processes"),
            one("100", 3, CHANGES),
            one("grants/s, 2", 0, RATE),
            one("8", 1, RATE),
            one("32", 2, RATE),
            one("100", 3, RATE),
            one("fairness (Jain), 32", 2, FAIRNESS),
            one("never served, of 100 (%)", 3, &[Window::unserved]),
            one("commands a grant, 32", 2, &[Window::commands]),
            one("client's CPU a grant (ms), 32", 2, &[Window::client_millis]),
        ],
    },
    Scenario {
        name: "distance", ratios: false, rivals: true,
        steps: &[far(8, 20), far(32, 20), far(100, 20), far(8, 100), far(32, 100)],
        columns: &[
            one("8 processes, 20 ms", 0, ALL_THREE),
            one("32 processes, 20 ms", 1, ALL_THREE),
            one("100 processes, 20 ms", 2, ALL_THREE),
            one("8 processes, 100 ms", 3, ALL_THREE),
            one("32 processes, 100 ms", 4, ALL_THREE),
        ],
    },
    Scenario {
        name: "requests", ratios: false, rivals: false,
        steps: &[free(1)],
        columns: &[one("commands a cycle", 0, &[Window::commands]), one("bytes", 0, &[Window::bytes])],
    },
];

/// One lock service, by one client.
pub(crate) struct Subject {
    pub(crate) name: Text,
    pub(crate) language: Language,
    /// Its name for the driver of the language.
    pub(crate) driver: Text,
    pub(crate) on: On,
    /// The names of the scenarios that it is in.
    pub(crate) scenarios: Text,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Go,
    Node,
    Python,
    Java,
}

/// What the subject locks on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum On {
    Five,
    /// The first of the five.
    One,
    /// Five that write to disk before they answer.
    Durable,
    Postgres,
    ZooKeeper,
    Etcd,
}

const fn subject(name: Text, language: Language, driver: Text, on: On, scenarios: Text) -> Subject {
    Subject { name, language, driver, on, scenarios }
}

#[rustfmt::skip]
pub(crate) const SUBJECTS: [Subject; 31] = [
    subject("quorlock", Rust, "quorlock", On::Five, "locks processes distance requests"),
    subject("quorlock, no restart guard", Rust, "quorlock-unguarded", On::Five, "distance requests"),
    subject("quorlock, no fencing", Rust, "quorlock-unfenced", On::Five, "locks processes requests"),
    subject("a round by hand", Rust, "by-hand", On::Five, "locks processes distance requests"),
    subject("a round by hand, with a counter", Rust, "by-hand-counting", On::Five, "requests"),
    subject("one server: quorlock", Rust, "quorlock", On::One, "requests"),
    subject("one server: quorlock, no fencing", Rust, "quorlock-unfenced", On::One, "requests"),
    subject("one server: by hand", Rust, "by-hand", On::One, "requests"),
    subject("one server: by hand, with a counter", Rust, "by-hand-counting", On::One, "requests"),
    subject("rslock", Rust, "rslock", On::Five, "locks processes distance"),
    subject("redlock", Rust, "redlock", On::Five, "locks"),
    subject("redsync", Go, "redsync", On::Five, "locks processes distance"),
    subject("redsync, fail fast", Go, "redsync-fail-fast", On::Five, "locks processes"),
    subject("rueidislock, one server", Go, "rueidislock", On::One, "locks processes"),
    subject("Redisson", Java, "redisson", On::Five, "locks"),
    subject("Redisson, shared threads", Java, "redisson-shared", On::Five, "locks"),
    subject("Redisson RLock, one server", Java, "redisson-rlock", On::One, "locks processes"),
    subject("node-redlock", Node, "redlock", On::Five, "locks processes"),
    subject("node-redlock, auto-pipelining", Node, "redlock-pipelined", On::Five, "locks"),
    subject("pottery", Python, "pottery", On::Five, "locks"),
    subject("pottery, asyncio", Python, "pottery-asyncio", On::Five, "locks"),
    subject("redlock-py", Python, "redlock-py", On::Five, "locks"),
    subject("aioredlock", Python, "aioredlock", On::Five, "locks"),
    subject("redis-py asyncio, one server", Python, "redis-py-asyncio", On::One, "locks processes"),
    subject("five Redis, in memory, quorlock", Rust, "quorlock", On::Five, "systems"),
    subject("five Redis, fsync always, quorlock", Rust, "quorlock", On::Durable, "systems"),
    subject("one Redis, in memory, by hand", Rust, "by-hand", On::One, "systems"),
    subject("one PostgreSQL, advisory lock", Rust, "postgres-advisory", On::Postgres, "systems"),
    subject("one PostgreSQL, lock table, fsync", Rust, "postgres-table", On::Postgres, "systems"),
    subject("three ZooKeeper, on disk", Rust, "zookeeper", On::ZooKeeper, "systems"),
    subject("three etcd, on disk", Go, "etcd", On::Etcd, "systems"),
];

impl Subject {
    pub(crate) fn is_in(&self, scenario: &Scenario) -> bool {
        self.scenarios.split(' ').any(|name| name == scenario.name)
    }
}

impl Language {
    /// How many processes of it are started: that many virtual machines would distort the result.
    pub(crate) fn most_processes(self) -> usize {
        match self {
            Rust | Go => 100,
            Node | Python => 32,
            Java => 8,
        }
    }

    /// How long it runs before the first window, to make connections, load scripts and let JIT compilers finish: after one
    /// second, a cycle of Java still takes two to four times the processor time that it takes later.
    pub(crate) fn warm_millis(self) -> u64 {
        if self == Java { 20_000 } else { 1000 }
    }
}
