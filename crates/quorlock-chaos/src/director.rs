//! Runs one scenario: sets up the environment, injects the scheduled faults, and writes the record.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use quorlock::protocol::{Moment, micros};
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_history::What;
use quorlock_servers::{Engine, EtcdPrograms, ZooKeeperPrograms};
use tokio::sync::Mutex;

use crate::environment::{Environment, node_name};
use crate::error::Failure;
use crate::fault::Target;
use crate::inspector;
use crate::layout::Layout;
use crate::masters::{Databases, Etcd, Extras, Masters, Memory, Need, Processes, ZooKeeper};
use crate::offers::Offers;
use crate::progress::Progress;
use crate::proxies::Proxies;
use crate::record::{Recorder, of, stamp};
use crate::register::{Checks, Register};
use crate::run_metadata::{self, Done, Record, RunMetadata};
use crate::scenario::{Scenario, ServerKind, lock_name};
use crate::schedule::{Event, schedule};
use crate::worker::Orders;
use crate::workers::{Workers, worker_name};

/// A run of one scenario.
pub(crate) struct Run<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) layout: Option<&'a Layout>,
    pub(crate) seed: u64,
    pub(crate) duration: Duration,
    /// The command line that repeats the run.
    pub(crate) replay: String,
}

/// The record of a run, or the reason why this machine cannot run it.
#[derive(Debug)]
pub(crate) enum Ran {
    Done(Box<RunMetadata>, Record),
    Skipped(String),
}

/// How often the keys on the nodes are inspected.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// Time after the last fault has healed within which every worker must acquire a lock: the longest
/// reconnect delay, and one attempt.
pub(crate) const RECOVERY: Duration = Duration::from_secs(8);
/// How long a key may remain on a healthy node after its attempt is over: after a reset connection,
/// until the client has reconnected and deleted it.
pub(crate) const GRACE: Duration = Duration::from_secs(7);
/// Time within which all rows that attempts left in a database have expired, including tombstones.
const EXPIRED: Duration = Duration::from_secs(30);
/// Time for every worker to acquire its first lock.
const START: Duration = Duration::from_secs(30);

