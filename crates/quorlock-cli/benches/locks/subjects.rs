//! The subjects: nodes with their faults and settings, or a lock by hand.

use std::any::Any;
use std::io;
use std::time::Duration;

use quorlock::{Coordinator, Fencing, RestartGuard};
use quorlock_testkit::{Database, Engine, EtcdPrograms, Proxy, Server, Servers, Way, ZooKeeperPrograms};

use crate::by_hand::Hand;

pub(crate) const TTL: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    Redis,
    Redisson,
    Postgres,
    Mariadb,
    Sqlite,
    Etcd,
    ZooKeeper,
}

/// A row of the tables.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) family: Family,
    nodes: usize,
    fencing: Fencing,
    pub(crate) by_hand: bool,
    /// Nodes that are killed, stopped, and that answer 20 ms late.
    sick: [usize; 3],
    /// What each direction of the network adds to every node.
    away: Duration,
}

const fn subject(name: &'static str, family: Family, nodes: usize) -> Subject {
    let (fencing, by_hand, sick) = (Fencing::On, false, [0; 3]);
    Subject { name, family, nodes, fencing, by_hand, sick, away: Duration::ZERO }
}

const fn sick(name: &'static str, sick: [usize; 3]) -> Subject {
    Subject { sick, ..subject(name, Family::Redis, 5) }
}

const fn plain(name: &'static str, family: Family, nodes: usize) -> Subject {
    Subject { fencing: Fencing::Off, ..subject(name, family, nodes) }
}

const fn by_hand(name: &'static str, family: Family, nodes: usize) -> Subject {
    Subject { by_hand: true, ..subject(name, family, nodes) }
}

const NEAR: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_millis(50);

pub(crate) static SUBJECTS: [Subject; 24] = [
    subject("five Redis", Family::Redis, 5),
    plain("five Redis, no fencing", Family::Redis, 5),
    by_hand("five Redis, by hand", Family::Redis, 5),
    Subject { away: NEAR, ..subject("five Redis, 1 ms away", Family::Redis, 5) },
    Subject { away: NEAR, ..plain("five Redis, 1 ms away, no fencing", Family::Redis, 5) },
    Subject { away: FAR, ..subject("five Redis, 100 ms away", Family::Redis, 5) },
    sick("five Redis, one dead", [1, 0, 0]),
    sick("five Redis, two dead", [2, 0, 0]),
    sick("five Redis, one hung", [0, 1, 0]),
    sick("five Redis, two hung", [0, 2, 0]),
    sick("five Redis, one slow", [0, 0, 1]),
    sick("five Redis, two slow", [0, 0, 2]),
    Subject { sick: [0, 0, 2], ..by_hand("five Redis, two slow, by hand", Family::Redis, 5) },
    subject("one Redis, Redisson's layout", Family::Redisson, 1),
    by_hand("one Redis, Redisson's layout, by hand", Family::Redisson, 1),
    subject("one PostgreSQL", Family::Postgres, 1),
    by_hand("one PostgreSQL, by hand", Family::Postgres, 1),
    subject("three PostgreSQL", Family::Postgres, 3),
    subject("one MariaDB", Family::Mariadb, 1),
    plain("one MariaDB, no fencing", Family::Mariadb, 1),
    by_hand("one MariaDB, by hand", Family::Mariadb, 1),
    subject("SQLite", Family::Sqlite, 1),
    subject("three etcd", Family::Etcd, 3),
    subject("three ZooKeeper", Family::ZooKeeper, 3),
];

/// A subject, as scenarios use it.
pub(crate) struct Running {
    pub(crate) urls: Vec<String>,
    /// Two processes would have one each.
    pub(crate) clients: [Coordinator; 2],
    pub(crate) fencing: Fencing,
    hand: Option<Hand>,
}

impl Running {
    /// Acquires and releases once.
    pub(crate) async fn cycle(&self, name: &str) {
        if let Some(hand) = &self.hand {
            hand.cycle(name).await;
        } else {
            let lock = self.clients[0].lock(name).fencing(self.fencing);
            lock.acquire().await.unwrap().release().await.unwrap();
        }
    }
}

