//! A Docker engine: a running one, else one that the test starts.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorlock_testkit::{eventually, patience};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{Outcome, command, text};

/// A running engine.
pub(crate) struct Engine {
    own: Option<Own>,
}

/// An engine that the test has started and stops.
struct Own {
    process: Child,
    folder: TempDir,
}

impl Engine {
    /// Returns the running engine, or starts one as root.
    ///
    /// # Errors
    ///
    /// The reason why there is none.
    pub(crate) async fn find() -> Result<Engine, String> {
        let engine = Engine { own: None };
        match text(engine.docker(&["version"]).await.map_err(|error| format!("docker: {error}"))?) {
            Ok(_) => return Ok(engine),
            Err(_) if std::env::var_os("DOCKER_HOST").is_some() => {
                return Err("no Docker engine answers at DOCKER_HOST".to_owned());
            }
            Err(_) => {}
        }
        let root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
        if !root {
            return Err("no Docker engine answers, and only root can start one".to_owned());
        }
        let own = Own::start().map_err(|error| format!("no Docker engine answers or starts: {error}"))?;
        let mut engine = Engine { own: Some(own) };
        match engine.until_ready().await {
            Ok(()) => Ok(engine),
            Err(error) => {
                let log = engine.log();
                drop(engine.end().await);
                Err(format!("the Docker engine does not start: {error}; {log}"))
            }
        }
    }

    async fn until_ready(&mut self) -> Outcome {
        let mut ended = None;
        eventually("the Docker engine", patience(), async || {
            ended = self.own.as_mut().and_then(|own| own.process.try_wait().ok().flatten());
            ended.is_some() || self.docker(&["version"]).await.is_ok_and(|output| output.status.success())
        })
        .await?;
        ended.map_or(Ok(()), |status| Err(status.to_string().into()))
    }

    /// Returns the last log line of the engine that the test has started.
    fn log(&self) -> String {
        let log = self.own.as_ref().and_then(|own| fs::read_to_string(own.folder.path().join("log")).ok());
        log.unwrap_or_default().lines().next_back().unwrap_or_default().to_owned()
    }

    async fn docker(&self, words: &[&str]) -> std::io::Result<std::process::Output> {
        command(&[&["docker"], words].concat(), patience(), |command| self.choose(command)).await
    }

    /// Makes a command use this engine.
    pub(crate) fn choose(&self, command: &mut Command) {
        if let Some(host) = self.host() {
            command.env("DOCKER_HOST", host);
        }
    }

    pub(crate) fn host(&self) -> Option<String> {
        self.own.as_ref().map(|own| format!("unix://{}", own.socket().display()))
    }

    /// Returns the prefix of a command that runs in the network where the engine publishes ports.
    pub(crate) fn outside(&self) -> Vec<String> {
        let pid = self.own.as_ref().and_then(|own| own.process.id());
        pid.map_or_else(Vec::new, |pid| {
            ["nsenter", "--net", "--target", &pid.to_string(), "--"].map(str::to_owned).to_vec()
        })
    }

    /// Stops the engine if the test has started it.
    pub(crate) async fn end(self) -> Outcome {
        let Some(mut own) = self.own else { return Ok(()) };
        if let Some(pid) = own.process.id() {
            kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM)?;
        }
        let mut ended = Ok(None);
        eventually("the Docker engine to exit", patience(), async || {
            ended = own.process.try_wait();
            !matches!(ended, Ok(None))
        })
        .await?;
        ended?;
        own.folder.close()?;
        Ok(())
    }
}

impl Own {
    /// Starts an engine in a network namespace of its own, so that it affects neither another engine nor the
    /// firewall rules of the machine. It publishes ports only there.
    fn start() -> std::io::Result<Own> {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        let log = fs::File::create(path("log"))?;
        let names = format!("quorlock-test-{}", std::process::id());
        let process = Command::new("unshare")
            // It ends also if the test is killed. Loopback is down in a new namespace.
            .args(["--net", "setpriv", "--pdeathsig", "TERM"])
            .args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh", "dockerd"])
            .arg("--host")
            .arg(format!("unix://{}", path("socket").display()))
            .arg("--data-root")
            .arg(path("data"))
            .arg("--exec-root")
            .arg(path("exec"))
            .arg("--pidfile")
            .arg(path("pid"))
            .args(["--bridge", "none", "--containerd-namespace", &names])
            .args(["--containerd-plugins-namespace", &format!("{names}-plugins")])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Own { process, folder })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }
}
