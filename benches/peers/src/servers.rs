//! The servers of the subjects, started when the first subject needs them.

use std::any::Any;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quorlock_testkit::{Engine, EtcdPrograms, Proxy, Servers, Way, ZooKeeperPrograms};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::driver::cpu_seconds;
use crate::figures::Used;
use crate::scenarios::{MOST_TASKS, On};
use crate::subjects::postgres;

#[derive(Default)]
pub(crate) struct Stage {
    started: BTreeMap<On, Started>,
    /// The proxies in front of the five servers, if they are far away, each a process, so that none waits for another;
    /// and their addresses. They are killed when dropped.
    proxies: Vec<(Child, String)>,
}

/// Servers, which end with it.
struct Started {
    addresses: Vec<String>,
    /// And the settings.
    version: String,
    /// Those of Redis.
    redis: Option<Servers>,
    _others: Box<dyn Any>,
}

impl Stage {
    pub(crate) async fn addresses(&mut self, on: On) -> Result<Vec<String>> {
        if on == On::Five && !self.proxies.is_empty() {
            return Ok(self.proxies.iter().map(|(_, address)| address.clone()).collect());
        }
        let started = match self.started.entry(servers_of(on)) {
            Entry::Occupied(started) => started.into_mut(),
            Entry::Vacant(place) => place.insert(start(on).await?),
        };
        let most = if on == On::One { 1 } else { usize::MAX };
        Ok(started.addresses.iter().take(most).cloned().collect())
    }

    /// Moves the five servers away, so that each round trip takes this number of milliseconds longer.
    pub(crate) async fn move_away(&mut self, round_trip: u64) -> Result<()> {
        self.proxies.clear();
        let servers = if round_trip > 0 { self.addresses(On::Five).await? } else { Vec::new() };
        for server in servers {
            let address = server.strip_prefix("redis://").context("the address of a server")?;
            let mut proxy = Command::new(std::env::current_exe()?)
                .args(["delay", address, &round_trip.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let mut lines = BufReader::new(proxy.stdout.take().context("no output")?).lines();
            let address = lines.next_line().await?.context("a proxy has ended")?;
            self.proxies.push((proxy, address));
        }
        Ok(())
    }

    /// Their versions and settings.
    pub(crate) fn describe(&self) -> Vec<String> {
        self.started.values().map(|started| started.version.clone()).collect()
    }

    /// What the Redis servers have used so far: commands include those called by scripts, bytes those of this query.
    pub(crate) async fn used(&self, on: On) -> Result<Used> {
        let mut used = Used::default();
        let servers = self.started.get(&servers_of(on)).and_then(|started| started.redis.as_ref());
        for server in servers.into_iter().flat_map(|servers| servers.iter()) {
            let commands = server.command(&["INFO", "commandstats"]).await?.to_string();
            let calls = commands.lines().filter(|line| !line.starts_with("cmdstat_info:"));
            let calls = calls.filter_map(|line| line.split_once(":calls=")?.1.split(',').next());
            used.commands += calls.filter_map(|calls| calls.parse::<f64>().ok()).sum::<f64>();
            let stats = server.command(&["INFO", "stats"]).await?.to_string();
            for name in ["total_net_input_bytes:", "total_net_output_bytes:"] {
                let bytes =
                    stats.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
                used.bytes += bytes.unwrap_or(0.0);
            }
            used.servers += server.pid().map_or(0.0, cpu_seconds);
        }
        Ok(used)
    }
}

/// The single server is one of the five.
fn servers_of(on: On) -> On {
    if on == On::One { On::Five } else { on }
}

/// Starts servers with their defaults; of a cluster as many as it is usually run with.
async fn start(on: On) -> Result<Started> {
    let of = |addresses, version, others| Started { addresses, version, redis: None, _others: others };
    Ok(match on {
        On::Five | On::One | On::Durable => {
            // Not every client takes a password from an address.
            let setup = Servers::setup().without_password();
            let setup = if on == On::Durable { setup.durable() } else { setup };
            let servers = setup.start(5).await?;
            ensure!(servers.kind().is_real(), "figures come from real servers only: install redis-server");
            let how = if on == On::Durable { "appendfsync always" } else { "nothing on disk" };
            // The path of the program is of no interest to readers.
            let kind = servers.kind().to_string();
            let version = format!("5 × {}, {how}", kind.split(" (").next().unwrap_or(&kind));
            let urls = servers.urls();
            Started { redis: Some(servers), ..of(urls, version, Box::new(())) }
        }
        On::Postgres => {
            let connections = format!("max_connections={}", 3 * MOST_TASKS);
            // The test kit gives its servers less memory than PostgreSQL does by default.
            let settings = [connections.as_str(), "shared_buffers=128MB"];
            let database = Engine::postgres()?.settings(&settings).start().await?;
            let version = postgres::version(&database.url()).await?;
            let version = format!("1 × PostgreSQL {version}, defaults (fsync on)");
            of(vec![database.url()], version, Box::new(database))
        }
        On::ZooKeeper => {
            let (programs, settings) =
                (ZooKeeperPrograms::find()?, ["tickTime=2000", "initLimit=10", "syncLimit=5"]);
            let cluster = programs.start_with(3, &settings).await?;
            let version = format!("3 × ZooKeeper {}, defaults (forceSync on)", programs.version());
            // The client takes all of them as one word.
            of(vec![cluster.endpoints()], version, Box::new(cluster))
        }
        On::Etcd => {
            let programs = EtcdPrograms::find()?;
            let cluster = programs.start(3).await?;
            let addresses = cluster.endpoints().split(',').map(str::to_owned).collect();
            of(addresses, format!("3 × {programs}, defaults (fsync on)"), Box::new(cluster))
        }
    })
}

/// Turns this process into a proxy, until its input ends.
pub(crate) async fn delay(upstream: &str, round_trip: u64) -> Result<()> {
    let proxy = Proxy::start(upstream.parse()?).await?;
    proxy.delay(Way::Both, Duration::from_millis(round_trip) / 2);
    println!("{}", proxy.url());
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}