impl Run<'_> {
    /// Runs the scenario and writes the record to `folder`.
    pub(crate) async fn run(
        &self,
        masters: Option<Box<dyn Masters>>,
        folder: &Path,
        progress: &Progress,
    ) -> Result<Ran, Failure> {
        let plan = schedule(self.scenario, self.seed, self.duration);
        for part in ["history", "logs"] {
            fs::create_dir_all(folder.join(part)).map_err(Failure::to("make the folder of the record"))?;
        }
        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text).map_err(Failure::to(format!("write {name}")))
        };
        write("scenario.toml", &self.scenario.text)?;
        progress.says("starting the servers");
        let masters = match masters {
            Some(masters) => masters,
            None => match self.start_masters(folder).await.map_err(Failure::to("start the servers"))? {
                Ok(masters) => masters,
                Err(reason) => return Ok(Ran::Skipped(reason)),
            },
        };
        if let Some(reason) = self.missing(&*masters) {
            return Ok(Ran::Skipped(reason));
        }
        masters.prepare().await.map_err(Failure::to("prepare the servers"))?;
        write("schedule.txt", &self.shown(&plan, masters.memory()))?;
        let recorder =
            Recorder::at(&folder.join("history/director.jsonl")).map_err(Failure::to("write the record"))?;
        let checks = if self.scenario.locks.register_checks { Checks::Tokens } else { Checks::Nothing };
        let register =
            Register::start(checks, recorder.clone()).await.map_err(Failure::to("start the register"))?;
        let environment =
            self.set_up(masters, &register, recorder, folder).await.map_err(Failure::to("set up the run"))?;
        let played = self.play(&environment, &plan, progress).await;
        let kept = environment.masters.keep_logs(&folder.join("logs")).await;
        let mut metadata = played?;
        kept.map_err(Failure::to("keep the logs of the servers"))?;
        let record = run_metadata::record(folder)?;
        metadata.files.clone_from(&record.files);
        metadata.write(folder)?;
        Ok(Ran::Done(Box::new(metadata), record))
    }

    /// Starts the masters, or returns the reason why this machine cannot.
    async fn start_masters(&self, folder: &Path) -> io::Result<Result<Box<dyn Masters>, String>> {
        let needs = |need| self.scenario.faults.iter().any(|rule| rule.fault.needs == need);
        let nodes = self.scenario.nodes;
        let databases = async |engine: io::Result<Engine>| {
            let extras = Extras { standby: needs(Need::Standby), small_disk: needs(Need::SmallDisk) };
            let databases = Databases::start(&engine?, nodes, extras).await?;
            io::Result::Ok(Box::new(databases) as Box<dyn Masters>)
        };
        let started = match self.scenario.servers {
            kind @ (ServerKind::Redis | ServerKind::Redisson) => {
                let memory = if self.scenario.durable { Memory::Kept } else { Memory::Gone };
                let bend = needs(Need::BentClock);
                let processes = Processes::start(nodes, memory, bend, folder).await?;
                let of_redisson = kind == ServerKind::Redisson;
                return Ok(Ok(Box::new(if of_redisson {
                    processes.in_redissons_layout()
                } else {
                    processes
                })));
            }
            ServerKind::Postgres => databases(Engine::postgres()).await,
            ServerKind::MariaDb => databases(Engine::mariadb()).await,
            ServerKind::Etcd => {
                let started = async { Etcd::start(EtcdPrograms::find()?, nodes).await };
                started.await.map(|etcd| Box::new(etcd) as Box<dyn Masters>)
            }
            ServerKind::ZooKeeper => {
                let started = async { ZooKeeper::start(ZooKeeperPrograms::find()?, nodes).await };
                started.await.map(|zookeeper| Box::new(zookeeper) as Box<dyn Masters>)
            }
        };
        match started {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(Err(missing.to_string())),
            Ok(masters) => Ok(Ok(masters)),
            Err(error) => Err(error),
        }
    }

    /// Returns the reason why the masters cannot run the scenario, if they cannot.
    fn missing(&self, masters: &dyn Masters) -> Option<String> {
        if let Some(count) = masters.count().filter(|&count| count != self.scenario.nodes) {
            return Some(format!("it needs {} masters, and there are {count}", self.scenario.nodes));
        }
        let are_others = match self.scenario.servers {
            ServerKind::Redis => false,
            ServerKind::Redisson => !masters.url(masters.address(0)).contains("layout=redisson"),
            ServerKind::Postgres | ServerKind::MariaDb | ServerKind::Etcd | ServerKind::ZooKeeper => {
                masters.offers(Need::Redis).is_ok()
            }
        };
        if are_others {
            return Some("it needs other servers than those of the compose project".to_owned());
        }
        if self.scenario.expect.offers > 0
            && let Err(reason) = masters.offers(Need::RealServer)
        {
            return Some(format!("it counts offers: {reason}"));
        }
        let mut needs = self.scenario.faults.iter().map(|rule| (rule.kind, rule.fault.needs));
        needs.find_map(|(kind, need)| Some(format!("`{kind}`: {}", masters.offers(need).err()?)))
    }

    async fn set_up(
        &self,
        masters: Box<dyn Masters>,
        register: &Register,
        recorder: Recorder,
        folder: &Path,
    ) -> io::Result<Environment> {
        let Scenario { nodes, locks, load, .. } = self.scenario;
        let addresses: Vec<_> = (0..*nodes).map(|number| masters.address(number)).collect();
        let distance =
            |worker, node| self.layout.map_or(Duration::ZERO, |layout| layout.one_way(worker, node));
        let proxies = Proxies::build(load.workers, &addresses, distance).await?;
        // The worker's current folder may be another one.
        let record = std::path::absolute(folder.join("history"))?;
        let orders = (0..load.workers).map(|number| Orders {
            name: worker_name(number),
            life: 0,
            seed: self.seed,
            nodes: masters.urls(&proxies.addresses(number)),
            locks: (1..=locks.count).map(lock_name).collect(),
            semaphores: (1..)
                .map(|number| format!("semaphore-{number}"))
                .zip(locks.semaphores.clone())
                .collect(),
            elections: (1..=locks.elections).map(|number| format!("election-{number}")).collect(),
            own_lock: own_lock(number),
            ttl: locks.ttl,
            drift: locks.drift,
            restart_guard: locks.restart_guard,
            fencing: locks.fencing,
            load: load.clone(),
            register: register.address(),
            record: record.join(format!("{}.jsonl", worker_name(number))),
        });
        let workers = Workers::new(orders.collect(), recorder.clone(), folder.join("logs"));
        Ok(Environment::new(masters, proxies, workers, recorder, *nodes))
    }

    async fn play(
        &self,
        environment: &Environment,
        plan: &[Event],
        progress: &Progress,
    ) -> Result<RunMetadata, Failure> {
        let clock = SystemClock::default();
        // Databases make no offers.
        let offering = if environment.masters.offers(Need::Redis).is_ok() { self.scenario.nodes } else { 0 };
        let offers = Offers::watch(
            (0..offering).map(|number| environment.masters.address(number)),
            environment.masters.password(),
        );
        for number in 0..environment.workers.len() {
            environment.workers.start(number).await.map_err(Failure::to("start the workers"))?;
        }
        progress.says("waiting until every worker has acquired a lock");
        self.everyone(environment, Moment::ORIGIN, START).await.map_err(Failure::to("begin the run"))?;

        let began = clock.now();
        let injector = Injector {
            run: self,
            environment,
            began,
            progress,
            done: Mutex::default(),
            complaints: Mutex::default(),
            left_out: Mutex::default(),
        };
        progress.begin(&self.scenario.name, self.duration);
        let mut playing: FuturesUnordered<_> = plan.iter().map(|event| injector.inject(event)).collect();
        let end = began + self.duration;
        let watching = async {
            let mut looks = began;
            loop {
                let now = clock.now();
                progress.shows(now.since(began), &environment.workers.status());
                if now >= looks {
                    inspector::inspect(environment).await;
                    looks = now + LOOKS_EVERY;
                }
                clock.sleep_until(now + LOOKS_EVERY / 4).await;
            }
        };
        tokio::select! {
            () = watching => {}
            () = async {
                while playing.next().await.is_some() {}
                clock.sleep_until(end).await;
            } => {}
        }
        drop(playing);

        progress.says("all faults have healed: every worker acquires a lock once more");
        let healed = clock.now();
        // The liveness check reports a worker that acquires none.
        let _ = self.everyone(environment, healed, RECOVERY + self.scenario.quarantine()).await;
        let left_out = injector.left_out.into_inner();
        let mut complaints = injector.complaints.into_inner();
        progress.says("the workers finish");
        complaints.extend(environment.workers.finish(self.scenario.locks.ttl * 3 + RECOVERY).await);
        progress.says("looking for keys left on the nodes");
        let over = clock.now() + GRACE + LOOKS_EVERY;
        let mut last = inspector::inspect(environment).await;
        while (last.keys > 0 || !last.failed.is_empty()) && clock.now() < over {
            clock.sleep_until(clock.now() + LOOKS_EVERY / 5).await;
            last = inspector::inspect(environment).await;
        }
        complaints.extend(last.failed);
        let left_behind = self.left_behind(environment).await;
        let label = |name: String, place: fn(&Layout, usize) -> Option<&str>, number| match self
            .layout
            .and_then(|layout| place(layout, number))
        {
            Some(place) => format!("{name} ({place})"),
            None => name,
        };
        Ok(RunMetadata {
            scenario: self.scenario.name.clone(),
            seed: self.seed,
            replay: self.replay.clone(),
            servers: environment.masters.what(),
            layout: self.layout.map(|layout| layout.summary.clone()),
            round_trips: self.round_trips(),
            nodes: (0..self.scenario.nodes)
                .map(|number| label(node_name(number), Layout::node_place, number))
                .collect(),
            workers: (0..environment.workers.len())
                .map(|number| label(worker_name(number), Layout::worker_place, number))
                .collect(),
            began: of(began),
            quiet: of(healed),
            ended: stamp(),
            faults: injector.done.into_inner(),
            overlaps: environment.workers.status().iter().map(|status| status.overlaps).sum(),
            complaints,
            left_out,
            offers: offers.count(),
            left_behind,
            files: BTreeMap::new(),
        })
    }

    /// Returns the rows still in the tables of databases when all of them should have expired; `None`
    /// if the nodes are no databases.
    async fn left_behind(&self, environment: &Environment) -> Option<Vec<String>> {
        let clock = SystemClock::default();
        let over = clock.now() + EXPIRED;
        loop {
            let mut left = Vec::new();
            for number in 0..self.scenario.nodes {
                let name = node_name(number);
                match environment.masters.left_behind(number).await {
                    Ok(rows) => left.extend(rows?.into_iter().map(|row| format!("{name}: {row}"))),
                    Err(error) => left.push(format!("{name} did not answer: {error}")),
                }
            }
            if left.is_empty() || clock.now() >= over {
                return Some(left);
            }
            clock.sleep_until(clock.now() + LOOKS_EVERY).await;
        }
    }

    fn round_trips(&self) -> Vec<Vec<u64>> {
        let Some(layout) = self.layout else { return Vec::new() };
        let to = |worker, node| micros(layout.round_trip(worker, node));
        let of_worker = |worker| (0..self.scenario.nodes).map(|node| to(worker, node)).collect();
        (0..self.scenario.load.workers).map(of_worker).collect()
    }

    /// Waits until every worker has acquired its own lock by an attempt that began after `since`. Fails when
    /// a worker has exited.
    async fn everyone(&self, environment: &Environment, since: Moment, patience: Duration) -> io::Result<()> {
        let workers = &environment.workers;
        let ready = async || match workers.exited().await {
            Some(how) => Some(Err(io::Error::other(how))),
            None => workers.status().iter().all(|status| status.fresh > of(since)).then_some(Ok(())),
        };
        quorlock_servers::find_eventually("every worker to get a lock", patience, ready).await?
    }

    /// Returns the schedule as text.
    fn shown(&self, plan: &[Event], memory: Memory) -> String {
        let line = |event: &Event| {
            let (from, until) = (event.from.as_secs_f64(), event.until.as_secs_f64());
            format!("{from:9.3} s to {until:9.3} s  {}\n", self.name(event, memory))
        };
        plan.iter().map(line).collect()
    }

    /// Returns for example `node-2 killed, restarted empty`.
    fn name(&self, event: &Event, memory: Memory) -> String {
        let Some(rule) = self.scenario.faults.get(event.rule) else { return String::new() };
        let target = match rule.fault.target {
            Target::Node => node_name(event.hit.target),
            Target::Worker => worker_name(event.hit.target),
        };
        format!("{target} {}", rule.fault.describe(event.hit.random, memory))
    }
}

