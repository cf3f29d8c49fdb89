//! Servers and their clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::runtime::{Clock, Sleep, SystemClock};
use quorlock::{Builder, Coordinator, Lock, RestartGuard, Wait};
use quorlock_testkit::{Servers, patience, until};

/// Longer than any test takes, so that no key expires while a test waits for its release.
pub(crate) const TTL: Duration = Duration::from_secs(60 * 60);

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
        self.coordinator.lock("r").wait(Wait::UpTo(patience()))
    }

    /// Connects to all servers, and leaves no key there.
    pub(crate) async fn warm_up(&self) {
        drop(self.lock().acquire().await.unwrap());
        self.wait_for_keys(0).await;
    }

    /// How many running servers have a key of this name.
    pub(crate) async fn keys(&self) -> usize {
        count(&self.servers, "r").await
    }

    pub(crate) async fn wait_for_keys(&self, wanted: usize) {
        let what = format!("{wanted} keys");
        until(&what, async || self.keys().await == wanted).await;
    }
}

/// A client. This program has just started the servers, so they cannot have lost any data.
pub(crate) fn client(urls: &[String], set: impl FnOnce(Builder) -> Builder) -> Coordinator {
    let builder = Coordinator::builder().nodes(urls).restart_guard(RestartGuard::Off).ttl(TTL).max_ttl(TTL);
    set(builder).build().unwrap()
}

/// The system clock, which jumps ahead when a test wants it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ahead {
    seconds: Arc<AtomicU64>,
}

impl Ahead {
    pub(crate) fn jump(&self, by: Duration) {
        self.seconds.fetch_add(by.as_secs(), Ordering::Relaxed);
    }

    fn by(&self) -> Duration {
        Duration::from_secs(self.seconds.load(Ordering::Relaxed))
    }
}

impl Clock for Ahead {
    fn now(&self) -> Moment {
        SystemClock::default().now() + self.by()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        SystemClock::default().sleep_until(moment.back(self.by()))
    }
}

/// How many running servers have `key`.
pub(crate) async fn count(servers: &Servers, key: &str) -> usize {
    let mut keys = 0;
    for server in servers.iter().filter(|server| server.pid().is_some()) {
        let answer = server.command(&["EXISTS", key]).await.unwrap();
        keys += usize::from(answer.to_string() == "1");
    }
    keys
}

/// Whether the server has channel rights: Redis 6.0 does not.
pub(crate) fn knows(kind: &impl ToString, right: &str) -> bool {
    right != "resetchannels" || !kind.to_string().contains("redis-server 6.0")
}
