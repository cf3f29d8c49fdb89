//! Runs a plan: processes one event after the other, and runs the host concerned.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};
use std::time::Duration;

use quorlock::{Coordinator, RestartGuard};
use quorlock_testkit::{BuiltinServer, Memory, Misconduct, SeededEntropy, SeededRng};
use tokio::runtime::{self, Runtime};

use crate::client::{Watcher, Worker};
use crate::fault::Kind;
use crate::plan::{Options, Plan, Subject, Twist};
use crate::record::{Counts, Finding, Recorder, Rule};
use crate::remembering::Remembering;
use crate::world::clock::HostClock;
use crate::world::network::{End, Link, Network};
use crate::world::{Event, Host, Time, Trace, World, nanos};

mod nemesis;

use nemesis::Nemesis;

/// The outcome of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The first violation, if there was one.
    pub finding: Option<Finding>,
    /// The trace hash: equal for equal runs.
    pub trace: u64,
    /// How much time was simulated.
    pub simulated: Duration,
    /// What the clients did.
    pub counts: Counts,
    /// How many faults of each kind were injected.
    pub faults: BTreeMap<Kind, u64>,
    /// The number of entries of the schedule.
    pub entries: usize,
    /// The number of clients.
    pub clients: usize,
}

/// Runs one seed.
///
/// # Panics
///
/// If the simulation itself is broken, or no runtime can be created.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Outcome {
    play(Plan::of(seed, options), options.trace)
}

fn play(plan: Plan, trace: bool) -> Outcome {
    let mut sim = Sim::new(Arc::new(plan), trace);
    sim.run();
    sim.recorder.judge();
    Outcome {
        finding: sim.recorder.finding(),
        trace: sim.world.trace_hash(),
        simulated: Duration::from_nanos(sim.world.now()),
        counts: sim.recorder.counts(),
        faults: std::mem::take(&mut sim.nemesis.struck),
        entries: sim.plan.schedule.len(),
        clients: sim.plan.clients,
    }
}

/// A run.
pub(crate) struct Sim {
    pub(crate) world: Arc<World>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) clocks: Vec<HostClock>,
    /// The runtime of each host; `None` while it is down.
    runtimes: Vec<Option<Runtime>>,
    pub(crate) nemesis: Nemesis,
    /// Generates run ids and the seeds of processes.
    process_seeds: SeededRng,
}

/// How often nodes are searched for orphaned keys.
const LOOK: Duration = Duration::from_millis(500);

impl Sim {
    fn new(plan: Arc<Plan>, trace: bool) -> Sim {
        let hosts = plan.nodes + plan.clients;
        let rng = SeededRng::new(plan.seed, "links");
        let network = Network::new(links(&plan, &rng, hosts), nanos(plan.max_ttl));
        let world = World::new(SeededRng::new(plan.seed, "network"), network, hosts, Trace::new(trace));
        let clock = |host: Host| {
            let origin = Duration::from_secs(3600) + rng.between(Duration::ZERO, Duration::from_secs(1000));
            // Fencing tokens keep their order as long as calendars agree within half of `max_ttl`.
            let apart = plan.calendars_apart();
            let calendar = Duration::from_secs(1_800_000_000) + rng.between(Duration::ZERO, apart);
            HostClock::new(&world, host, plan.rates[host], origin, calendar)
        };
        let clocks = (0..hosts).map(clock).collect();
        let recorder = Recorder::new(&world, &plan);
        let nemesis = Nemesis::new(&plan);
        let process_seeds = SeededRng::new(plan.seed, "processes");
        let runtimes = (0..hosts).map(|_| None).collect();
        let mut sim = Sim { world, plan, recorder, clocks, runtimes, nemesis, process_seeds };
        for node in 0..sim.plan.nodes {
            let server = BuiltinServer::simulated(Arc::new(sim.clocks[node].clone()), sim.run_id());
            server.misconduct(sim.usual_misconduct());
            sim.recorder.servers.lock().push(server);
            sim.boot(node);
        }
        for client in 0..sim.plan.clients {
            sim.start_client(client);
        }
        for (index, entry) in sim.plan.schedule.iter().enumerate() {
            sim.world.schedule(nanos(entry.at), Event::Armed(index));
        }
        sim.world.schedule(nanos(sim.plan.span), Event::Peace);
        sim.world.schedule(nanos(LOOK), Event::Look);
        sim
    }

