//! Masters that are the members of one ensemble of ZooKeeper, which is the only node of the workers.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::runtime::Mutex;
use quorlock_history::What;
use quorlock_servers::{ZooKeeperCluster, ZooKeeperPrograms};

use super::databases::in_time;
use super::members::{counter, holder, hosts, members_are_processes, refuse};
use super::{Masters, Memory, Need};
use reader::Reader;

mod reader;

/// The node below which the locks are.
const BASE: &str = "/chaos";
/// For how long the locks of a worker that dies stay, in seconds: as long as the TTL of the scenarios, which may not be shorter.
const SESSION: u64 = 6;
/// A member that hears nothing of its leader looks for another one after two seconds.
const SETTINGS: [&str; 2] = ["syncLimit=10", "initLimit=25"];

pub(crate) struct ZooKeeper {
    programs: ZooKeeperPrograms,
    cluster: ZooKeeperCluster,
    count: usize,
    cut_off: Mutex<BTreeSet<usize>>,
}

impl ZooKeeper {
    /// Starts an ensemble of this many members.
    pub(crate) async fn start(programs: ZooKeeperPrograms, count: usize) -> io::Result<ZooKeeper> {
        let cluster = programs.start_with(count, &SETTINGS).await?;
        Ok(ZooKeeper { cluster, programs, count, cut_off: Mutex::default() })
    }
}

/// Returns the number of a place, which ZooKeeper has appended to its name.
fn sequence(name: &str) -> Option<u64> {
    name.rsplit_once("-lock-")?.1.parse().ok()
}

/// Returns the names of the locks; none has a slash in it.
async fn locks(reader: &mut Reader) -> io::Result<Vec<String>> {
    let mut names = reader.children(BASE).await?;
    names.retain(|name| name != "quorlock");
    Ok(names)
}

impl Masters for ZooKeeper {
    fn what(&self) -> String {
        format!("an ensemble of {} × {}", self.count, self.programs)
    }

    members_are_processes!();

    fn urls(&self, addresses: &[SocketAddr]) -> Vec<String> {
        vec![format!("zookeeper://{}{BASE}?session={SESSION}s", hosts(addresses))]
    }

    fn inspect<'a>(&'a self, number: usize, name: &'a str) -> BoxFuture<'a, io::Result<Vec<What>>> {
        Box::pin(in_time(async move {
            let (mut reader, mut seen) = (Reader::connect(self.address(number)).await?, Vec::new());
            let counters = format!("{BASE}/quorlock/fence");
            for fence in reader.children(&counters).await? {
                let value = reader.data(&format!("{counters}/{fence}")).await?;
                seen.extend(value.and_then(|value| counter(name, &fence, &value)));
            }
            for lock in locks(&mut reader).await? {
                let dir = format!("{BASE}/{lock}");
                let places = reader.children(&dir).await?;
                let numbered = places.iter().filter_map(|place| Some((sequence(place)?, place)));
                let Some((_, first)) = numbered.min() else { continue };
                // It lives as long as the session of its worker, whose time begins anew all the time.
                let left = Duration::from_secs(SESSION);
                let place = reader.data(&format!("{dir}/{first}")).await?;
                seen.extend(place.and_then(|place| holder(name, &lock, &place, left)));
            }
            reader.close().await?;
            Ok(seen)
        }))
    }

    fn left_behind(&self, number: usize) -> BoxFuture<'_, io::Result<Option<Vec<String>>>> {
        Box::pin(in_time(async move {
            let mut reader = Reader::connect(self.address(number)).await?;
            let mut left = Vec::new();
            for lock in locks(&mut reader).await? {
                let places = reader.children(&format!("{BASE}/{lock}")).await?;
                left.extend(places.into_iter().map(|place| format!("{lock}/{place}")));
            }
            let alive = reader.children(&format!("{BASE}/quorlock/alive")).await?;
            left.extend(alive.into_iter().map(|session| format!("the session {session}")));
            reader.close().await?;
            Ok(Some(left))
        }))
    }

    fn offers(&self, need: Need) -> Result<(), String> {
        match need {
            Need::Nothing | Need::Processes | Need::Peers => Ok(()),
            Need::Redis
            | Need::RealServer
            | Need::BentClock
            | Need::Backends
            | Need::Standby
            | Need::SmallDisk
            | Need::HangingDisk => Err(refuse(need, &self.programs)),
        }
    }

    fn cut_off(&self, number: usize, is_off: bool) -> io::Result<()> {
        let mut cut_off = self.cut_off.lock();
        if is_off {
            cut_off.insert(number)
        } else {
            cut_off.remove(&number)
        };
        for other in (0..self.count).filter(|other| *other != number) {
            if is_off || cut_off.contains(&other) {
                self.cluster.separate(number, other);
            } else {
                self.cluster.join(number, other);
            }
        }
        Ok(())
    }
}
