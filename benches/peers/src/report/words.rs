//! The text around the tables. Figures in sentences, and whether a saying holds, are taken from the run.
//! Judgement is kept apart and labelled.

use super::{median, number, of_processes};
use crate::lineup::{BETWEEN_PROCESSES, LOCKS, On, SYSTEMS, Subject};
use crate::measure::{CONTENDERS, TASKS};
use crate::order::Work;
use crate::processes::FIELDS;
use crate::record::{Record, Window};

pub(super) const HEAD: &str = "\
<!-- Written by scripts/peers. Do not edit: run it again, or change benches/peers/src/report. -->

# Benchmarks

quorlock and other locks, in one run, on the same servers and the same cores. `scripts/peers` measures the systems \
that are installed and writes this page and its plots; `scripts/peers --install` installs the others first.

Compare rows, not absolute figures: everything shares one small machine. A network between clients and servers would \
hide most of the differences that CPU time makes, and show others.
";

/// Lists where other subjects are faster.
pub(super) fn where_others_are_ahead(cycles: &Record, contention: &Record, processes: &Record) -> String {
    let mut lines = Vec::new();
    let mut compare = |what: String, others: Vec<(&str, f64)>| {
        let ours = others.first().map_or(f64::NAN, |(_, ours)| *ours);
        let own = |name: &str| name.starts_with("quorlock");
        let mut ahead: Vec<_> =
            others.into_iter().filter(|(name, rate)| !own(name) && *rate > ours * 1.005).collect();
        ahead.sort_by(|a, b| b.1.total_cmp(&a.1));
        let ahead: Vec<String> =
            ahead.into_iter().map(|(name, rate)| format!("{name} {}×", number(rate / ours))).collect();
        if !ahead.is_empty() {
            lines.push(format!("- {what}: {}\n", ahead.join("; ")));
        }
    };
    for tasks in TASKS {
        let rate = |name| median(cycles, name, Work::Cycles, tasks, Window::rate);
        compare(
            format!(
                "cycles per second of free locks, {}",
                if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") }
            ),
            LOCKS.iter().map(|subject| (subject.name, rate(subject.name))).collect(),
        );
    }
    let rate = |name| median(contention, name, Work::Contend, CONTENDERS, Window::rate);
    compare(
        format!("grants per second of one lock, {CONTENDERS} tasks of one process"),
        LOCKS.iter().map(|subject| (subject.name, rate(subject.name))).collect(),
    );
    for (count, distance) in FIELDS {
        let rate = |name| of_processes(processes, name, count, distance, Window::rate);
        let far = if distance == 0 { String::new() } else { format!(", {distance} ms away") };
        compare(
            format!("grants per second of one lock, {count} processes{far}"),
            BETWEEN_PROCESSES.iter().map(|subject| (subject.name, rate(subject.name))).collect(),
        );
    }
    let list = if lines.is_empty() { "- nowhere in this run\n".to_owned() } else { lines.concat() };
    format!(
        "## Where another is ahead\n\nBy throughput alone, compared with quorlock's defaults, that is with fencing; \
         the tables show other differences, such as fairness between waiters.\n\n{list}"
    )
}

pub(super) const HOW: &str = "\
## How it is measured

Each subject is a process of its own, driven by a small program in its language (`benches/peers/`), which works on \
request for windows of time. All subjects take turns, several times, so that drifting machine speed favours none; \
each figure is the median of its windows. Before the first window each subject works for one second, Java ones for \
twenty, so that connections exist, scripts are loaded, and Java and Node have compiled; eight Java processes on few \
cores have not finished by then. Client CPU is the user and system time of the process, in steps of 10 ms, so small \
figures for one task are coarse.

All subjects retry until they have the lock, with a TTL of 10 s, and wait in their own way or as their documentation \
shows:

| subject | how it is used |
|---|---|
| quorlock | defaults: renewal, a fencing token, waiting without polling; the restart guard is off, since the servers have just started. *No fencing* is the plain `SET NX PX`, without the counter |
| a round by hand | one request to each node over the client crate that quorlock uses too; decides with the third answer and reads late ones in the background; no renewal, no clean-up after errors; retries within 200 ms. It is what a program achieves that writes the algorithm out |
| rslock | `acquire_no_guard`, 200 ms retry delay |
| redlock | blocking `lock` until granted, a thread per call, 200 ms retry delay; opens a connection for each request |
| redsync | default go-redis pools, 50 to 250 ms between attempts. *Fail fast* is `WithFailFast(true)`: it continues when three servers have agreed, without waiting for the others |
| rueidislock | one server, because it locks on one server or one cluster; two of three keys there, `NoLoopTracking` |
| Redisson | `RedissonRedLock` over five single-server clients, a thread per task; waits by publish and subscribe. Deprecated by its authors. *Shared threads* has one event loop group and one executor for all five clients, instead of 32 and 16 threads for each client. *RLock, one server* is its plain lock on one server, without a quorum |
| node-redlock | ioredis, `retryDelay` 200, `retryJitter` 200, unlimited retries. *Auto-pipelining* is ioredis with `enableAutoPipelining`: the requests of one event loop turn go to a server in one write |
| pottery, redlock-py | defaults, a thread per task. *pottery, asyncio* is its `AIORedlock`, in the tasks of one event loop |
| aioredlock | defaults, three attempts 100 to 300 ms apart, repeated; tasks of one event loop |
| redis-py asyncio, one server | the lock of `redis.asyncio` on one server, without a quorum; 100 ms between attempts, the default; tasks of one event loop |
| PostgreSQL | a connection per task; `pg_advisory_lock`, and a table with a row per lock, retried within 20 ms |
| ZooKeeper | the usual recipe of numbered ephemeral nodes, one session |
| etcd | its own `concurrency.Mutex`, a session per task |

