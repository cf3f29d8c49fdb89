//! Injects the scheduled faults into hosts and links once they are triggered.

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock_testkit::{Memory, Misconduct};

use super::Sim;
use crate::fault::{Aim, Kind};
use crate::name_of;
use crate::plan::{Entry, Plan};
use crate::record::Moment;
use crate::world::network::{InFlight, TO_CLIENT, TO_NODE};
use crate::world::{Event, Host, Time, nanos};

/// The faults injected so far, and those in effect.
pub(crate) struct Nemesis {
    /// How many faults of each kind were injected.
    pub(crate) struck: BTreeMap<Kind, u64>,
    /// Entries that wait for their trigger.
    armed: Vec<usize>,
    /// The client that triggered each entry.
    subjects: BTreeMap<usize, usize>,
    /// Faults in effect, with the hosts that they hit.
    active: BTreeMap<usize, Hit>,
    /// The faults between each client and each node.
    counters: Vec<Vec<FaultCounter>>,
    over: bool,
}

struct Hit {
    client: usize,
    nodes: Vec<usize>,
}

#[derive(Clone, Copy, Default)]
struct FaultCounter {
    /// How many faults are in effect.
    faults: u32,
    /// Since when there has been one.
    since: Time,
    /// Until when they may still have an effect.
    until: Time,
}

/// After this long without an acknowledgement the client's kernel closes a connection.
const USER_TIMEOUT: Duration = Duration::from_millis(2_200);

impl Nemesis {
    pub(crate) fn new(plan: &Plan) -> Nemesis {
        Nemesis {
            struck: BTreeMap::new(),
            armed: Vec::new(),
            subjects: BTreeMap::new(),
            active: BTreeMap::new(),
            counters: vec![vec![FaultCounter::default(); plan.nodes]; plan.clients],
            over: false,
        }
    }

    /// Since when there has been no fault between a client and a node; `None` if there is one.
    pub(crate) fn calm_since(&self, client: usize, node: usize) -> Option<Time> {
        let FaultCounter { faults, until, .. } = self.counters[client][node];
        (faults == 0).then_some(until)
    }
}

impl Sim {
    pub(crate) fn arm(&mut self, index: usize) {
        if self.plan.schedule[index].aim == Aim::Nothing {
            self.strike(index);
        } else if !self.nemesis.over {
            self.nemesis.armed.push(index);
        }
    }

    /// Reports an event that may trigger entries.
    pub(crate) fn aim(&mut self, moment: Moment, client: usize) {
        let wanted = match moment {
            Moment::Asking => Aim::Asking,
            Moment::Granted => Aim::Granted,
            Moment::Ending => Aim::Ending,
        };
        let schedule = &self.plan.schedule;
        let found: Vec<_> =
            self.nemesis.armed.extract_if(.., |index| schedule[*index].aim == wanted).collect();
        for index in found {
            self.nemesis.subjects.insert(index, client);
            let at = self.world.now() + nanos(self.plan.schedule[index].after);
            self.world.schedule(at, Event::Strike(index));
        }
    }

    pub(crate) fn strike(&mut self, index: usize) {
        if self.nemesis.over {
            return;
        }
        let entry = self.plan.schedule[index].clone();
        let client = self.nemesis.subjects.get(&index).copied().unwrap_or(entry.client);
        // A shrunk run may have fewer clients.
        if client >= self.plan.clients {
            return;
        }
        let nodes = self.hit(&entry, client);
        if nodes.is_empty() {
            return;
        }
        *self.nemesis.struck.entry(entry.kind).or_default() += 1;
        self.world.note("strike", [index as u64, client as u64, nodes.len() as u64], || {
            let Entry { kind, lasts, size, flavour, number, .. } = &entry;
            format!("{number}: {} client {client} nodes {nodes:?} for {lasts:?}, size {size:?}, flavour {flavour}", name_of(kind))
        });
        self.count_fault(entry.kind, client, &nodes, |counter, now| {
            if counter.faults == 0 {
                counter.since = now;
            }
            counter.faults += 1;
        });
        let now = self.world.now();
        self.world.schedule(now + nanos(entry.lasts), Event::Relief(index));
        if entry.lasts > USER_TIMEOUT {
            self.world.schedule(now + nanos(USER_TIMEOUT), Event::Half(index));
        }
        self.nemesis.active.insert(index, Hit { client, nodes: nodes.clone() });
        self.begin(&entry, client, &nodes);
    }

    /// Returns the nodes that a fault can hit: not servers or clients that are already down.
    fn hit(&self, entry: &Entry, client: usize) -> Vec<usize> {
        let up = |host: Host| self.world.with(|inside, _| inside.hosts[host].up);
        match entry.kind {
            Kind::Restart | Kind::Amnesia | Kind::Fail | Kind::Flush | Kind::Delete => {
                entry.nodes.iter().copied().filter(|node| up(*node)).collect()
            }
            Kind::Crash | Kind::Suspend if !up(self.host(client)) => Vec::new(),
            Kind::Suspend if self.is_suspended(client) => Vec::new(),
            Kind::Crash | Kind::Suspend | Kind::Stop => (0..self.plan.nodes).collect(),
            Kind::Hold
            | Kind::Cut
            | Kind::Loss
            | Kind::Slow
            | Kind::Spike
            | Kind::Reset
            | Kind::Connect
            | Kind::Pause
            | Kind::Replay
            | Kind::Step => entry.nodes.clone(),
        }
    }

