//! One instance of the project in `compose/`, isolated from everything else on this machine.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use quorlock_testkit::{Kind, eventually, find_eventually, patience};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::engine::Engine;
use super::{Outcome, command, folder, text};

/// The containers of one test, and their images.
pub(crate) struct Project {
    name: String,
    /// `docker compose` or `docker-compose`.
    compose: Vec<String>,
    /// The folder with the programs that were built.
    programs: PathBuf,
    environment: Vec<(&'static str, String)>,
    /// The prefix of a command that runs where ports are published.
    outside: Vec<String>,
    port_base: u16,
    scratch: TempDir,
}

/// Returns every compose command of this machine.
pub(crate) async fn composes() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for words in [&["docker", "compose"][..], &["docker-compose"]] {
        let version = command(&[words, &["version"]].concat(), patience(), |_| {}).await;
        if version.is_ok_and(|version| version.status.success()) {
            found.push(words.iter().copied().map(str::to_owned).collect());
        }
    }
    found
}

impl Project {
    /// Chooses unique names and free ports, and starts nothing yet. Returns the reason if this machine lacks a
    /// requirement.
    pub(crate) async fn new(engine: &Engine) -> Outcome<Result<Project, String>> {
        let Some(compose) = composes().await.into_iter().next() else {
            return Ok(Err("no docker compose and no docker-compose is installed".to_owned()));
        };
        let Kind::Program { path: server, .. } = Kind::choose()? else {
            return Ok(Err("no valkey-server or redis-server to build an image from".to_owned()));
        };
        if fs::read(&server)?.starts_with(b"#!") {
            return Ok(Err(format!("{} is a script, and no image can be built from it", server.display())));
        }
        let mut cli = false;
        for name in ["redis-cli", "valkey-cli"] {
            cli |= command(&[name, "--version"], patience(), |_| {}).await.is_ok();
        }
        if !cli {
            return Ok(Err("no redis-cli and no valkey-cli to build an image from".to_owned()));
        }

        let name = format!("quorlock-test-{}", std::process::id());
        let port_base = free_port_base().ok_or("no ports are free")?;
        let mut environment = vec![
            ("QUORLOCK_SERVER", server.to_str().ok_or("a path in plain text")?.to_owned()),
            ("QUORLOCK_SERVER_IMAGE", format!("{name}-server")),
            ("QUORLOCK_CLIENT_IMAGE", format!("{name}-client")),
            ("QUORLOCK_PORT_BASE", port_base.to_string()),
            // The masters are new, so no client relies on earlier grants.
            ("QUORLOCK_RESTART_GUARD", "off".to_owned()),
        ];
        environment.extend(engine.host().map(|host| ("DOCKER_HOST", host)));
        Ok(Ok(Project {
            name,
            compose,
            programs: programs().await?,
            environment,
            outside: engine.outside(),
            port_base,
            scratch: tempfile::tempdir()?,
        }))
    }

    /// Builds both images.
    pub(crate) async fn build(&self) -> Outcome {
        let script = folder().join("build-images");
        let output = command(&[script], patience(), |command| {
            self.choose(command);
            command.arg("--programs").arg(&self.programs);
            command.arg("--env").arg(self.scratch.path().join("env"));
        })
        .await?;
        text(output).map(drop)
    }

    /// Runs a compose subcommand that must succeed.
    pub(crate) async fn compose(&self, words: &[&str]) -> Outcome<String> {
        text(self.try_compose(words).await?).map_err(|error| format!("compose {words:?}: {error}").into())
    }

    async fn try_compose(&self, words: &[&str]) -> std::io::Result<Output> {
        command(&self.compose, patience(), |command| {
            self.choose(command);
            command.args(["-p", &self.name]).args(words);
        })
        .await
    }

    /// Runs a command in the container of the client.
    pub(crate) async fn inside(&self, words: &[&str]) -> std::io::Result<Output> {
        self.try_compose(&[&["exec", "-T", "client"], words].concat()).await
    }

