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
    /// The leading digits of its ports.
    base: String,
    version: String,
}

/// The number of masters in the project.
const MASTERS: usize = 5;
/// The time limit for the restart of a container.
const START: Duration = Duration::from_secs(30);
const LOOKS_EVERY: Duration = Duration::from_millis(20);

impl Compose {
    /// Returns the project in this folder, and flushes its masters: the orphan check would report existing
    /// keys.
    pub(crate) async fn find(folder: &Path) -> io::Result<Compose> {
        let command = if runs(&["docker", "compose", "version"]).await {
            vec!["docker", "compose"]
        } else {
            vec!["docker-compose"]
        };
        let settings = fs::read_to_string(folder.join(".env")).unwrap_or_default();
        let base = settings.lines().find_map(|line| line.strip_prefix("QUORLOCK_PORT_BASE="));
        let base = std::env::var("QUORLOCK_PORT_BASE").ok().or_else(|| base.map(str::to_owned));
        let base = base.unwrap_or_else(|| "71".to_owned());
        let mut compose = Compose { folder: folder.to_owned(), command, base, version: String::new() };
        for number in 0..MASTERS {
            let address = compose.address(number);
            let missing = |error| {
                let shown = folder.display();
                io::Error::other(format!(
                    "no master at {address}: {error}; start the project with {shown}/start"
                ))
            };
            ask(address, None, &["FLUSHALL"]).await.map_err(missing)?;
        }
        if let Ok(Resp::Text(info)) = ask(compose.address(0), None, &["INFO", "server"]).await {
            let info = String::from_utf8_lossy(&info).into_owned();
            let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            let valkey = field("valkey_version:").map(|version| format!("Valkey {version}"));
            compose.version = valkey
                .or_else(|| field("redis_version:").map(|version| format!("Redis {version}")))
                .unwrap_or_default();
        }
        Ok(compose)
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
        let words = words.join(" ");
        Err(io::Error::other(format!(
            "{program} {words}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )))
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
        let port = format!("{}1{}", self.base, number + 1).parse().unwrap_or(0);
        (Ipv4Addr::LOCALHOST, port).into()
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
