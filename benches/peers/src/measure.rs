//! Runs the subjects of one part, in turns.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Result, bail, ensure};
use quorlock_testkit::{Server, Servers};

use crate::distance::Distance;
use crate::driver::{Driver, cpu_seconds};
use crate::lineup::{BETWEEN_PROCESSES, FAR_AWAY, LOCKS, On, PROMISES, SYSTEMS, Subject};
use crate::order::{Order, Work};
use crate::processes;
use crate::record::{Record, Row, Window};
use crate::subjects::{MOST_TASKS, TTL};
use crate::systems::{self, System};
use crate::versions;

/// Parts take two to ten minutes each, so that other users of the machine can plan for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Uncontended locks.
    Cycles,
    /// One lock that all tasks contend for.
    Contention,
    /// One lock that many processes contend for.
    Processes,
    /// The same, with servers far away.
    Distance,
    /// Other lock systems.
    Systems,
    /// The cost of each guarantee of quorlock.
    Promises,
}

pub(crate) struct Plan {
    pub(crate) part: Part,
    /// The folder of the built drivers.
    pub(crate) built: PathBuf,
    /// The duration of one window.
    pub(crate) millis: u64,
    /// The number of windows.
    pub(crate) repeat: usize,
    /// Only subjects whose name contains one of these; all if empty.
    pub(crate) only: Vec<String>,
}

/// How long a contended lock is held.
pub(crate) const HOLD_MILLIS: u64 = 1;
pub(crate) const CONTENDERS: usize = 32;
pub(crate) const TASKS: [usize; 2] = [1, MOST_TASKS];

impl Plan {
    pub(crate) fn wants(&self, subject: &str) -> bool {
        self.only.iter().all(String::is_empty) || self.only.iter().any(|name| subject.contains(name.as_str()))
    }
}

impl Part {
    pub(crate) const ALL: [Part; 6] =
        [Part::Cycles, Part::Contention, Part::Processes, Part::Distance, Part::Systems, Part::Promises];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Cycles => "cycles",
            Part::Contention => "contention",
            Part::Processes => "processes",
            Part::Distance => "distance",
            Part::Systems => "systems",
            Part::Promises => "promises",
        }
    }

    pub(crate) fn subjects(self) -> &'static [Subject] {
        match self {
            Part::Cycles | Part::Contention => &LOCKS,
            Part::Processes => &BETWEEN_PROCESSES,
            Part::Distance => &FAR_AWAY,
            Part::Systems => &SYSTEMS,
            Part::Promises => &PROMISES,
        }
    }

    /// Long enough to show how evenly waiters are served.
    pub(crate) fn usual_millis(self) -> u64 {
        match self {
            Part::Cycles | Part::Systems | Part::Promises => 800,
            Part::Contention | Part::Processes => 1500,
            // Some fifty grants.
            Part::Distance => 6000,
        }
    }

    fn works(self) -> Vec<(Work, usize)> {
        let cycles = TASKS.map(|tasks| (Work::Cycles, tasks));
        match self {
            Part::Cycles => cycles.to_vec(),
            Part::Promises => cycles[..1].to_vec(),
            Part::Processes | Part::Distance => Vec::new(),
            Part::Contention => vec![(Work::Contend, CONTENDERS), (Work::Together, CONTENDERS)],
            Part::Systems => [cycles.as_slice(), &[(Work::Contend, CONTENDERS)]].concat(),
        }
    }
}

/// The servers of the subjects, started when the first subject needs them.
#[derive(Default)]
pub(crate) struct Stage {
    redis: BTreeMap<On, Servers>,
    systems: BTreeMap<On, System>,
    /// In front of the five servers, if they are far away.
    distance: Option<Distance>,
}

