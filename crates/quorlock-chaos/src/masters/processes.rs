//! Masters that are local processes, started for the run and stopped with it.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use futures::future::{BoxFuture, try_join_all};
use quorlock::runtime::{Entropy as _, SystemEntropy};
use quorlock_servers::{Kind, Server, Servers};

use super::clocks::{BentClock, Shim};
use super::{Masters, Memory, Need};

pub(crate) struct Processes {
    kind: Kind,
    memory: Memory,
    servers: Vec<Servers>,
    password: String,
    /// What follows the addresses.
    query: &'static str,
    /// One for each server, or the reason why there are none.
    clocks: Result<Vec<BentClock>, String>,
}

impl Processes {
    /// Starts `count` servers, with clocks that can be changed if `bend` is set and it is possible.
    pub(crate) async fn start(
        count: usize,
        memory: Memory,
        bend: bool,
        folder: &Path,
    ) -> io::Result<Processes> {
        let kind = Kind::choose()?;
        let memory = if kind.is_real() { memory } else { Memory::Gone };
        let shim =
            if bend { Shim::build(&kind, folder).await } else { Err("no fault requires it".to_owned()) };
        let clocks = shim.and_then(|shim| {
            (0..count)
                .map(|number| shim.clock(number))
                .collect::<io::Result<Vec<_>>>()
                .map_err(|error| error.to_string())
        });
        let password = format!("{:032x}", SystemEntropy::default().next_u128());
        let starting = (0..count).map(|number| {
            let mut setup = Servers::setup().kind(kind.clone()).password(&password);
            if memory == Memory::Kept {
                setup = setup.durable();
            }
            if let Some(clock) = clocks.as_ref().ok().and_then(|clocks| clocks.get(number)) {
                for (name, value) in clock.environment() {
                    setup = setup.environment(name, value);
                }
            }
            setup.start(1)
        });
        let servers = try_join_all(starting).await?;
        let processes = Processes { kind, memory, servers, password, query: "", clocks };
        Ok(processes.with_proven_clocks().await)
    }

    /// Has the clients lock as Redisson does.
    pub(crate) fn in_redissons_layout(self) -> Processes {
        Processes { query: "?layout=redisson", ..self }
    }

    /// Checks the clocks: a statically linked server, for example, ignores the shim.
    async fn with_proven_clocks(mut self) -> Processes {
        if let (Ok(clocks), Some(server)) = (&self.clocks, self.servers.first().and_then(|one| one.first()))
            && let Some(clock) = clocks.first()
            && let Err(reason) = clock.prove(server).await
        {
            self.clocks = Err(reason);
        }
        self
    }

    fn server(&self, number: usize) -> io::Result<&Server> {
        let server = self.servers.get(number).and_then(|one| one.first());
        server.ok_or_else(|| io::Error::other(format!("there is no node {number}")))
    }

    fn clock(&self, number: usize) -> io::Result<&BentClock> {
        let clocks = self.clocks.as_ref().map_err(|reason| io::Error::other(reason.clone()))?;
        clocks.get(number).ok_or_else(|| io::Error::other(format!("there is no node {number}")))
    }
}

impl Masters for Processes {
    fn what(&self) -> String {
        format!("{} × {}", self.servers.len(), self.kind)
    }

    fn address(&self, number: usize) -> SocketAddr {
        self.server(number).map_or_else(|_| ([127, 0, 0, 1], 0).into(), Server::address)
    }

    fn password(&self) -> Option<&str> {
        Some(&self.password)
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("redis://:{}@{address}{}", self.password, self.query)
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn offers(&self, need: Need) -> Result<(), String> {
        let kind = &self.kind;
        match need {
            Need::Nothing | Need::Redis => Ok(()),
            Need::Processes if kind.can_freeze() => Ok(()),
            Need::Processes => Err(format!("a {kind} cannot receive SIGSTOP")),
            Need::RealServer if kind.is_real() => Ok(()),
            Need::RealServer => {
                Err(format!("a {kind} has no such setting; install valkey-server or redis-server"))
            }
            Need::Backends | Need::Standby | Need::SmallDisk => {
                Err("only possible with PostgreSQL; set `servers = \"postgres\"`".to_owned())
            }
            Need::Peers => Err("only possible with etcd or ZooKeeper; set `servers = \"etcd\"`".to_owned()),
            Need::HangingDisk => Err("only possible with etcd; set `servers = \"etcd\"`".to_owned()),
            Need::BentClock => self.clocks.as_ref().map(drop).map_err(Clone::clone),
        }
    }

    fn kill(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            self.server(number)?.kill();
            Ok(())
        })
    }

    fn restart(&self, number: usize, memory: Memory) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let server = self.server(number)?;
            if memory == Memory::Kept && self.memory == Memory::Kept {
                server.restart_with_data().await
            } else {
                server.restart_empty().await
            }
        })
    }

    fn freeze(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.server(number)?.freeze() })
    }

    fn thaw(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.server(number)?.thaw() })
    }

    fn step_clock(&self, number: usize, seconds: f64) -> io::Result<()> {
        self.clock(number)?.step(seconds)
    }

    fn clock_rate(&self, number: usize, rate: f64) -> io::Result<()> {
        self.clock(number)?.rate(rate)
    }

    fn keep_logs<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            for number in 0..self.servers.len() {
                fs::copy(self.server(number)?.log(), folder.join(format!("node-{}.log", number + 1)))?;
            }
            Ok(())
        })
    }
}
