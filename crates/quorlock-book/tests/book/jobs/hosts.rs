//! Hosts on which jobs are started, and the servers that they share.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorlock_testkit::{Kind, Servers, eventually, find_eventually, patience, until};
use serde_json::Value;
use tempfile::TempDir;

use crate::{skip, target};

/// The servers, and the folder in which the jobs run and write.
pub(crate) struct Hosts {
    pub(crate) servers: Servers,
    folder: TempDir,
}

impl Hosts {
    pub(crate) async fn new() -> Option<Hosts> {
        if !matches!(Kind::choose().unwrap(), Kind::Program { .. }) {
            skip("no valkey-server or redis-server installed");
            return None;
        }
        // The addresses of the pages have no passwords.
        let servers = Servers::setup().without_password().start(3).await.unwrap();
        let hosts = Hosts { servers, folder: tempfile::tempdir().unwrap() };
        fs::create_dir(hosts.path("bin")).unwrap();
        symlink(target().join("quorlock"), hosts.path("bin/quorlock")).unwrap();
        Some(hosts)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a shell script that writes its arguments to the log, then does `work`.
    pub(crate) fn program(&self, name: &str, work: &str) -> PathBuf {
        let path = self.path(name);
        let log = self.path("log");
        let text = format!("#!/bin/sh\nlog() {{ echo \"$@\" >> {}; }}\nlog \"$@\"\n{work}\n", log.display());
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Replaces the servers and program paths of a page by those of the test.
    pub(crate) fn here(&self, text: &str) -> String {
        let bin = self.path("bin").display().to_string();
        let mut text = text
            .replace("PATH=/usr/local/bin:", &format!("PATH={bin}:"))
            .replace("/usr/local/bin/", &format!("{bin}/"))
            .replace("/etc/quorlock.env", &self.path("quorlock.env").display().to_string());
        for (number, server) in self.servers.iter().enumerate() {
            text = text.replace(&format!("10.{number}.0.1"), &format!("127.0.0.1:{}", server.port()));
        }
        assert!(!text.contains("redis://10."), "a server of the page is left in {text}");
        text
    }

    /// Returns a command whose environment is this one only, besides the folder of programs.
    pub(crate) fn command(&self, words: &[String], environment: &HashMap<String, String>) -> Command {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.path("bin").display());
        let program = if words[0].contains('/') { words[0].clone() } else { self.found(&words[0]) };
        let mut command = Command::new(program);
        command.args(&words[1..]).env_clear().env("PATH", path).envs(environment);
        command
    }

    /// As `execvp` finds it, with the `PATH` of the command and not that of this process.
    fn found(&self, name: &str) -> String {
        let own = self.path("bin").join(name);
        if own.exists() { own.display().to_string() } else { name.to_owned() }
    }

    /// Returns the nodes, as environment variables.
    pub(crate) fn nodes(&self) -> HashMap<String, String> {
        HashMap::from([("QUORLOCK_NODES".to_owned(), self.servers.urls().join(","))])
    }

    pub(crate) fn start(&self, mut command: Command) -> Host {
        command.env("HOME", self.folder.path()).current_dir(self.folder.path());
        // The servers have just started.
        command.env("QUORLOCK_RESTART_GUARD", "off");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Host { child: Some(command.spawn().unwrap()) }
    }

    /// Runs the job on `count` hosts, on half of them after the others have ended, as with clocks that differ.
    pub(crate) fn run(&self, count: usize, command: impl Fn() -> Command) -> Vec<Output> {
        let mut ended = Vec::new();
        for half in [count / 2, count - count / 2] {
            let started: Vec<Host> = (0..half).map(|_| self.start(command())).collect();
            ended.extend(started.into_iter().map(Host::end));
        }
        ended
    }

    /// Returns the lines that the programs have written to the log.
    pub(crate) fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Waits for a log with this many lines that begin with `word`.
    pub(crate) async fn logged(&self, word: &str, count: usize) {
        let what = format!("{count} lines with {word}");
        let lines = || self.log().iter().filter(|line| line.starts_with(word)).count();
        let reached = eventually(&what, patience(), async || lines() >= count).await;
        reached.unwrap_or_else(|error| panic!("{error}: {:?}", self.log()));
        assert_eq!(lines(), count, "{:?}", self.log());
    }

    /// Returns what `quorlock status --json` prints.
    pub(crate) fn status(&self, resource: &str) -> Value {
        let words = ["quorlock", "status", "--json", resource].map(str::to_owned);
        let ended = self.start(self.command(&words, &self.nodes())).end();
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
    }

    /// Returns the process id of the holder.
    pub(crate) fn holder(&self, resource: &str) -> Option<u32> {
        let status = self.status(resource);
        let context = status["holder"]["context"].as_str()?;
        context.split([' ', ':']).nth(1)?.parse().ok()
    }

    /// Waits until this many processes wait for the lock: they handle signals then.
    pub(crate) async fn waited_for(&self, resource: &str, count: usize) {
        let waiters = || self.status(resource)["waiters"].as_array().map_or(0, Vec::len);
        let reached = eventually("waiters", patience(), async || waiters() == count).await;
        reached.unwrap_or_else(|error| panic!("{error}: {}", self.status(resource)));
    }

    /// Waits until the lock is free.
    pub(crate) async fn free(&self, resource: &str) {
        let reached =
            eventually("a free lock", patience(), async || self.status(resource)["state"] == "free").await;
        reached.unwrap_or_else(|error| panic!("{error}: {}", self.status(resource)));
    }
}

/// A process that a test has started. Kills it on drop; its guardian then kills what it started.
pub(crate) struct Host {
    child: Option<Child>,
}

impl Host {
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// Waits until it has ended.
    pub(crate) fn end(mut self) -> Output {
        self.child.take().unwrap().wait_with_output().unwrap()
    }

    /// Waits until it has ended, but not for long.
    pub(crate) async fn ended(mut self) -> Output {
        self.exited().await;
        self.end()
    }

    /// Waits until it has ended. What it has started may still run, and have its output open.
    pub(crate) async fn exited(&mut self) {
        let running = self.child.as_mut().unwrap();
        until("the end", async || running.try_wait().unwrap().is_some()).await;
    }

    /// Sends this signal again and again until it has ended.
    pub(crate) async fn signalled_until_exit(&mut self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap());
        let running = self.child.as_mut().unwrap();
        until("the end", async || {
            let ended = running.try_wait().unwrap().is_some();
            if !ended {
                kill(pid, signal).unwrap();
            }
            ended
        })
        .await;
    }

    /// Reads the first line of stderr that contains `text`.
    pub(crate) fn says(&mut self, text: &str) -> String {
        let mut lines = BufReader::new(self.child.as_mut().unwrap().stderr.as_mut().unwrap().by_ref());
        loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended without saying {text}");
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Waits until one of the processes holds the lock, and takes it out of the list.
pub(crate) async fn leader(hosts: &Hosts, resource: &str, candidates: &mut Vec<Host>) -> Host {
    let place = find_eventually("a leader", patience(), async || {
        let pid = hosts.holder(resource)?;
        candidates.iter().position(|candidate| candidate.pid() == pid)
    });
    let place = place.await.unwrap();
    candidates.swap_remove(place)
}
