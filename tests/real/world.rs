//! Servers and their clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::node::{Hint, HintListener, Node};
use quorlock::protocol::Moment;
use quorlock::runtime::{Clock, Mutex, Sleep, SystemClock};
use quorlock::votes::VoteOutcome;
use quorlock::{AcquireError, Builder, Coordinator, Lock, Renewal, RestartGuard, Wait};
use quorlock_testkit::{Server, Servers, patience, until};

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

/// Collects the hints of a node.
#[derive(Debug, Default)]
pub(crate) struct HintRecorder(Mutex<Vec<String>>);

impl HintRecorder {
    pub(crate) fn of(node: &dyn Node) -> Arc<HintRecorder> {
        let recorder = Arc::<HintRecorder>::default();
        node.listen(Arc::clone(&recorder) as Arc<dyn HintListener>);
        recorder
    }

    /// Returns the keys that have changed, and what else was heard, by its name.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl HintListener for HintRecorder {
    fn on_hint(&self, hint: Hint<'_>) {
        self.0.lock().push(match hint {
            Hint::Invalidated(key) => String::from_utf8_lossy(key).into_owned(),
            Hint::Subscribed | Hint::Flushed | Hint::Unsubscribed => format!("{hint:?}"),
        });
    }
}

/// Sends a command that is answered by `OK`.
pub(crate) async fn run_command(server: &Server, words: &[&str]) {
    assert_eq!(server.command(words).await.unwrap().to_string(), "OK", "{words:?}");
}

/// Waits until the server reports this.
pub(crate) async fn wait_for_info(server: &Server, what: &str) {
    let reports = async || server.command(&["INFO"]).await.is_ok_and(|info| info.to_string().contains(what));
    until(what, reports).await;
}

/// Returns the number in the first line of all that the server reports which begins like this.
pub(crate) async fn reported(server: &Server, line: &str) -> Option<u64> {
    let info = server.command(&["INFO", "all"]).await.unwrap().to_string();
    let rest = info.lines().find_map(|found| found.strip_prefix(line))?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// How many scripts the server has run.
pub(crate) async fn scripts_run(server: &Server) -> u64 {
    let [by_text, by_hash] = ["eval", "evalsha"].map(|command| format!("cmdstat_{command}:calls="));
    reported(server, &by_text).await.unwrap_or(0) + reported(server, &by_hash).await.unwrap_or(0)
}

/// How many nodes had restarted, or were first used, too recently to vote, if no quorum voted.
pub(crate) fn quarantined(error: &AcquireError) -> usize {
    let AcquireError::Unavailable { report, .. } = error else { return 0 };
    report.votes().iter().filter(|vote| matches!(vote.outcome, VoteOutcome::Quarantined { .. })).count()
}

/// The word that a node never forgets is true here: its replica has the lock before the master dies, and nothing else is
/// written. What is promoted votes immediately at the address with the word, and not without it.
pub(crate) async fn is_believed_after_a_failover(
    [trusted, guarded]: [String; 2],
    [held, free]: [&str; 2],
    replicated: impl AsyncFn() -> bool,
    fail_over: impl AsyncFnOnce(),
) {
    // Long leases: without the word, what is promoted would not vote for that long.
    let client =
        |url: &String| client(std::slice::from_ref(url), |builder| builder.restart_guard(RestartGuard::On));
    let (holder, other) = (client(&trusted), client(&trusted));
    let patient = |client: &Coordinator, name: &str| client.lock(name).wait(Wait::UpTo(patience()));
    let lease = patient(&holder, held).renewal(Renewal::Manual).acquire().await.unwrap();
    until("the replica has the lock", replicated).await;
    fail_over().await;
    drop(patient(&other, free).acquire().await.unwrap());
    assert!(other.lock(held).try_acquire().await.unwrap().is_none(), "what is promoted has the lock");
    until("a renewal there", async || lease.renew().await.is_ok()).await;
    let error = client(&guarded).lock(free).try_acquire().await.unwrap_err();
    assert_eq!(quarantined(&error), 1, "without the word: {error}");
}

/// Whether the server has channel rights: Redis 6.0 does not.
pub(crate) fn knows(kind: &impl ToString, right: &str) -> bool {
    right != "resetchannels" || !kind.to_string().contains("redis-server 6.0")
}
