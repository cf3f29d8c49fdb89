//! A real server for a test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::settings;
use crate::address::Address;
use crate::redis::RedisNode;
use crate::runtime::clock::{Clock, SystemClock};

/// A `redis-server` for one test.
pub(super) struct Server {
    process: Child,
    pub(super) port: u16,
    pub(super) directory: PathBuf,
    options: Vec<String>,
}

impl Server {
    /// Starts a server that answers. Returns `None` if none is installed.
    pub(super) fn start(options: &[&str]) -> Option<Server> {
        static STARTED: AtomicU32 = AtomicU32::new(0);

        let serial = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("quorlock-{}-{serial}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        for _ in 0..10 {
            let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
            let Some(process) = launch(port, &directory, &options) else {
                eprintln!("skipped: no redis-server on PATH");
                return None;
            };
            let mut server = Server { process, port, directory: directory.clone(), options: options.clone() };
            if server.answers() {
                return Some(server);
            }
        }
        panic!("no redis-server would start");
    }

    pub(super) fn restart(&mut self) {
        self.process = launch(self.port, &self.directory, &self.options).unwrap();
        assert!(self.answers(), "the port was free a moment ago");
    }

    /// Waits until it answers, and returns whether it does: another process may have taken the port.
    fn answers(&mut self) -> bool {
        let clock = SystemClock;
        let deadline = clock.now() + Duration::from_secs(10);
        while clock.now() < deadline && self.process.try_wait().unwrap().is_none() {
            // Each try starts a process, which takes a millisecond: no need to sleep.
            if self.cli(&["ping"]).contains("PONG") || self.cli(&["ping"]).contains("NOAUTH") {
                return true;
            }
        }
        false
    }

    pub(super) fn node(&self) -> RedisNode {
        RedisNode::with(Address::parse(&format!("redis://127.0.0.1:{}", self.port)).unwrap(), settings())
    }

    pub(super) fn cli(&self, arguments: &[&str]) -> String {
        let port = self.port.to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().into()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

fn launch(port: u16, directory: &Path, options: &[String]) -> Option<Child> {
    let named = std::env::var_os("QUORLOCK_SERVER").filter(|word| !word.is_empty() && word != "builtin");
    Command::new(named.unwrap_or_else(|| "redis-server".into()))
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
        ])
        .arg(directory)
        .args(options)
        .stdout(Stdio::null())
        .spawn()
        .ok()
}
