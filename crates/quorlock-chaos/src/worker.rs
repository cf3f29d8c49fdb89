//! One worker process, which acquires locks, writes to the register, and reports its status.
//!
//! It reads its orders from stdin, one line of JSON, and stops at the end of stdin. It writes its [`Status`]
//! to stdout as a line of JSON several times a second.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorlock::{
    Coordinator, Fencing, RestartGuard,
    runtime::{Clock as _, SystemClock},
};
use quorlock_history::Stamp;
use quorlock_servers::SeededRng;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::load::Load;
use crate::record::Recorder;
use crate::register::Writer;

mod counts;
mod hold;
mod inside;
mod observer;
mod stalls;
mod tasks;
mod wanted;

use counts::Counts;
use inside::Inside;

/// The configuration of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// Its name, which it shares with the workers that it replaces.
    pub(crate) name: String,
    /// The number of workers with this name so far, including this one.
    pub(crate) life: u32,
    pub(crate) seed: u64,
    pub(crate) nodes: Vec<String>,
    /// The contended locks.
    pub(crate) locks: Vec<String>,
    /// Semaphores with their number of permits.
    pub(crate) semaphores: Vec<(String, usize)>,
    pub(crate) elections: Vec<String>,
    /// The uncontended lock of this worker.
    pub(crate) own_lock: String,
    pub(crate) ttl: Duration,
    pub(crate) drift: f64,
    pub(crate) restart_guard: bool,
    pub(crate) fencing: bool,
    pub(crate) load: Load,
    pub(crate) register: SocketAddr,
    pub(crate) record: PathBuf,
}

impl Orders {
    fn fencing(&self) -> Fencing {
        if self.fencing { Fencing::On } else { Fencing::Off }
    }
}

/// The counts of a worker.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) acquired: u64,
    pub(crate) not_acquired: u64,
    pub(crate) lost: u64,
    /// How often two tasks held the same lock at the same time according to their leases.
    pub(crate) overlaps: u64,
    /// When the last successful acquisition of the own lock began.
    pub(crate) fresh: Stamp,
}

/// The state that all tasks of a worker share.
struct Worker {
    orders: Orders,
    coordinator: Coordinator,
    recorder: Recorder,
    register: Mutex<Writer>,
    counts: Counts,
    inside: Vec<Inside>,
    /// Set when tasks must start nothing new.
    stopping: AtomicBool,
}

/// How often a worker reports its status.
const EVERY: Duration = Duration::from_millis(200);
/// How long it waits for its releases at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs until stdin ends.
pub(crate) async fn work() -> io::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let orders = lines.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let worker = Arc::new(Worker::new(serde_json::from_str(&orders)?).await?);
    stalls::watch(&worker.orders.name, worker.recorder.clone());
    let mut tasks = JoinSet::new();
    for task in 0..worker.orders.load.tasks {
        let rng = worker.rng(&format!("task {task}"));
        tasks.spawn(tasks::contend(worker.clone(), rng));
    }
    for election in &worker.orders.elections {
        tasks.spawn(observer::observe(worker.clone(), election.clone()));
    }
    tasks.spawn(tasks::probe(worker.clone(), worker.rng("probe")));
    let clock = SystemClock::default();
    loop {
        tokio::select! {
            // Further lines are ignored.
            line = lines.next_line() => if line?.is_none() { break },
            () = clock.sleep_until(clock.now() + EVERY) => worker.report()?,
        }
    }
    worker.stopping.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    worker.coordinator.close(PATIENCE).await;
    worker.report()
}

impl Worker {
    async fn new(orders: Orders) -> io::Result<Worker> {
        let guard = if orders.restart_guard { RestartGuard::On } else { RestartGuard::Off };
        let coordinator = Coordinator::builder()
            .kinds(quorlock_kinds::all())
            .nodes(&orders.nodes)
            .ttl(orders.ttl)
            .max_ttl(orders.ttl)
            .drift(orders.drift)
            .restart_guard(guard)
            .build()
            .map_err(io::Error::other)?;
        Ok(Worker {
            coordinator,
            recorder: Recorder::at(&orders.record)?,
            register: Mutex::new(Writer::connect(orders.register).await?),
            counts: Counts::default(),
            inside: orders.locks.iter().map(|_| Inside::default()).collect(),
            stopping: AtomicBool::new(false),
            orders,
        })
    }

    fn rng(&self, purpose: &str) -> SeededRng {
        let Orders { name, life, seed, .. } = &self.orders;
        SeededRng::new(*seed, &format!("{name} {life} {purpose}"))
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn report(&self) -> io::Result<()> {
        let line = serde_json::to_string(&self.counts.status())?;
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{line}")?;
        stdout.flush()
    }
}
