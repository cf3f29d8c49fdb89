//! The subjects, and how each is started.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// One lock service, by one client.
#[derive(Debug)]
pub(crate) struct Subject {
    /// The name in tables and on the command line.
    pub(crate) name: &'static str,
    driver: Driver,
    pub(crate) on: On,
}

/// The program that runs the client, and its name for the subject.
#[derive(Clone, Copy, Debug)]
enum Driver {
    /// This program, started again.
    Rust(&'static str),
    Go(&'static str),
    Node(&'static str),
    Python(&'static str),
    Java(&'static str),
}

/// What the subject locks on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum On {
    FiveServers,
    /// The first of the five servers.
    OneServer,
    /// Five that write each change to disk before they reply.
    FiveDurable,
    Postgres,
    ZooKeeper,
    Etcd,
}

impl Subject {
    const fn new(name: &'static str, driver: Driver, on: On) -> Subject {
        Subject { name, driver, on }
    }
}

/// The first one is the reference for the others.
pub(crate) const LOCKS: [Subject; 18] = [
    Subject::new("quorlock", Driver::Rust("quorlock"), On::FiveServers),
    Subject::new("quorlock, no fencing", Driver::Rust("quorlock-unfenced"), On::FiveServers),
    Subject::new("a round by hand", Driver::Rust("by-hand"), On::FiveServers),
    Subject::new("rslock", Driver::Rust("rslock"), On::FiveServers),
    Subject::new("redlock", Driver::Rust("redlock"), On::FiveServers),
    Subject::new("redsync", Driver::Go("redsync"), On::FiveServers),
    Subject::new("redsync, fail fast", Driver::Go("redsync-fail-fast"), On::FiveServers),
    Subject::new("rueidislock, one server", Driver::Go("rueidislock"), On::OneServer),
    Subject::new("Redisson", Driver::Java("redisson"), On::FiveServers),
    Subject::new("Redisson, shared threads", Driver::Java("redisson-shared"), On::FiveServers),
    Subject::new("Redisson RLock, one server", Driver::Java("redisson-rlock"), On::OneServer),
    Subject::new("node-redlock", Driver::Node("redlock"), On::FiveServers),
    Subject::new("node-redlock, auto-pipelining", Driver::Node("redlock-pipelined"), On::FiveServers),
    Subject::new("pottery", Driver::Python("pottery"), On::FiveServers),
    Subject::new("pottery, asyncio", Driver::Python("pottery-asyncio"), On::FiveServers),
    Subject::new("redlock-py", Driver::Python("redlock-py"), On::FiveServers),
    Subject::new("aioredlock", Driver::Python("aioredlock"), On::FiveServers),
    Subject::new("redis-py asyncio, one server", Driver::Python("redis-py-asyncio"), On::OneServer),
];

/// With processes of one task each.
pub(crate) const BETWEEN_PROCESSES: [Subject; 10] = [
    Subject::new("quorlock", Driver::Rust("quorlock"), On::FiveServers),
    Subject::new("quorlock, no fencing", Driver::Rust("quorlock-unfenced"), On::FiveServers),
    Subject::new("a round by hand", Driver::Rust("by-hand"), On::FiveServers),
    Subject::new("rslock", Driver::Rust("rslock"), On::FiveServers),
    Subject::new("redsync", Driver::Go("redsync"), On::FiveServers),
    Subject::new("redsync, fail fast", Driver::Go("redsync-fail-fast"), On::FiveServers),
    Subject::new("rueidislock, one server", Driver::Go("rueidislock"), On::OneServer),
    Subject::new("Redisson RLock, one server", Driver::Java("redisson-rlock"), On::OneServer),
    Subject::new("node-redlock", Driver::Node("redlock"), On::FiveServers),
    Subject::new("redis-py asyncio, one server", Driver::Python("redis-py-asyncio"), On::OneServer),
];

/// Behind proxies that delay what passes.
pub(crate) const FAR_AWAY: [Subject; 5] = [
    Subject::new("quorlock", Driver::Rust("quorlock"), On::FiveServers),
    Subject::new("quorlock, no restart guard", Driver::Rust("quorlock-unguarded"), On::FiveServers),
    Subject::new("a round by hand", Driver::Rust("by-hand"), On::FiveServers),
    Subject::new("rslock", Driver::Rust("rslock"), On::FiveServers),
    Subject::new("redsync", Driver::Go("redsync"), On::FiveServers),
];

/// Other systems, and the subjects they are compared to.
pub(crate) const SYSTEMS: [Subject; 7] = [
    Subject::new("five Redis, in memory, quorlock", Driver::Rust("quorlock"), On::FiveServers),
    Subject::new("five Redis, fsync always, quorlock", Driver::Rust("quorlock"), On::FiveDurable),
    Subject::new("one Redis, in memory, by hand", Driver::Rust("by-hand"), On::OneServer),
    Subject::new("one PostgreSQL, advisory lock", Driver::Rust("postgres-advisory"), On::Postgres),
    Subject::new("one PostgreSQL, lock table, fsync", Driver::Rust("postgres-table"), On::Postgres),
    Subject::new("three ZooKeeper, on disk", Driver::Rust("zookeeper"), On::ZooKeeper),
    Subject::new("three etcd, on disk", Driver::Go("etcd"), On::Etcd),
];

/// The cost of each guarantee.
pub(crate) const PROMISES: [Subject; 9] = [
    Subject::new("quorlock", Driver::Rust("quorlock"), On::FiveServers),
    Subject::new("quorlock, no restart guard", Driver::Rust("quorlock-unguarded"), On::FiveServers),
    Subject::new("quorlock, no fencing", Driver::Rust("quorlock-unfenced"), On::FiveServers),
    Subject::new("a round by hand", Driver::Rust("by-hand"), On::FiveServers),
    Subject::new("a round by hand, with a counter", Driver::Rust("by-hand-counting"), On::FiveServers),
    Subject::new("one server: quorlock", Driver::Rust("quorlock"), On::OneServer),
    Subject::new("one server: quorlock, no fencing", Driver::Rust("quorlock-unfenced"), On::OneServer),
    Subject::new("one server: by hand", Driver::Rust("by-hand"), On::OneServer),
    Subject::new("one server: by hand, with a counter", Driver::Rust("by-hand-counting"), On::OneServer),
];

/// The command line that starts a driver, before the addresses.
pub(crate) struct Start {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
}

impl Subject {
    /// How many processes of it are started: that many virtual machines would distort the result.
    pub(crate) fn most_processes(&self) -> usize {
        match self.driver {
            Driver::Rust(_) | Driver::Go(_) => 100,
            Driver::Node(_) | Driver::Python(_) => 32,
            Driver::Java(_) => 8,
        }
    }

    /// How long it runs before the first window, to make connections, load scripts and let JIT
    /// compilers finish.
    pub(crate) fn warm_millis(&self) -> u64 {
        match self.driver {
            Driver::Rust(_) | Driver::Go(_) | Driver::Node(_) | Driver::Python(_) => 1000,
            // After one second, a cycle still takes two to four times the processor time that it takes
            // later.
            Driver::Java(_) => 20_000,
        }
    }

    /// The path of the built driver, or why it has not been built.
    pub(crate) fn start(&self, built: &Path) -> Result<Start, String> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (language, program, subject, arguments) = match self.driver {
            Driver::Rust(subject) => {
                let own = std::env::current_exe().map_err(|error| error.to_string())?;
                return Ok(Start { program: own, arguments: vec!["drive".into(), subject.into()] });
            }
            Driver::Go(subject) => ("go", built.join("go/driver"), subject, vec![]),
            Driver::Node(subject) => {
                ("node", built.join("node/node"), subject, vec![sources.join("node/driver.mjs").into()])
            }
            Driver::Python(subject) => (
                "python",
                built.join("python/bin/python"),
                subject,
                vec!["-B".into(), sources.join("python/driver.py").into()],
            ),
            Driver::Java(subject) => (
                "java",
                built.join("java/java"),
                subject,
                vec!["-cp".into(), built.join("java/jars/*").into(), "Driver".into()],
            ),
        };
        if !program.exists() {
            let why = fs::read_to_string(built.join(language).with_extension("skipped"));
            let why = why.unwrap_or_else(|_| format!("its driver in {language} has not been built"));
            return Err(why.trim().to_owned());
        }
        let arguments = arguments.into_iter().chain([subject.into()]).collect();
        Ok(Start { program, arguments })
    }
}