Python subjects use hiredis, and uvloop event loops. A hold of 1 ms lasts as long as the language's timer makes it, \
so grants per second differ by that too; the hand-over does not. Rust subjects are release builds unless noted. \
Overlapping holds in different processes are not checked here: `cargo bench --bench processes` looks for two holders \
at the same time, and for the longest time without any. `cargo bench --bench sick_nodes` measures sick servers.
";

pub(super) fn what_this_says(
    cycles: &Record,
    contention: &Record,
    processes: &Record,
    systems: &Record,
) -> String {
    let fact = |facts: &mut Vec<String>, text: Option<String>| facts.extend(text);
    let mut facts = Vec::new();
    fact(&mut facts, beside_others(cycles));
    fact(&mut facts, by_hand(cycles));
    fact(&mut facts, waiting(contention));
    fact(&mut facts, growing(processes));
    fact(&mut facts, saying(systems));
    fact(&mut facts, one_or_five(systems));
    format!("## What this says\n\nFacts of this run:\n\n- {}\n\n{JUDGEMENT}", facts.join("\n- "))
}

pub(super) const COSTS: &str = "\
<!-- Written by scripts/peers. Do not edit: run it again, or change benches/peers/src/report. -->

# What each promise costs

A free lock: a cycle is one acquisition and one release, under a new name each time unless the row says otherwise. \
All subjects take turns on the same servers and the same two cores; each figure is the median of its windows, with \
the ratio to the first row in parentheses. Commands are those that the servers carried out, including those inside \
scripts; bytes are received and sent by all servers.

- *quorlock* is the default: fencing token, restart guard, renewal, hints for waiters.
- *No restart guard* and *no fencing* show what these cost: the guard costs time when a connection is made, not in a \
  cycle.
- *One name for each task* saves creating a counter for each name.
- Hints cost a free lock nothing: nothing is registered until a client waits.
- *A round by hand* is `SET NX PX` to all nodes and a script that deletes, over the client crate that quorlock uses \
  too: no renewal, no clean-up, late answers discarded. *With a counter* it acquires by a script that also raises a \
  counter of that name, kept for a day.
";

const JUDGEMENT: &str = "\
Our judgement:

- Five servers and the clients share a few cores here, so client CPU time is taken from the servers, and explains \
  most of the order for free locks. With remote servers the network would.
- Under contention, how a library waits matters more than its language. Libraries that sleep after a refusal leave \
  the lock to the task that has just released it: many grants with a fairness near 1/32 mean that one task had it \
  again and again while the others slept. The time until all have had it once shows the price.
- What quorlock does beyond a plain round (raising a counter with each lock, renewals, clean-up that outlives its \
  caller) costs something in every cycle. For throughput of free locks without a token, use `Fencing::Off`.
- Redis, ZooKeeper and databases should not be ranked without saying how many servers vote, what is on disk when a \
  lock is granted, and how waiters learn of a release. A server that loses its memory with its process promises less \
  than three that agree on disk, and a quorum of five differs from a single server.
- A program that already has a PostgreSQL, and whose locks may be down with it, gets fast locks from it. A quorum is \
  for programs that must continue when a server is down.
";

/// Compares throughput at many tasks with the other libraries on five servers.
fn beside_others(record: &Record) -> Option<String> {
    let rate = |subject: &str| median(record, subject, Work::Cycles, TASKS[2], Window::rate);
    let [fenced, plain] = ["quorlock", "quorlock, no fencing"].map(rate);
    let is_other = |subject: &&Subject| {
        subject.on == On::FiveServers
            && !subject.name.starts_with("quorlock")
            && subject.name != "a round by hand"
    };
    let mut others: Vec<(&str, f64)> = LOCKS
        .iter()
        .filter(is_other)
        .map(|subject| (subject.name, rate(subject.name)))
        .filter(|(_, rate)| rate.is_finite())
        .collect();
    others.sort_by(|a, b| b.1.total_cmp(&a.1));
    let others = others.into_iter();
    let others: Vec<String> = others
        .map(|(name, rate)| {
            format!("{} and {} times that of {name}", number(plain / rate), number(fenced / rate))
        })
        .collect();
    (!others.is_empty()).then(|| {
        format!(
            "A free lock at {} tasks on five servers: quorlock's throughput, without and with fencing, is {}.",
            TASKS[2],
            others.join(", ")
        )
    })
}