pub(crate) async fn run(plan: &Plan) -> Result<Record> {
    let mut stage = Stage::default();
    let mut record = Record {
        date: String::new(),
        commit: String::new(),
        servers: Vec::new(),
        versions: Vec::new(),
        skipped: Vec::new(),
        rows: Vec::new(),
        millis: plan.millis,
    };
    if matches!(plan.part, Part::Processes | Part::Distance) {
        processes::measure(plan, &mut stage, &mut record).await?;
        return Ok(stage.describes(record));
    }
    let mut troupe = Vec::new();
    for subject in plan.part.subjects().iter().filter(|subject| plan.wants(subject.name)) {
        match ready(plan, &mut stage, subject).await {
            Ok(driver) => {
                record.versions.push((subject.name.to_owned(), driver.version.clone()));
                troupe.push((subject, Some(driver)));
            }
            Err(why) => skip(&mut record, subject, &format!("{why:#}")),
        }
    }
    ensure!(!troupe.is_empty(), "no subject matches");
    for (work, tasks) in plan.part.works() {
        record.rows.extend(troupe.iter().map(|(subject, _)| Row {
            subject: subject.name.to_owned(),
            work,
            tasks,
            round_trip: 0,
            windows: Vec::new(),
        }));
        // In turns, so that a machine whose speed drifts favours no subject.
        for turn in 0..plan.repeat {
            for (place, (subject, driver)) in troupe.iter_mut().enumerate() {
                let Some(runs) = driver else { continue };
                // The leftovers of one subject must not affect the next. All names have the same
                // length.
                let name = format!("{}-{place:02}-{tasks}-{turn}", work_name(work));
                let order = Order {
                    work,
                    tasks,
                    millis: plan.millis,
                    hold_millis: HOLD_MILLIS,
                    ttl_millis: u64::try_from(TTL.as_millis())?,
                    name,
                };
                match window(&stage, subject.on, runs, &order).await {
                    Ok(window) => {
                        eprintln!("{}, {} by {tasks}: {:.0}/s", subject.name, work_name(work), window.rate());
                        let row = record.rows.iter_mut().rfind(|row| {
                            row.subject == subject.name && row.work == work && row.tasks == tasks
                        });
                        if let Some(row) = row {
                            row.windows.push(window);
                        }
                    }
                    Err(why) => {
                        let why = format!("failed at {} by {tasks}: {why:#}", work_name(work));
                        skip(&mut record, subject, &why);
                        *driver = None;
                    }
                }
            }
        }
    }
    Ok(stage.describes(record))
}

pub(crate) fn skip(record: &mut Record, subject: &Subject, why: &str) {
    println!("skipped: {}: {why}", subject.name);
    record.skipped.push((subject.name.to_owned(), why.to_owned()));
}

fn work_name(work: Work) -> &'static str {
    match work {
        Work::Cycles => "cycles",
        Work::Contend => "contention",
        Work::Together => "together",
    }
}

/// The servers and driver of a subject, started and warm.
async fn ready(plan: &Plan, stage: &mut Stage, subject: &Subject) -> Result<Driver> {
    let start = subject.start(&plan.built).map_err(anyhow::Error::msg)?;
    let addresses = stage.addresses(subject.on).await?;
    let mut driver = Driver::start(&start, &addresses).await?;
    let warm = Order {
        work: Work::Cycles,
        tasks: MOST_TASKS,
        millis: subject.warm_millis(),
        hold_millis: 0,
        ttl_millis: u64::try_from(TTL.as_millis())?,
        name: "warm".to_owned(),
    };
    let findings = driver.obey(&warm).await?;
    ensure!(findings.count > 0, "no lock acquired in {} ms, {} failures", warm.millis, findings.failures);
    Ok(driver)
}

async fn window(stage: &Stage, on: On, driver: &mut Driver, order: &Order) -> Result<Window> {
    let (commands, bytes) = (stage.commands(on).await?, stage.bytes(on).await?);
    let (servers, client) = (stage.cpu_seconds(on), driver.cpu_seconds());
    let findings = driver.obey(order).await?;
    if findings.all == 0 {
        bail!("no lock acquired, {} failures", findings.failures);
    }
    Ok(Window {
        client_cpu: driver.cpu_seconds() - client,
        server_cpu: stage.cpu_seconds(on) - servers,
        commands: stage.commands(on).await? - commands,
        bytes: stage.bytes(on).await? - bytes,
        findings,
    })
}