/// Returns the name of the uncontended lock of this worker.
pub(crate) fn own_lock(worker: usize) -> String {
    format!("own-{}", worker + 1)
}

/// Injects the faults of a schedule.
struct Injector<'a> {
    run: &'a Run<'a>,
    environment: &'a Environment,
    began: Moment,
    progress: &'a Progress,
    done: Mutex<Vec<Done>>,
    complaints: Mutex<Vec<String>>,
    /// Faults left out because an earlier fault was not over in time.
    left_out: Mutex<BTreeMap<String, usize>>,
}

impl Injector<'_> {
    async fn inject(&self, event: &Event) {
        let Some(rule) = self.run.scenario.faults.get(event.rule) else { return };
        let clock = SystemClock::default();
        let environment = self.environment;
        let name = self.run.name(event, environment.masters.memory());
        let (nodes, workers) = match rule.fault.target {
            Target::Node => (vec![event.hit.target], Vec::new()),
            Target::Worker => (Vec::new(), vec![event.hit.target]),
        };
        clock.sleep_until(self.began + event.from).await;
        let at_most = self.run.scenario.at_most();
        if !nodes.iter().all(|&node| environment.claim(node, at_most)) {
            *self.left_out.lock().await.entry(rule.kind.to_owned()).or_default() += 1;
            return;
        }
        let (cut_off, unable) = if rule.fault.cuts_off {
            ((0..self.run.scenario.nodes).collect(), Vec::new())
        } else {
            (nodes.clone(), workers.clone())
        };
        let cut_off = cut_off.into_iter();
        let from = stamp();
        // Names may repeat: a target has at most one fault at a time.
        let fault: quorlock_history::Fault = name.as_str().into();
        environment.recorder.record_at(
            from,
            What::FaultBegan {
                fault: fault.clone(),
                nodes: cut_off.map(|node| node_name(node).as_str().into()).collect(),
                clients: unable.iter().map(|&worker| worker_name(worker).as_str().into()).collect(),
            },
        );
        self.progress.fault();
        self.complain(&name, rule.fault.begin(environment, event.hit).await).await;
        clock.sleep_until(self.began + event.until).await;
        self.complain(&name, rule.fault.heal(environment, event.hit).await).await;
        clock.sleep_until(clock.now() + event.settled.saturating_sub(event.until)).await;
        environment.recorder.record(What::FaultHealed { fault });
        for &node in &nodes {
            environment.set_free(node);
        }
        let done = Done { kind: rule.kind.to_owned(), name, nodes, workers, from, until: stamp() };
        self.done.lock().await.push(done);
    }

    /// Records a failure to inject or heal a fault: without the fault, the run proves nothing.
    async fn complain(&self, name: &str, done: io::Result<()>) {
        if let Err(error) = done {
            self.complaints.lock().await.push(format!("{name}: {error}"));
        }
    }
}