fn by_hand(record: &Record) -> Option<String> {
    let figure = |subject: &str, tasks, figure: fn(&Window) -> f64| {
        median(record, subject, Work::Cycles, tasks, figure)
    };
    let [fenced, plain] = ["quorlock", "quorlock, no fencing"].map(|subject| {
        (
            figure(subject, 1, Window::p50) / figure("a round by hand", 1, Window::p50),
            figure(subject, TASKS[2], Window::client_cpu)
                / figure("a round by hand", TASKS[2], Window::client_cpu),
        )
    });
    (fenced.0.is_finite() && plain.0.is_finite()).then(|| {
        format!(
            "Compared with a round by hand over the same client crate, a cycle of quorlock takes {} times as long at one \
             task without fencing and {} times with it, and {} and {} times the client's CPU at {} tasks.",
            number(plain.0),
            number(fenced.0),
            number(plain.1),
            number(fenced.1),
            TASKS[2]
        )
    })
}

fn waiting(record: &Record) -> Option<String> {
    let figure = |subject: &str, figure: fn(&Window) -> f64| {
        median(record, subject, Work::Contend, CONTENDERS, figure)
    };
    let together =
        |subject: &str| median(record, subject, Work::Together, CONTENDERS, Window::micros) / 1000.0;
    let polling = [
        "rslock",
        "redlock",
        "redsync",
        "redsync, fail fast",
        "node-redlock",
        "node-redlock, auto-pipelining",
        "pottery",
        "pottery, asyncio",
        "redlock-py",
        "aioredlock",
    ];
    let mut times: Vec<f64> = polling.into_iter().map(together).filter(|time| time.is_finite()).collect();
    times.sort_by(f64::total_cmp);
    let (first, last) = (times.first()?, times.last()?);
    Some(format!(
        "{CONTENDERS} tasks that arrive together have all held quorlock's lock for 1 ms after {} ms; with the libraries \
         that sleep between attempts it takes {} to {} ms. quorlock's fairness is {}, at {} commands per grant.",
        number(together("quorlock")),
        number(*first),
        number(*last),
        number(figure("quorlock", Window::fairness)),
        number(figure("quorlock", Window::commands))
    ))
}

/// The cost of more waiting processes per grant.
fn growing(record: &Record) -> Option<String> {
    let of =
        |name: &str, processes, figure: fn(&Window) -> f64| of_processes(record, name, processes, 0, figure);
    let says = |name: &str| {
        let [few, many] = [2, 100].map(|processes| of(name, processes, Window::rate));
        let [cheap, dear] = [2, 100].map(|processes| of(name, processes, Window::commands));
        (few.is_finite() && many.is_finite()).then(|| {
            format!(
                "{name} from {} to {} grants per second and from {} to {} commands per grant",
                number(few),
                number(many),
                number(cheap),
                number(dear)
            )
        })
    };
    let all: Vec<String> = BETWEEN_PROCESSES.iter().filter_map(|subject| says(subject.name)).collect();
    (!all.is_empty()).then(|| format!("From 2 to 100 processes contending for one lock: {}.", all.join("; ")))
}

/// The old claim that Redis is fastest, ZooKeeper next and the database last.
fn saying(record: &Record) -> Option<String> {
    let p50 = |subject: &str| median(record, subject, Work::Cycles, 1, Window::p50);
    let mut order: Vec<(&str, f64)> = SYSTEMS.iter().map(|system| (system.name, p50(system.name))).collect();
    order.retain(|(_, p50)| p50.is_finite());
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let place = |(name, _): &(&str, f64)| {
        ["Redis", "ZooKeeper", "PostgreSQL"].iter().position(|kind| name.contains(kind))
    };
    let places: Vec<usize> = order.iter().filter_map(place).collect();
    if [0, 1, 2].iter().any(|kind| !places.contains(kind)) {
        return None;
    }
    let holds = if places.is_sorted() { "holds" } else { "does not hold" };
    let listed: Vec<String> =
        order.iter().map(|(name, p50)| format!("{name} ({} µs)", number(*p50))).collect();
    Some(format!(
        "By the median cycle of one task, fastest first: {}. The saying that Redis is fastest, then ZooKeeper, then the \
         database, {holds} here for these rows.",
        listed.join("; ")
    ))
}

fn one_or_five(record: &Record) -> Option<String> {
    let rate = |subject: &str| median(record, subject, Work::Cycles, TASKS[2], Window::rate);
    let [one, five, durable] = [SYSTEMS[2].name, SYSTEMS[0].name, SYSTEMS[1].name].map(rate);
    (one.is_finite() && five.is_finite() && durable.is_finite()).then(|| {
        format!(
            "At {} tasks, five Redis servers give quorlock {} of the throughput that one server gives a lock written by \
             hand, and {} when each change is on disk before it is answered.",
            TASKS[2],
            number(five / one),
            number(durable / one)
        )
    })
}