    fn run(&mut self) {
        let panics = Panics::watched();
        let deadline = nanos(self.plan.span + self.plan.max_ttl * 20 + Duration::from_secs(300));
        let workers = self.plan.clients * self.plan.workers;
        let mut done: Option<Time> = None;
        while self.recorder.finding().is_none() {
            let Some(event) = self.world.next() else { break };
            self.take(event);
            self.recorder.look_who_leads();
            for (moment, client) in self.recorder.moments() {
                self.aim(moment, client);
            }
            if panics.since() > 0 {
                self.recorder.find(Rule::Panic, "a task panicked".to_owned());
            }
            let now = self.world.now();
            if done.is_none() && self.recorder.content() >= workers {
                done = Some(now);
            }
            // Long enough for the last search for orphaned keys.
            if done.is_some_and(|done| now > done + nanos(Duration::from_secs(6))) {
                break;
            }
            if now > deadline {
                let content = self.recorder.content();
                let text = format!(
                    "only {content} of {workers} workers finished after {:?}",
                    Duration::from_nanos(now)
                );
                self.recorder.find(Rule::Liveness, text);
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Timer(timer) => {
                if let Some(host) = self.world.with(|inside, _| timer.fire(inside)) {
                    self.world.note("timer", [host as u64, 0, 0], || format!("of host {host}"));
                    self.go_on(host);
                }
            }
            Event::Arrival(number, way) => {
                if let Some(host) = self.world.with(|inside, now| inside.arrive(number, way, now)) {
                    self.world.note("arrival", [number as u64, way as u64, host as u64], || {
                        format!("on connection {number} at host {host}")
                    });
                    self.go_on(host);
                }
            }
            Event::Accept(number) => self.accept(number),
            Event::Armed(index) => self.arm(index),
            Event::Strike(index) => self.strike(index),
            Event::Half(index) => self.half(index),
            Event::Relief(index) => self.relieve(index),
            Event::Look => {
                let calm = |client: usize, node| {
                    let host = self.plan.nodes + client;
                    let felt = self.world.with(|inside, _| inside.network.felt(host, node));
                    self.nemesis.calm_since(client, node).map(|calm| calm.max(felt))
                };
                let life =
                    |client: usize| self.world.with(|inside, _| inside.hosts[self.plan.nodes + client].life);
                self.recorder.look(calm, life);
                self.world.schedule(self.world.now() + nanos(LOOK), Event::Look);
            }
            Event::Peace => {
                self.world.note("peace", [0; 3], String::new);
                self.end_all_faults();
                self.recorder.peace.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Runs a host until it is idle.
    pub(crate) fn go_on(&self, host: Host) {
        let runs = self.world.with(|inside, _| inside.hosts[host].up && inside.hosts[host].stopped == 0);
        if let (true, Some(runtime)) = (runs, &self.runtimes[host]) {
            // The runtime's time is paused: it advances, and ends this sleep, when the runtime is
            // idle. Nothing else uses it.
            #[expect(
                clippy::disallowed_methods,
                reason = "not a real sleep: it ends when the runtime is idle"
            )]
            let idle = async { tokio::time::sleep(Duration::from_millis(1)).await };
            runtime.block_on(idle);
        }
    }

    /// Starts an empty process on a host.
    fn boot(&mut self, host: Host) {
        let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        self.runtimes[host] = Some(runtime.expect("a current-thread runtime can be created"));
        self.world.with(|inside, _| {
            let state = &mut inside.hosts[host];
            state.life += 1;
            state.up = true;
        });
    }

    /// Ends the process of a host. Its connections close, unless the machine died with it.
    pub(crate) fn kill(&mut self, host: Host, silently: bool) {
        self.world.with(|inside, now| {
            let state = &mut inside.hosts[host];
            state.up = false;
            state.life += 1;
            inside.close_all(host, silently, now);
        });
        if let Some(client) = host.checked_sub(self.plan.nodes) {
            self.recorder.died(client);
        }
        self.runtimes[host] = None;
    }

    /// Restarts a node's process.
    pub(crate) fn start_node(&mut self, node: Host, memory: Memory) {
        let remembers = self.plan.twist == Twist::Remembering && self.plan.remembers(node);
        let keeps = remembers || self.plan.keeps_all_data();
        let memory = if keeps { Memory::Kept } else { memory };
        let run_id = self.run_id();
        let restarted = self.recorder.servers.lock()[node].restarted(run_id, memory);
        restarted.misconduct(self.usual_misconduct());
        self.recorder.servers.lock()[node] = restarted;
        if memory == Memory::Lost {
            self.recorder.forgot(node);
        }
        self.boot(node);
        self.world.with(|inside, now| inside.refuse_unheard(node, now));
    }

    pub(crate) fn start_client(&mut self, client: usize) {
        let host = self.plan.nodes + client;
        self.boot(host);
        let life = self.world.with(|inside, _| inside.hosts[host].life);
        let clock = self.clocks[host].clone();
        let coordinator = self.coordinator(host);
        for number in 0..self.plan.workers {
            let worker = Worker {
                world: self.world.clone(),
                plan: self.plan.clone(),
                recorder: self.recorder.clone(),
                coordinator: coordinator.clone(),
                clock: clock.clone(),
                rng: SeededRng::new(self.process_seeds.next_u64(), "worker"),
                host,
                client,
                life,
                is_first: client == 0 && number == 0,
            };
            self.spawn(host, worker.run());
        }
        if self.plan.subject == Subject::Elections {
            // Over connections of its own, independent of the candidates'.
            let coordinator = self.coordinator(host);
            for resource in 0..self.plan.resources {
                let watcher = Watcher {
                    world: self.world.clone(),
                    plan: self.plan.clone(),
                    recorder: self.recorder.clone(),
                    coordinator: coordinator.clone(),
                    clock: clock.clone(),
                    rng: SeededRng::new(self.process_seeds.next_u64(), "watcher"),
                    client,
                    resource,
                };
                self.spawn(host, watcher.run());
            }
        }
        self.go_on(host);
    }

    fn coordinator(&self, host: Host) -> Coordinator {
        let clock = self.clocks[host].clone();
        let dial =
            crate::world::network::SimDial { world: self.world.clone(), client: host, clock: clock.clone() };
        let guard = if self.plan.twist == Twist::GuardOff { RestartGuard::Off } else { RestartGuard::On };
        Coordinator::builder()
            .kind(Remembering)
            .nodes((0..self.plan.nodes).map(|node| {
                let scheme = if self.plan.remembers(node) { "remembering://" } else { "" };
                format!("{scheme}node-{node}")
            }))
            .ttl(self.plan.max_ttl)
            .max_ttl(self.plan.max_ttl)
            .drift(self.plan.drift)
            .restart_guard(guard)
            .clock(clock)
            .entropy(SeededEntropy::new(self.process_seeds.next_u64()))
            .dial(dial)
            .build()
            .expect("a plan is a valid deployment")
    }

    fn spawn(&self, host: Host, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtimes[host] {
            // Not joined: its end is recorded.
            drop(runtime.spawn(task));
        }
    }

    fn accept(&mut self, number: usize) {
        let node = self.world.with(|inside, _| inside.network.connections[number].node);
        let end = End::of_node(&self.world, number);
        if !self.world.with(|inside, _| inside.hosts[node].up) {
            // Dropped, and so closed.
            return;
        }
        let server = self.recorder.servers.lock()[node].clone();
        self.world.note("accept", [number as u64, node as u64, 0], || {
            format!("connection {number} at node {node}")
        });
        self.spawn(node, async move { drop(server.serve_stream(end).await) });
        self.go_on(node);
    }

    pub(crate) fn usual_misconduct(&self) -> Option<Misconduct> {
        let of_twists = [
            (Twist::ReleasesWithoutComparing, Misconduct::ReleasesForAnyClient),
            (Twist::KeepsReleasedKeys, Misconduct::IgnoresReleases),
            (Twist::OffersWithoutComparing, Misconduct::OffersForAnyClient),
            (Twist::OffersEndEarly, Misconduct::OffersExpireEarly),
        ];
        of_twists.into_iter().find(|(twist, _)| *twist == self.plan.twist).map(|(_, misconduct)| misconduct)
    }

    fn run_id(&self) -> String {
        format!(
            "{:016x}{:016x}{:08x}",
            self.process_seeds.next_u64(),
            self.process_seeds.next_u64(),
            self.process_seeds.next_u64() >> 32
        )
    }
}

fn links(plan: &Plan, rng: &SeededRng, hosts: usize) -> Vec<Vec<Link>> {
    let link = || {
        let latency = rng.number(50_000, nanos(plan.distance));
        // A node's timeout is a quarter of the TTL, 125 to 500 ms here; a response that is late
        // once or twice exceeds it.
        let late = if plan.twist == Twist::LatePackets { (31, 200_000_000) } else { (0, 0) };
        Link { latency, jitter: latency / 2, late, ..Link::default() }
    };
    (0..hosts).map(|_| (0..hosts).map(|_| link()).collect()).collect()
}

/// Counts the panics of this thread: the panic of a task affects no other task, and would go unnoticed.
struct Panics {
    before: u64,
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

impl Panics {
    fn watched() -> Panics {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                PANICS.set(PANICS.get() + 1);
                usual(info);
            }));
        });
        Panics { before: PANICS.get() }
    }

    fn since(&self) -> u64 {
        PANICS.get() - self.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Aim, Kind};
    use crate::plan::{Entry, Subject};

    /// All nodes have a high latency for a while, from two faults at a time.
    fn far_away(seed: u64, subject: Subject) -> Plan {
        let mut options = Options::default();
        (options.faults, options.subject, options.span) = (Vec::new(), subject, Duration::from_secs(25));
        let mut plan = Plan::of(seed, &options);
        plan.max_ttl = Duration::from_secs(20);
        for (number, size) in [14, 18].into_iter().enumerate() {
            plan.schedule.push(Entry {
                number,
                at: Duration::from_millis(4_000 + 50 * number as u64),
                aim: Aim::Nothing,
                after: Duration::ZERO,
                kind: Kind::Slow,
                client: 0,
                nodes: (0..plan.nodes).collect(),
                // Shorter than any TTL, so that keys outlive the fault.
                lasts: Duration::from_secs(4),
                size: Duration::from_secs(size),
                flavour: 0,
            });
        }
        plan
    }

    /// A request delayed for longer than keys last is taken back by the next request on the same
    /// connection, just as late: its key is not an orphan.
    #[test]
    fn a_key_whose_release_is_still_behind_it_is_no_orphan() {
        for seed in 0..12 {
            let finding = play(far_away(seed, Subject::Locks), false).finding;
            assert_eq!(finding, None, "seed {seed}");
        }
    }

    /// A middlebox that repeats a request into such a network delivers it just as late.
    #[test]
    fn a_request_that_is_repeated_into_a_slow_network_is_no_orphan_when_it_arrives() {
        for seed in 0..12 {
            let mut plan = far_away(seed, Subject::Locks);
            for index in 0..10 {
                let mut entry = plan.schedule[0].clone();
                (entry.number, entry.kind) = (index + 2, Kind::Replay);
                entry.at = Duration::from_millis(4_100 + 300 * index as u64);
                (entry.lasts, entry.size) = (Duration::from_millis(10), Duration::from_millis(10));
                entry.client = index % plan.clients;
                plan.schedule.push(entry);
            }
            assert_eq!(play(plan, false).finding, None, "seed {seed}");
        }
    }
}
