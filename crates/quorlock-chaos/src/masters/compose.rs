//! Masters that are containers of the compose project in `compose/`, which must be running.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_servers::{Resp, ask};
use tokio::process::Command;

use super::{Masters, Memory, Need};

/// The project, and the command that controls it.
pub(crate) struct Compose {
    folder: PathBuf,
    /// `docker compose`, or `docker-compose`.
    command: Vec<&'static str>,
    /// Where the masters are reached.
    addresses: Vec<SocketAddr>,
    version: String,
}

/// The number of masters in the project.
const MASTERS: usize = 5;
/// The time limit for the restart of a container.
const START: Duration = Duration::from_secs(30);
const LOOKS_EVERY: Duration = Duration::from_millis(20);

impl Compose {
    /// Returns the project in this folder, whose masters must all be running. It changes nothing.
    pub(crate) async fn find(folder: &Path) -> io::Result<Compose> {
        let command = if runs(&["docker", "compose", "version"]).await {
            vec!["docker", "compose"]
        } else {
            vec!["docker-compose"]
        };
        let mut compose =
            Compose { folder: folder.to_owned(), command, addresses: Vec::new(), version: String::new() };
        for number in 0..MASTERS {
            let address = compose.published(number).await.map_err(|error| {
                let (service, folder) = (service(number), folder.display());
                io::Error::other(format!(
                    "no master `{service}` of a project in {folder}: {error}; start it with compose/start"
                ))
            })?;
            compose.addresses.push(address);
        }
        for number in 0..MASTERS {
            compose.command(number, &["PING"]).await?;
        }
        if let Resp::Text(info) = compose.command(0, &["INFO", "server"]).await? {
            let info = String::from_utf8_lossy(&info).into_owned();
            let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            let valkey = field("valkey_version:").map(|version| format!("Valkey {version}"));
            compose.version = valkey
                .or_else(|| field("redis_version:").map(|version| format!("Redis {version}")))
                .unwrap_or_default();
        }
        Ok(compose)
    }

    /// Returns where the running container of this master is reached. A server that only listens on the usual
    /// port is not it, and its data are not ours.
    async fn published(&self, number: usize) -> io::Result<SocketAddr> {
        let answer = self.docker(&["port", &service(number), "6379"]).await?;
        let answer = String::from_utf8_lossy(&answer);
        let port = answer.trim().rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        match port {
            Some(port) if port != 0 => Ok((Ipv4Addr::LOCALHOST, port).into()),
            Some(_) | None => Err(io::Error::other("its container publishes no port")),
        }
    }

    /// Sends a command to a master, whose refusal is an error.
    async fn command(&self, number: usize, words: &[&str]) -> io::Result<Resp> {
        let address = self.address(number);
        let failed = |why: String| {
            let words = words.join(" ");
            io::Error::other(format!("`{words}` to `{}` at {address}: {why}", service(number)))
        };
        match ask(address, None, words).await {
            Ok(Resp::Error(refusal)) => Err(failed(refusal)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    async fn docker(&self, words: &[&str]) -> io::Result<Vec<u8>> {
        let Some((program, first)) = self.command.split_first() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let output = Command::new(program)
            .args(first)
            .args(words)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let words = [&self.command, words].concat().join(" ");
        let stderr = String::from_utf8_lossy(&output.stderr);
        // Compose 1 is a Python program, whose last line says why.
        let shown = if stderr.starts_with("Traceback") { stderr.lines().next_back() } else { None };
        Err(io::Error::other(format!("{words}: {}", shown.unwrap_or(&stderr).trim())))
    }

    async fn answers(&self, number: usize) -> io::Result<()> {
        let clock = SystemClock::default();
        let end = clock.now() + START;
        loop {
            match ask(self.address(number), None, &["PING"]).await {
                Ok(Resp::Status(pong)) if pong == "PONG" => return Ok(()),
                Ok(_) | Err(_) if clock.now() < end => clock.sleep_until(clock.now() + LOOKS_EVERY).await,
                Ok(answer) => return Err(io::Error::other(answer.to_string())),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the name of the service in `docker-compose.yaml`.
fn service(number: usize) -> String {
    format!("redis-{}", number + 1)
}

async fn runs(words: &[&str]) -> bool {
    let Some((program, arguments)) = words.split_first() else { return false };
    let mut command = Command::new(program);
    let command = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

impl Masters for Compose {
    fn what(&self) -> String {
        format!("{MASTERS} × {} in containers ({})", self.version, self.folder.display())
    }

    fn address(&self, number: usize) -> SocketAddr {
        self.addresses.get(number).copied().unwrap_or((Ipv4Addr::LOCALHOST, 0).into())
    }

    fn memory(&self) -> Memory {
        Memory::Kept
    }

    fn offers(&self, need: Need) -> Result<(), String> {
        match need {
            Need::Nothing | Need::Processes | Need::Redis | Need::RealServer => Ok(()),
            Need::Backends | Need::Standby | Need::SmallDisk | Need::Peers | Need::HangingDisk => {
                Err("the compose project has no PostgreSQL, etcd or ZooKeeper".to_owned())
            }
            Need::BentClock => Err("the clock of a container cannot be changed".to_owned()),
        }
    }

    fn count(&self) -> Option<usize> {
        Some(MASTERS)
    }

    /// Flushes all of them: the orphan check would report existing keys.
    fn prepare(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            for number in 0..MASTERS {
                self.command(number, &["FLUSHALL"]).await?;
            }
            Ok(())
        })
    }

    fn kill(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.docker(&["kill", "-s", "KILL", &service(number)]).await.map(drop) })
    }

    fn restart(&self, number: usize, memory: Memory) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let service = service(number);
            match memory {
                Memory::Kept => self.docker(&["start", &service]).await?,
                Memory::Gone => {
                    self.docker(&["rm", "--stop", "--force", "-v", &service]).await?;
                    self.docker(&["up", "-d", "--no-deps", &service]).await?
                }
            };
            self.answers(number).await
        })
    }

    fn freeze(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.docker(&["pause", &service(number)]).await.map(drop) })
    }

    fn thaw(&self, number: usize) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.docker(&["unpause", &service(number)]).await.map(drop) })
    }

    fn keep_logs<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            for number in 0..MASTERS {
                let log = self.docker(&["logs", "--no-color", &service(number)]).await?;
                fs::write(folder.join(format!("node-{}.log", number + 1)), log)?;
            }
            Ok(())
        })
    }
}