impl Stage {
    /// The record, with the machine and time of the measurement.
    fn describes(&self, record: Record) -> Record {
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Record { servers: self.describe(), date, commit: versions::commit(), ..record }
    }

    /// The Redis servers; empty for other systems.
    pub(crate) fn servers(&self, on: On) -> impl Iterator<Item = &Server> {
        self.redis.get(&Stage::key(on)).into_iter().flat_map(|servers| servers.iter())
    }

    pub(crate) async fn addresses(&mut self, on: On) -> Result<Vec<String>> {
        let system = match on {
            On::FiveServers | On::OneServer | On::FiveDurable => return self.redis(on).await,
            On::Postgres | On::ZooKeeper | On::Etcd if self.systems.contains_key(&on) => None,
            On::Postgres => Some(systems::postgres().await?),
            On::ZooKeeper => Some(systems::zookeeper().await?),
            On::Etcd => Some(systems::etcd().await?),
        };
        self.systems.extend(system.map(|system| (on, system)));
        Ok(self.systems.get(&on).map(|system| system.addresses.clone()).unwrap_or_default())
    }

    /// Moves the five servers away, so that each round trip takes so many milliseconds longer.
    pub(crate) async fn move_away(&mut self, round_trip: u64) -> Result<()> {
        self.distance = None;
        if round_trip > 0 {
            self.distance = Some(Distance::from(&self.addresses(On::FiveServers).await?, round_trip).await?);
        }
        Ok(())
    }

    async fn redis(&mut self, on: On) -> Result<Vec<String>> {
        let servers = match self.redis.entry(Stage::key(on)) {
            Entry::Occupied(servers) => servers.into_mut(),
            Entry::Vacant(place) => {
                // Not every client takes a password from an address.
                let setup = Servers::setup().without_password();
                let setup = if on == On::FiveDurable { setup.durable() } else { setup };
                let servers = setup.start(5).await?;
                ensure!(
                    servers.kind().is_real(),
                    "figures come from real servers only: install redis-server"
                );
                place.insert(servers)
            }
        };
        if let Some(distance) = self.distance.as_ref().filter(|_| on == On::FiveServers) {
            return Ok(distance.addresses.clone());
        }
        Ok(servers.urls().into_iter().take(if on == On::OneServer { 1 } else { 5 }).collect())
    }

    /// The single server is one of the five.
    fn key(on: On) -> On {
        if on == On::OneServer { On::FiveServers } else { on }
    }

    fn describe(&self) -> Vec<String> {
        let redis = self.redis.iter().map(|(on, servers)| {
            let how = if *on == On::FiveDurable { "appendfsync always" } else { "nothing on disk" };
            // The path of the program is of no interest to readers.
            let kind = servers.kind().to_string();
            format!("{} × {}, {how}", servers.len(), kind.split(" (").next().unwrap_or(&kind))
        });
        redis.chain(self.systems.values().map(|system| system.version.clone())).collect()
    }

    /// How many commands the servers have run, including those called by scripts.
    pub(crate) async fn commands(&self, on: On) -> Result<u64> {
        let mut all = 0;
        for server in self.servers(on) {
            let stats = server.command(&["INFO", "commandstats"]).await?.to_string();
            let commands = stats.lines().filter(|line| !line.starts_with("cmdstat_info:"));
            let calls = commands
                .filter_map(|line| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok());
            all += calls.sum::<u64>();
        }
        Ok(all)
    }

    /// How many bytes the servers have received and sent, including those of this query.
    pub(crate) async fn bytes(&self, on: On) -> Result<u64> {
        let mut all = 0;
        for server in self.servers(on) {
            let stats = server.command(&["INFO", "stats"]).await?.to_string();
            let of = |name: &str| {
                stats.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
            };
            all += of("total_net_input_bytes:").unwrap_or(0) + of("total_net_output_bytes:").unwrap_or(0);
        }
        Ok(all)
    }

    pub(crate) fn cpu_seconds(&self, on: On) -> f64 {
        self.servers(on).filter_map(|server| server.pid().map(cpu_seconds)).sum()
    }
}
