//! A real server for a test.

use std::io;
use std::process::Command;
use std::sync::Arc;

use quorlock_testkit::{Kind, Servers};

use super::{HintLog, settings};
use crate::address::Address;
use crate::node::Node as _;
use crate::redis::RedisNode;

/// A server for one test. Of the test kit only its servers are used: its types of `quorlock` are those of
/// another build of this crate.
pub(super) struct Server {
    servers: Servers,
    pub(super) port: u16,
}

impl Server {
    /// Starts a server that answers. Returns `None` if none is installed.
    pub(super) fn start(options: &[&str]) -> Option<Server> {
        let kind = Kind::choose().unwrap();
        if !kind.is_real() {
            eprintln!("skipped: no redis-server or valkey-server is installed");
            return None;
        }
        // Some tests write to the connection themselves, before any login.
        let servers = block_on(Servers::setup().kind(kind).options(options).without_password().start(1));
        let port = servers[0].port();
        Some(Server { servers, port })
    }

    pub(super) fn restart(&self) {
        block_on(self.servers[0].restart_empty());
    }

    pub(super) fn node(&self) -> RedisNode {
        self.node_of("")
    }

    /// Returns a node with this login, such as `anna:pw@`.
    pub(super) fn node_of(&self, login: &str) -> RedisNode {
        let address = format!("redis://{login}127.0.0.1:{}", self.port);
        RedisNode::with(Address::parse(&address).unwrap(), settings())
    }

    /// Returns a node that is notified of changes.
    pub(super) async fn hearing(&self) -> RedisNode {
        let node = self.node();
        node.listen(Arc::new(HintLog::default()));
        node.ready().await.unwrap();
        node
    }

    /// Returns for how many milliseconds the server will store the key; -1 is for ever, -2 that it does not.
    pub(super) fn left(&self, key: &str) -> i64 {
        self.cli(&["pttl", key]).parse().unwrap()
    }

    pub(super) fn cli(&self, arguments: &[&str]) -> String {
        let port = self.port.to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().into()
    }

    pub(super) fn freeze(&self) {
        self.servers[0].freeze().unwrap();
    }

    pub(super) fn thaw(&self) {
        self.servers[0].thaw().unwrap();
    }

    pub(super) fn kill(&self) {
        self.servers[0].kill();
    }
}

/// Waits on a thread of its own, because the tests' own runtimes may not be blocked by another one.
fn block_on<T: Send>(work: impl Future<Output = io::Result<T>> + Send) -> T {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| scope.spawn(|| runtime().block_on(work)).join().unwrap().unwrap())
}