    fn begin(&mut self, entry: &Entry, client: usize, nodes: &[usize]) {
        let host = self.host(client);
        let extra = nanos(entry.size);
        match entry.kind {
            Kind::Hold | Kind::Loss => self.each_way(entry, host, nodes, |link| link.held += 1),
            Kind::Cut => {
                self.reset(host, nodes, InFlight::Lost);
                self.refuse(entry, host, nodes, 1);
            }
            Kind::Connect => {
                self.refuse(entry, host, nodes, 1);
                self.reset(host, nodes, in_flight(entry));
            }
            Kind::Slow => self.all_links(nodes, |link| link.extra += extra),
            Kind::Spike => self.links_of(host, nodes, |link| link.extra += extra),
            Kind::Reset => self.reset(host, nodes, in_flight(entry)),
            Kind::Pause => nodes.iter().for_each(|node| self.stop(*node)),
            Kind::Restart | Kind::Amnesia => {
                for node in nodes {
                    self.kill(*node, entry.flavour.is_multiple_of(4));
                }
            }
            Kind::Fail => {
                for node in nodes {
                    self.recorder.servers.lock()[*node].misconduct(Some(failure(entry.flavour)));
                }
            }
            Kind::Suspend => {
                self.world.with(|inside, now| inside.hosts[host].frozen_since = Some(now));
                self.stop(host);
            }
            Kind::Stop => self.stop(host),
            Kind::Crash => self.kill(host, entry.flavour.is_multiple_of(2)),
            Kind::Replay => {
                self.recorder.repeated();
                self.world.with(|inside, now| {
                    for node in nodes {
                        for number in inside.between(host, *node) {
                            inside.replay(number, extra, now);
                        }
                    }
                });
            }
            Kind::Step => nodes.iter().for_each(|node| self.clocks[*node].step(entry.size)),
            Kind::Flush => nodes.iter().for_each(|node| self.recorder.servers.lock()[*node].flush()),
            Kind::Delete => nodes.iter().for_each(|node| self.recorder.servers.lock()[*node].delete_all()),
        }
    }

    /// The client's kernel closes connections that receive nothing. The server is not notified.
    pub(crate) fn half(&mut self, index: usize) {
        let entry = self.plan.schedule[index].clone();
        if entry.kind == Kind::Hold
            && entry.flavour & 4 == 0
            && let Some(Hit { client, nodes }) = self.nemesis.active.get(&index)
        {
            let (host, nodes) = (self.host(*client), nodes.clone());
            self.reset(host, &nodes, in_flight(&entry));
        }
    }

    pub(crate) fn relieve(&mut self, index: usize) {
        let Some(Hit { client, nodes }) = self.nemesis.active.remove(&index) else { return };
        let entry = self.plan.schedule[index].clone();
        self.world
            .note("relief", [index as u64, 0, 0], || format!("{}: {}", entry.number, name_of(&entry.kind)));
        let host = self.host(client);
        let extra = nanos(entry.size);
        match entry.kind {
            Kind::Hold => self.each_way(&entry, host, &nodes, |link| link.held -= 1),
            Kind::Loss => {
                self.reset(host, &nodes, InFlight::Lost);
                self.each_way(&entry, host, &nodes, |link| link.held -= 1);
            }
            Kind::Cut | Kind::Connect => self.refuse(&entry, host, &nodes, -1),
            Kind::Slow => self.all_links(&nodes, |link| link.extra -= extra),
            Kind::Spike => self.links_of(host, &nodes, |link| link.extra -= extra),
            Kind::Pause => nodes.iter().for_each(|node| self.unstop(*node)),
            Kind::Restart => nodes.iter().for_each(|node| self.start_node(*node, Memory::Kept)),
            Kind::Amnesia => nodes.iter().for_each(|node| self.start_node(*node, Memory::Lost)),
            Kind::Fail => {
                for node in &nodes {
                    self.recorder.servers.lock()[*node].misconduct(self.usual_misconduct());
                }
            }
            Kind::Suspend => {
                self.world.with(|inside, now| {
                    let state = &mut inside.hosts[host];
                    state.frozen += now - state.frozen_since.take().unwrap_or(now);
                    for timer in std::mem::take(&mut state.overdue) {
                        inside.schedule(now, Event::Timer(timer));
                    }
                });
                self.unstop(host);
            }
            Kind::Stop => self.unstop(host),
            Kind::Crash => self.start_client(client),
            Kind::Reset | Kind::Replay | Kind::Step | Kind::Flush | Kind::Delete => {}
        }
        // Effects that last longer, and what no client can clean up.
        let forever = nanos(self.plan.max_ttl + self.plan.max_ttl / 10);
        let stays = entry.kind == Kind::Fail && failure(entry.flavour) == failure(NO_RIGHTS);
        // The network knows when late requests arrive.
        let later = if stays { forever } else { 0 };
        // Clean-up continues for one TTL. A server stopped for longer than the shortest TTL may
        // later execute a request that no client takes back: a known limitation.
        let shortest = nanos(self.plan.max_ttl / 4);
        self.count_fault(entry.kind, client, &nodes, |counter, now| {
            counter.faults -= 1;
            let left = if now > counter.since + shortest { later.max(forever) } else { later };
            counter.until = counter.until.max(now + left);
        });
    }

