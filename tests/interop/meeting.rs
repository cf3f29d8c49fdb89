//! Servers, a client of ours, and a driver of theirs.

use std::io::Write as _;
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{
    AcquireError, Builder, Coordinator, Lock, RestartGuard, Wait,
    runtime::{Clock as _, SystemClock},
    votes::Holder,
};
use quorlock_testkit::{Resp, Servers, eventually};

use crate::driver::Driver;
use crate::library::Library;

/// The resource. With the library's prefix before it, it is the key.
pub(crate) const NAME: &str = "orders/42";
/// Longer than any test takes, so that no key ends by itself while a test looks for it.
pub(crate) const TTL: Duration = Duration::from_secs(600);
/// Short enough to wait for its end, and long enough to be renewed on a loaded machine.
pub(crate) const SHORT: Duration = Duration::from_secs(3);
/// How long a condition may take to come true on a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const NODES: usize = 3;
pub(crate) const QUORUM: usize = 2;

pub(crate) struct Meeting {
    pub(crate) library: Library,
    pub(crate) servers: Servers,
    pub(crate) ours: Coordinator,
    pub(crate) theirs: Driver,
}

impl Meeting {
    /// `None`, and a line that says why, where the library is not there.
    pub(crate) async fn with(library: Library) -> Option<Meeting> {
        let servers = Servers::start(NODES).await.unwrap();
        match Driver::start(&library, &servers.urls()).await {
            Ok(theirs) => {
                let ours = client(&servers.urls(), |builder| builder.key_prefix(library.prefix));
                Some(Meeting { library, servers, ours, theirs })
            }
            Err(reason) => {
                // Not by `eprintln`, which the harness keeps to itself while a test passes.
                let skipped = format!("skipped: interoperability with {}: {reason}\n", library.name);
                drop(std::io::stderr().write_all(skipped.as_bytes()));
                None
            }
        }
    }

    /// Ours, which waits.
    pub(crate) fn lock(&self) -> Lock {
        self.ours.lock(NAME).wait(Wait::UpTo(DEADLINE))
    }

    pub(crate) fn key(&self) -> String {
        format!("{}{NAME}", self.library.prefix)
    }

    /// Who keeps ours out, by the error of ours, and what that error says.
    pub(crate) async fn refusal(&self) -> (Holder, String) {
        let error = self.lock().wait(Wait::Never).acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::Contended { .. }), "{error}");
        (error.report().unwrap().holder().expect("somebody holds it"), error.to_string())
    }

    /// At how many of the servers that run the key holds `token`.
    pub(crate) async fn holding(&self, token: &[u8]) -> usize {
        let report = self.lock().inspect().await.unwrap();
        report.holder().filter(|holder| holder.token.as_bytes() == token).map_or(0, |holder| holder.nodes)
    }

    /// The longest that the key lives at any server that runs; nothing where there is none.
    pub(crate) async fn remaining(&self) -> Duration {
        self.lock().inspect().await.unwrap().holder().map(|holder| holder.remaining).unwrap_or_default()
    }

    /// As if the TTL had ended while nobody looked. Some libraries go on while a last request of
    /// theirs is under way, and that sets the key again.
    pub(crate) async fn forget(&self) {
        let gone = async || {
            for server in self.servers.iter() {
                server.command(&["DEL", &self.key()]).await.unwrap();
            }
            self.remaining().await.is_zero()
        };
        eventually("no key left", DEADLINE, gone).await.unwrap();
    }

    /// By the clock of a server.
    pub(crate) async fn server_time(&self) -> Duration {
        let Resp::List(parts) = self.servers[0].command(&["TIME"]).await.unwrap() else { panic!("a time") };
        let number = |part: &Resp| part.to_string().parse::<u64>().unwrap();
        Duration::from_secs(number(&parts[0])) + Duration::from_micros(number(&parts[1]))
    }

    /// How often anybody has asked the servers to set or to change something.
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

/// A client. The servers were started just now by this program, so they can have forgotten nothing.
pub(crate) fn client(urls: &[String], set: impl FnOnce(Builder) -> Builder) -> Coordinator {
    let builder = Coordinator::builder().nodes(urls).restart_guard(RestartGuard::Off).ttl(TTL).max_ttl(TTL);
    set(builder).build().unwrap()
}

pub(crate) fn now() -> Moment {
    SystemClock::default().now()
}

/// For the work of a holder, which takes its time.
pub(crate) async fn pass(time: Duration) {
    SystemClock::default().sleep_until(now() + time).await;
}
