//! Servers, a client of ours, and a driver of theirs.

use std::io::Write as _;
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{
    AcquireError, Builder, Coordinator, Lock, RestartGuard, Wait,
    node::Expiry,
    runtime::{Clock as _, SystemClock},
    votes::Holder,
};
use quorlock_testkit::{Resp, Servers, patience, until};

use crate::driver::Driver;
use crate::library::Library;

/// The resource. Their key is the library's prefix followed by it.
pub(crate) const NAME: &str = "orders/42";
/// Longer than any test takes, so that no key expires while a test looks for it.
pub(crate) const TTL: Duration = Duration::from_secs(600);
/// Short enough to wait for its end, and long enough to be renewed on a loaded machine.
pub(crate) const SHORT: Duration = Duration::from_secs(3);
pub(crate) const NODES: usize = 3;
pub(crate) const QUORUM: usize = 2;

/// How much longer the servers store its token.
pub(crate) fn left_of(holder: &Holder) -> Duration {
    let Expiry::In(left) = holder.remaining else { panic!("it never expires: {holder:?}") };
    left
}

pub(crate) struct Meeting {
    pub(crate) library: Library,
    pub(crate) servers: Servers,
    pub(crate) ours: Coordinator,
    pub(crate) theirs: Driver,
}

impl Meeting {
    /// `None`, with a message, if the library is not installed.
    pub(crate) async fn with(library: Library) -> Option<Meeting> {
        let servers = Servers::start(NODES).await.unwrap();
        match Driver::start(&library, &servers.urls()).await {
            Ok(theirs) => {
                let ours = client(&servers.urls(), |builder| builder.key_prefix(library.prefix));
                Some(Meeting { library, servers, ours, theirs })
            }
            Err(reason) => {
                // Not with `eprintln`, which the harness captures while a test passes.
                let skipped = format!("skipped: interoperability with {}: {reason}\n", library.name);
                drop(std::io::stderr().write_all(skipped.as_bytes()));
                None
            }
        }
    }

    /// Our lock, which waits.
    pub(crate) fn lock(&self) -> Lock {
        self.ours.lock(NAME).wait(Wait::UpTo(patience()))
    }

    pub(crate) fn key(&self) -> String {
        format!("{}{NAME}", self.library.prefix)
    }

    /// The holder that keeps ours out, according to our error, and the error's text.
    pub(crate) async fn refusal(&self) -> (Holder, String) {
        let error = self.lock().wait(Wait::Never).acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::Contended { .. }), "{error}");
        (error.report().unwrap().holder().expect("the error names the holder"), error.to_string())
    }

    /// Counts the running servers on which the key holds `token`.
    pub(crate) async fn holding(&self, token: &[u8]) -> usize {
        let report = self.lock().inspect().await.unwrap();
        report.holder().filter(|holder| holder.token.as_bytes() == token).map_or(0, |holder| holder.nodes)
    }

    /// The longest remaining TTL of the key on any running server; zero if there is none.
    pub(crate) async fn remaining(&self) -> Duration {
        let report = self.lock().inspect().await.unwrap();
        report.holder().map_or(Duration::ZERO, |holder| left_of(&holder))
    }

    /// Deletes the keys, as if the TTL had ended. Repeated, because a last request in flight of some
    /// libraries may set the key again.
    pub(crate) async fn forget(&self) {
        let gone = async || {
            for server in self.servers.iter() {
                server.command(&["DEL", &self.key()]).await.unwrap();
            }
            self.remaining().await.is_zero()
        };
        until("no key left", gone).await;
    }

    /// The clock of a server.
    pub(crate) async fn server_time(&self) -> Duration {
        let Resp::List(parts) = self.servers[0].command(&["TIME"]).await.unwrap() else { panic!("a time") };
        let number = |part: &Resp| part.to_string().parse::<u64>().unwrap();
        Duration::from_secs(number(&parts[0])) + Duration::from_micros(number(&parts[1]))
    }

    /// The number of write commands that the servers have received.
    pub(crate) async fn requests(&self) -> u64 {
        let mut requests = 0;
        for server in self.servers.iter() {
            let stats = server.command(&["INFO", "commandstats"]).await.unwrap().to_string();
            let asked = ["cmdstat_set:calls=", "cmdstat_eval:calls=", "cmdstat_evalsha:calls="];
            let calls =
                stats.lines().filter_map(|line| asked.iter().find_map(|start| line.strip_prefix(start)));
            requests +=
                calls.map(|calls| calls.split(',').next().unwrap().parse::<u64>().unwrap()).sum::<u64>();
        }
        requests
    }
}

/// A client. This program has just started the servers, so they cannot have lost any data.
pub(crate) fn client(urls: &[String], set: impl FnOnce(Builder) -> Builder) -> Coordinator {
    let builder = Coordinator::builder().nodes(urls).restart_guard(RestartGuard::Off).ttl(TTL).max_ttl(TTL);
    set(builder).build().unwrap()
}

pub(crate) fn now() -> Moment {
    SystemClock::default().now()
}

/// The critical section of a holder, which takes some time.
pub(crate) async fn pass(time: Duration) {
    SystemClock::default().sleep_until(now() + time).await;
}