    /// Starts a command in the container of the client, with a stdin.
    pub(crate) fn start(&self, words: &[&str]) -> Outcome<Child> {
        let (program, before) = self.compose.split_first().ok_or("a compose command has words")?;
        let mut command = Command::new(program);
        self.choose(&mut command);
        command.args(before).args(["-p", &self.name, "exec", "-T", "client"]).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        Ok(command.spawn()?)
    }

    /// Returns the status of the lock `job`, as its nodes tell the client.
    pub(crate) async fn status(&self) -> Outcome<Value> {
        // Exits with 69 if it cannot tell or the lock cannot be acquired yet.
        let status = self.inside(&["quorlock", "status", "--json", "job"]).await?;
        Ok(serde_json::from_slice(&status.stdout)?)
    }

    /// Returns the state of the lock `job` on this node, past the proxy.
    pub(crate) async fn state_on_master(&self, number: u8) -> Outcome<String> {
        let node = format!("redis://redis-{number}");
        let status = self.inside(&["quorlock", "status", "--json", "--nodes", &node, "job"]).await?;
        let status: Value = serde_json::from_slice(&status.stdout)?;
        Ok(status["nodes"][0]["state"].as_str().ok_or("a state")?.to_owned())
    }

    /// Waits until a status of the lock fulfils the condition.
    pub(crate) async fn eventually(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Outcome<Value> {
        let mut last = Value::Null;
        let seen = find_eventually(what, patience(), async || {
            last = self.status().await.unwrap_or_default();
            condition(&last).then(|| last.clone())
        })
        .await;
        seen.map_err(|error| format!("{error}: {last}").into())
    }

    /// Waits until the lock is free on all nodes and no node is in quarantine.
    pub(crate) async fn eventually_all_vote(&self) -> Outcome {
        let votes = |node: &Value| node["state"] == "free" && node["no_vote_for_ms"].is_null();
        self.eventually("all nodes to vote", |status| nodes(status).iter().all(votes)).await.map(drop)
    }

    /// Returns the answer of the second master to a command.
    pub(crate) async fn redis_2(&self, words: &[&str]) -> Outcome<String> {
        let answer = self.compose(&[&["exec", "-T", "redis-2", "redis-cli"], words].concat()).await?;
        Ok(answer.trim_end().to_owned())
    }

    /// Runs a subcommand of `docker network` with the network of the project and the container of a service.
    pub(crate) async fn docker_network(&self, words: &[&str], service: &str) -> Outcome {
        let container = self.compose(&["ps", "-q", service]).await?;
        let network = format!("{}_default", self.name);
        let words = [&["docker", "network"], words, &[&network, container.trim()]].concat();
        text(command(&words, patience(), |command| self.choose(command)).await?).map(drop)
    }

    /// Runs a command under the lock `job` in the container of the client.
    pub(crate) async fn run(&self) -> std::io::Result<Output> {
        self.inside(&["quorlock", "run", "--json", "--no-wait", "job", "--", "true"]).await
    }

    pub(crate) async fn eventually_locks(&self) -> std::io::Result<()> {
        eventually("a lock to be acquired", patience(), async || {
            self.run().await.is_ok_and(|run| run.status.success())
        })
        .await
    }

    /// Acquires and releases the lock, and returns how many milliseconds the acquisition took.
    pub(crate) async fn waited(&self) -> Outcome<u64> {
        let run = self.run().await?;
        let events = String::from_utf8(run.stderr)?;
        let acquired: Value = serde_json::from_str(events.lines().next().unwrap_or_default())?;
        Ok(acquired["waited_ms"].as_u64().ok_or(events)?)
    }

    /// Waits until a lock is acquired in less than this time, which a busy machine exceeds at times.
    pub(crate) async fn eventually_locks_within(&self, limit_millis: u64) -> Outcome {
        let mut last = None;
        let locked = eventually("a lock to be acquired in time", patience(), async || {
            last = Some(self.waited().await);
            matches!(last, Some(Ok(waited)) if waited < limit_millis)
        });
        locked.await.map_err(|error| format!("{error}: {last:?}").into())
    }

    /// Runs `quorlock` outside the containers, with the published ports as nodes: those of the proxies for
    /// `tens` = 0, those of the masters for 1.
    pub(crate) async fn outside(&self, words: &[&str], tens: u16) -> Outcome<Output> {
        let nodes = (1..=5).map(|node| format!("redis://127.0.0.1:{}{tens}{node}", self.port_base));
        let nodes = nodes.collect::<Vec<_>>().join(",");
        let program = self.programs.join("quorlock").to_str().ok_or("a path in plain text")?.to_owned();
        let words = words.iter().copied().map(str::to_owned);
        let words: Vec<String> = self.outside.iter().cloned().chain([program]).chain(words).collect();
        let run = command(&words, patience(), |command| {
            self.choose(command);
            command.env("QUORLOCK_NODES", nodes).current_dir(self.scratch.path());
        });
        Ok(run.await?)
    }

    /// Makes the next `up` start the client with a restart guard, as on the page.
    pub(crate) fn guard_restarts(&mut self) {
        self.environment.retain(|(name, _)| *name != "QUORLOCK_RESTART_GUARD");
    }

    /// Runs the chaos tester on the masters.
    pub(crate) async fn chaos(&self, scenario: &str) -> Outcome<Output> {
        let file = self.scratch.path().join("containers.toml");
        fs::write(&file, scenario)?;
        let program = env!("CARGO_BIN_EXE_quorlock-chaos").to_owned();
        let words: Vec<String> = self.outside.iter().cloned().chain([program]).collect();
        let run = command(&words, patience() * 2, |command| {
            self.choose(command);
            command.env("COMPOSE_PROJECT_NAME", &self.name).current_dir(self.scratch.path());
            command.args(["--duration", "8s", "--scenario"]).arg(file).arg("--compose").arg(folder());
        });
        Ok(run.await?)
    }

    /// Removes all containers and images.
    pub(crate) async fn end(&self) -> Outcome {
        let down = self.compose(&["down", "--volumes", "--timeout", "1"]).await;
        let images = ["server", "client"].map(|image| format!("{}-{image}", self.name));
        let removed = command(&["docker", "image", "rm", &images[0], &images[1]], patience(), |command| {
            self.choose(command);
        })
        .await;
        // Fails for an image that was not built; the test has failed already then.
        drop(removed?);
        down.map(drop)
    }

    fn choose(&self, command: &mut Command) {
        command.envs(self.environment.iter().map(|(name, value)| (*name, value))).current_dir(folder());
    }
}

/// Returns what each node said in a status.
pub(crate) fn nodes(status: &Value) -> &[Value] {
    status["nodes"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns what the node with this number, from 1 on, said in a status.
pub(crate) fn node(status: &Value, number: usize) -> &Value {
    nodes(status).get(number - 1).unwrap_or(&Value::Null)
}

/// Returns the folder with `quorlock` and `quorlock-chaos`. Cargo builds the second one for this test, and
/// the first one only when it tests the whole workspace.
async fn programs() -> Outcome<PathBuf> {
    let programs =
        Path::new(env!("CARGO_BIN_EXE_quorlock-chaos")).parent().ok_or("programs have a folder")?;
    if !programs.join("quorlock").exists() {
        let target = programs.parent().ok_or("the target folder")?;
        let build = command(
            &[env!("CARGO"), "build", "--package", "quorlock-cli", "--bin", "quorlock", "--target-dir"],
            patience() * 9,
            |command| {
                command.arg(target);
            },
        );
        text(build.await?)?;
    }
    Ok(programs.to_owned())
}

/// Returns the leading three digits of a range of free ports, outside of the ephemeral range.
fn free_port_base() -> Option<u16> {
    let first = u16::try_from(std::process::id() % 200).ok()?;
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    (0..200).map(|step| 110 + (first + step) % 200).find(|base| {
        [0, 10, 20].iter().flat_map(|tens| (1..=5).map(move |node| base * 100 + tens + node)).all(is_free)
    })
}