/// Returns a client of these nodes, of any kind.
pub(crate) fn client(nodes: &[String]) -> Coordinator {
    let builder = Coordinator::builder().kinds(quorlock_kinds::all()).nodes(nodes).ttl(TTL).max_ttl(TTL);
    builder.restart_guard(RestartGuard::Off).build().unwrap()
}

/// Returns a client that offers locks to the next: without the restart guard there are no offers. Servers that have
/// just been started vote once they are older than its TTL.
pub(crate) fn guarded_client(nodes: &[String]) -> Coordinator {
    let ttl = Duration::from_secs(5);
    Coordinator::builder().nodes(nodes).ttl(ttl).max_ttl(ttl).build().unwrap()
}

/// The addresses of nodes, and their servers, which end with them.
type Started = (Vec<String>, Box<dyn Any>);

impl Subject {
    /// Whether it is as fast as most scenarios need it to be.
    pub(crate) fn is_near(&self) -> bool {
        self.away < FAR
    }

    /// Whether it is a lock of ours on five Redis that are well.
    pub(crate) fn is_ours_on_five(&self) -> bool {
        let is_plain = self.by_hand || self.fencing == Fencing::Off;
        self.name.starts_with("five Redis") && !is_plain && self.sick == [0; 3]
    }

    pub(crate) async fn start(&self) -> io::Result<(Running, Box<dyn Any>)> {
        let (urls, servers): Started = match self.family {
            Family::Redis => self.redis().await?,
            Family::Redisson => {
                let servers = Servers::setup().without_password().start(self.nodes).await?;
                let layout = if self.by_hand { "" } else { "/?layout=redisson" };
                (servers.urls().iter().map(|url| format!("{url}{layout}")).collect(), Box::new(servers))
            }
            Family::Postgres => {
                databases(Engine::postgres()?.settings(&["max_connections=300"]), self.nodes).await?
            }
            Family::Mariadb => databases(Engine::mariadb()?, self.nodes).await?,
            Family::Sqlite => {
                let folder = tempfile::tempdir()?;
                (vec![format!("sqlite://{}/locks.db", folder.path().display())], Box::new(folder))
            }
            Family::Etcd => {
                let cluster = EtcdPrograms::find()?.start(self.nodes).await?;
                (vec![cluster.url()], Box::new(cluster))
            }
            Family::ZooKeeper => {
                let cluster = ZooKeeperPrograms::find()?.start(self.nodes).await?;
                (vec![format!("{}/bench", cluster.url())], Box::new(cluster))
            }
        };
        let hand = if self.by_hand { Some(Hand::connect(self.family, &urls).await) } else { None };
        let clients = [client(&urls), client(&urls)];
        Ok((Running { urls, clients, fencing: self.fencing, hand }, servers))
    }

    async fn redis(&self) -> io::Result<Started> {
        // Those who lock by hand know no password.
        let servers = Servers::setup().without_password().start(self.nodes).await?;
        assert!(servers.kind().is_real(), "figures come from real servers only: install redis-server");
        let [dead, hung, slow] = self.sick;
        let (mut urls, mut proxies) = (servers.urls(), Vec::new());
        for (number, (url, server)) in urls.iter_mut().zip(servers.iter()).enumerate() {
            let late = if number < slow { Duration::from_millis(20) } else { self.away };
            if !late.is_zero() {
                let proxy = Proxy::before(server).await?;
                proxy.delay(if number < slow { Way::ToClient } else { Way::Both }, late);
                *url = proxy.url();
                proxies.push(proxy);
            }
        }
        // Its clients connect before they fall ill, and notice.
        servers.iter().take(dead).for_each(Server::kill);
        for server in servers.iter().take(hung) {
            server.freeze()?;
        }
        Ok((urls, Box::new((servers, proxies))))
    }
}

async fn databases(engine: Engine, count: usize) -> io::Result<Started> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(engine.start().await?);
    }
    Ok((all.iter().map(Database::url).collect(), Box::new(all)))
}
