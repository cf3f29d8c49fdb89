//! Servers, and clients of them.

use std::time::Duration;

use quorlock::{Builder, Coordinator, Lock, RestartGuard, Wait};
use quorlock_testkit::{Servers, eventually};

/// Longer than any test takes, so that no key ends by itself while a test looks for it.
pub(crate) const TTL: Duration = Duration::from_secs(60);
/// How long a condition may take to come true on a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) servers: Servers,
    pub(crate) coordinator: Coordinator,
}

impl World {
    pub(crate) async fn start(count: usize) -> World {
        let servers = Servers::start(count).await.unwrap();
        println!("on {}", servers.kind());
        let coordinator = client(&servers.urls(), |builder| builder);
        World { servers, coordinator }
    }

    pub(crate) fn lock(&self) -> Lock {
        self.coordinator.lock("r").wait(Wait::UpTo(DEADLINE))
    }

    /// Connects to all servers, and leaves nothing there.
    pub(crate) async fn warm_up(&self) {
        drop(self.lock().acquire().await.unwrap());
        self.wait_for_keys(0).await;
    }

    /// At how many of the servers that run a key of this name stands.
    pub(crate) async fn keys(&self) -> usize {
        count(&self.servers, "r").await
    }

    pub(crate) async fn wait_for_keys(&self, wanted: usize) {
        let what = format!("{wanted} keys");
        eventually(&what, DEADLINE, async || self.keys().await == wanted).await.unwrap();
    }
}

/// A client. The servers were started just now by this program, so they can have forgotten
/// nothing.
pub(crate) fn client(urls: &[String], set: impl FnOnce(Builder) -> Builder) -> Coordinator {
    let builder = Coordinator::builder().nodes(urls).restart_guard(RestartGuard::Off).ttl(TTL).max_ttl(TTL);
    set(builder).build().unwrap()
}

/// At how many of the servers that run `key` stands.
pub(crate) async fn count(servers: &Servers, key: &str) -> usize {
    let mut keys = 0;
    for server in servers.iter().filter(|server| server.pid().is_some()) {
        let answer = server.command(&["EXISTS", key]).await.unwrap();
        keys += usize::from(answer.to_string() == "1");
    }
    keys
}

/// Whether the server can be told that a user has no right to any channel: Redis 6.0 has no such word.
pub(crate) fn knows(kind: &impl ToString, right: &str) -> bool {
    right != "resetchannels" || !kind.to_string().contains("redis-server 6.0")
}