    pub(crate) fn end_all_faults(&mut self) {
        self.nemesis.over = true;
        self.nemesis.armed.clear();
        let active: Vec<usize> = self.nemesis.active.keys().copied().collect();
        for index in active {
            self.relieve(index);
        }
    }

    fn host(&self, client: usize) -> Host {
        self.plan.nodes + client
    }

    fn is_suspended(&self, client: usize) -> bool {
        self.world.with(|inside, _| inside.hosts[self.host(client)].frozen_since.is_some())
    }

    fn count_fault(
        &mut self,
        kind: Kind,
        client: usize,
        nodes: &[usize],
        count: impl Fn(&mut FaultCounter, Time),
    ) {
        let now = self.world.now();
        let one_client = !matches!(
            kind,
            Kind::Slow
                | Kind::Pause
                | Kind::Restart
                | Kind::Amnesia
                | Kind::Fail
                | Kind::Step
                | Kind::Flush
                | Kind::Delete
        );
        for (number, row) in self.nemesis.counters.iter_mut().enumerate() {
            if number == client || !one_client {
                for node in nodes {
                    count(&mut row[*node], now);
                }
            }
        }
    }

    fn stop(&self, host: Host) {
        self.world.with(|inside, now| {
            inside.hosts[host].stopped += 1;
            inside.hosts[host].stopped_last = now;
        });
    }

    fn unstop(&self, host: Host) {
        self.world.with(|inside, now| {
            inside.hosts[host].stopped -= 1;
            inside.hosts[host].stopped_last = now;
        });
        self.go_on(host);
    }

    fn reset(&self, client: Host, nodes: &[usize], requests: InFlight) {
        self.world.with(|inside, now| {
            for node in nodes {
                for number in inside.between(client, *node) {
                    inside.reset(number, requests, now);
                }
            }
        });
        self.go_on(client);
        for node in nodes {
            self.go_on(*node);
        }
    }

    fn refuse(&self, entry: &Entry, client: Host, nodes: &[usize], by: i32) {
        self.links_of(client, nodes, |link| {
            let faults = if entry.flavour & 8 == 0 { &mut link.refused } else { &mut link.hung };
            *faults = faults.saturating_add_signed(by);
        });
    }

    /// Changes the links between a client and nodes, in the entry's direction or both.
    fn each_way(
        &self,
        entry: &Entry,
        client: Host,
        nodes: &[usize],
        change: impl Fn(&mut crate::world::network::Link),
    ) {
        let ways: &[usize] = match entry.flavour % 3 {
            0 => &[TO_NODE, TO_CLIENT],
            1 => &[TO_NODE],
            _ => &[TO_CLIENT],
        };
        self.world.with(|inside, now| {
            for node in nodes {
                for way in ways {
                    let (from, to) = if *way == TO_NODE { (client, *node) } else { (*node, client) };
                    change(inside.network.link(from, to));
                    inside.go_on(from, to, now);
                }
            }
        });
    }

    fn links_of(&self, client: Host, nodes: &[usize], change: impl Fn(&mut crate::world::network::Link)) {
        self.world.with(|inside, _| {
            for node in nodes {
                change(inside.network.link(client, *node));
                change(inside.network.link(*node, client));
            }
        });
    }

    fn all_links(&self, nodes: &[usize], change: impl Fn(&mut crate::world::network::Link)) {
        for client in 0..self.plan.clients {
            self.links_of(self.host(client), nodes, &change);
        }
    }
}

/// Returns what happens to requests in flight.
fn in_flight(entry: &Entry) -> InFlight {
    if entry.flavour & 1 == 0 { InFlight::Late(nanos(entry.size)) } else { InFlight::Lost }
}

/// The flavour that needs an operator.
const NO_RIGHTS: usize = 4;

fn failure(flavour: usize) -> Misconduct {
    let refuses = |error: &str| Misconduct::Refuses(error.to_owned());
    match flavour % 5 {
        0 => refuses("LOADING Redis is loading the dataset in memory"),
        1 => Misconduct::RefusesKeys("OOM command not allowed when used memory > 'maxmemory'.".to_owned()),
        2 => refuses("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."),
        3 => Misconduct::RefusesKeys(
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.".to_owned(),
        ),
        _ => refuses("NOPERM User default has no permissions to run the 'eval' command"),
    }
}
