//! What the tests of etcd and of ZooKeeper share, which include this file: both keep a queue in which other programs stand
//! beside the library's waiters.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::node::NodeKind;
use quorlock::node::{Identity, Node, Request, Response, ask};
use quorlock::protocol::{Claim, Moment, Token, WaiterId, companion};
use quorlock::runtime::{Clock as _, SystemClock, within};
use quorlock::{Builder, Coordinator, Lease, RestartGuard, Wait};
use quorlock_testkit::{ClosedPort, patience, until};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Of a claim.
pub(crate) const TTL: Duration = Duration::from_secs(6);

pub(crate) fn claim(name: &str, random: u128) -> Arc<Claim> {
    Arc::new(Claim::new(name.into(), Token::new(random, "anna:1")))
}

pub(crate) fn acquire(claim: &Arc<Claim>) -> Request {
    Request::Acquire { claim: Arc::clone(claim), ttl: TTL, fence_hint: None }
}

pub(crate) fn renew(claim: &Arc<Claim>) -> Request {
    Request::Renew { claim: Arc::clone(claim), ttl: TTL, fencing_token: None }
}

/// Asks until there is an answer.
pub(crate) async fn answer(node: &dyn Node, request: Request) -> Response {
    let mut answered = None;
    let asked = async || {
        answered = ask(node, request.clone()).await.ok();
        answered.is_some()
    };
    until("an answer", asked).await;
    answered.unwrap()
}

pub(crate) async fn identity(node: &dyn Node) -> Arc<Identity> {
    answer(node, Request::inspect("a")).await.identity
}

/// Returns why a node cannot vote, or `connected`.
pub(crate) async fn refusal(node: &dyn Node) -> String {
    node.ready().await.map_or_else(|error| format!("{error:#}"), |()| "connected".to_owned())
}

/// A process: a coordinator with a node of its own.
pub(crate) fn of(node: impl Node) -> Coordinator {
    let builder = Coordinator::builder().custom_nodes([node]).restart_guard(RestartGuard::Off);
    builder.ttl(Duration::from_secs(5)).build().unwrap()
}

/// The lock and the waiter of the key that notifies of a turn.
pub(crate) fn turn_of(key: &str) -> Option<(&str, WaiterId)> {
    let (lock, rest) = companion(key)?;
    Some((lock, WaiterId::parse(rest.strip_prefix("want:mark:")?.as_bytes())?))
}

/// Another program in the queue.
pub(crate) trait Program {
    /// Returns the places of a lock, the holder's first.
    async fn standing(&self, lock: &str) -> Vec<String>;

    /// Takes a place, and returns it.
    async fn enter(&self, lock: &str) -> String;

    async fn leave(&self, place: &str);

    /// Waits until there is this number of places.
    async fn until(&self, lock: &str, number: usize) {
        let there = async || self.standing(lock).await.len() == number;
        until("places", there).await;
    }
}

pub(crate) async fn exclude_each_other(process: impl Fn() -> Coordinator, program: &impl Program) {
    const NAME: &str = "jobs/nightly";
    let inside = Arc::new(AtomicUsize::new(0));
    let revisions = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = process();
        for _ in 0..3 {
            let lock = client.lock(NAME).wait(Wait::UpTo(patience()));
            let (inside, revisions) = (inside.clone(), revisions.clone());
            tasks.push(tokio::spawn(async move {
                let mut last = 0;
                for _ in 0..15 {
                    let lease = lock.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                    let token = lease.fencing_token().get();
                    assert!(token > last);
                    last = token;
                    revisions.lock().unwrap().push((lease.store_revision().unwrap(), token));
                    lease.check().unwrap();
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    lease.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let revisions = std::mem::take(&mut *revisions.lock().unwrap());
    assert_eq!(revisions.len(), 135);
    assert!(revisions.is_sorted(), "not in the order of create revisions, or of tokens");
    assert!(program.standing(NAME).await.is_empty(), "something is left");
}

pub(crate) async fn serve_a_program_between_ours(
    process: impl Fn() -> Coordinator,
    program: &impl Program,
    name: &str,
) {
    let client = process();
    let lock = client.lock(name).wait(Wait::UpTo(patience()));
    let first = lock.acquire().await.unwrap();
    let place = program.enter(name).await;
    let second = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let hasty = process().lock(name).wait(Wait::Never);
    first.release().await.unwrap();
    assert!(hasty.acquire().await.is_err(), "the other program holds it");
    program.until(name, 2).await;
    assert!(!second.is_finished());
    assert_eq!(program.standing(name).await[0], place);
    program.leave(&place).await;
    drop(second.await.unwrap());
}

/// Names that are below each other, or look like a place of the one above.
pub(crate) async fn do_not_hinder_each_other(process: impl Fn() -> Coordinator, names: [&str; 4]) {
    let client = process();
    for turned in [false, true] {
        let mut order = names;
        if turned {
            order.reverse();
        }
        let mut held = Vec::new();
        for name in order {
            held.push(client.lock(name).wait(Wait::Never).acquire().await.unwrap());
        }
        for name in order {
            let other = process().lock(name).wait(Wait::Never);
            assert!(other.acquire().await.is_err(), "{name} is held");
        }
        for lease in held {
            lease.release().await.unwrap();
        }
    }
}

pub(crate) async fn give_up_without_delaying_others(
    process: impl Fn() -> Coordinator,
    program: &impl Program,
    name: &str,
) {
    let holder = process().lock(name).acquire().await.unwrap();
    let gives_up = process();
    let lock = gives_up.lock(name).wait(Wait::Forever);
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    program.until(name, 2).await;
    let next = process().lock(name).wait(Wait::UpTo(patience()));
    let next = tokio::spawn(async move { next.acquire().await.map(drop) });
    program.until(name, 3).await;
    waiting.abort();
    program.until(name, 2).await;
    holder.release().await.unwrap();
    next.await.unwrap().unwrap();
}

/// A lease is renewed all the time while its node reports changes of its key (rule I-54). Both block a thread, if they wait for
/// each other.
pub(crate) async fn is_renewed_beside_reports(
    process: impl Fn() -> Coordinator,
    program: &impl Program,
    name: &str,
) {
    let (client, over) = (process(), Arc::new(AtomicBool::new(false)));
    let lease = client.lock(name).acquire().await.unwrap();
    let runtime = Runtime::new().unwrap();
    let is_over = over.clone();
    let renewing = runtime.spawn(async move {
        while !is_over.load(Ordering::Relaxed) {
            lease.renew().await.unwrap();
        }
    });
    for _ in 0..300 {
        // The next change is reported.
        if client.lock(name).inspect().await.is_err() {
            break;
        }
        let place = program.enter(name).await;
        program.leave(&place).await;
    }
    over.store(true, Ordering::Relaxed);
    let renewed = within(&SystemClock::default(), patience(), renewing).await;
    runtime.shutdown_background();
    renewed.expect("it hangs").unwrap();
}

/// For how long a waiter keeps its place without asking.
const PLACE_LIFE: Duration = Duration::from_secs(6);

/// Two waiters get the lock in their order, whatever happens while they wait.
pub(crate) async fn keep_their_places(
    process: impl Fn() -> Coordinator,
    program: &impl Program,
    happens: impl FnOnce(&Lease),
) {
    let holder = process().lock("a").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..2 {
        let (lock, order) = (process().lock("a").wait(Wait::UpTo(patience())), order.clone());
        waiting.push(tokio::spawn(async move {
            let lease = lock.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            lease.release().await.unwrap();
        }));
        program.until("a", number + 2).await;
    }
    let clock = SystemClock::default();
    let happened = clock.now();
    happens(&holder);
    let renewed = async || holder.renew().await.is_ok();
    until("the holder goes on", renewed).await;
    let outage = clock.now().since(happened);
    holder.release().await.unwrap();
    for task in waiting {
        task.await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    // On a busy machine it may take the servers longer to go on than a place lasts.
    assert!(order == [0, 1] || outage > PLACE_LIFE / 2, "{order:?} after {outage:?}");
}

/// Expects another history than `before`, which began no earlier than `restored`, at the node that knew the old one and at one
/// that comes later.
pub(crate) async fn is_another_history<N: Node>(
    knows: &N,
    fresh: impl FnOnce() -> N,
    (before, restored): (Arc<Identity>, Moment),
) {
    let is_new = async || identity(knows).await.id != before.id;
    until("another history", is_new).await;
    let (after, fresh) = (identity(knows).await, identity(&fresh()).await);
    assert_eq!(after.id, fresh.id, "a client that comes later learns it");
    let passed = SystemClock::default().now().since(restored);
    for seen in [after, fresh] {
        let age = seen.age_at(SystemClock::default().now());
        assert!(age <= passed + Duration::from_secs(1), "it is {age:?} old after {passed:?}");
    }
}

/// Expects that it is told where nothing listens, and where a web server does: there with these words.
pub(crate) async fn other_servers_are_known(
    refusal: impl AsyncFn(&str) -> String,
    scheme: &str,
    words: &str,
) {
    let closed = ClosedPort::bind().unwrap();
    let error = refusal(&format!("{scheme}://{}", closed.address().unwrap())).await;
    assert!(error.contains("unreachable"), "{error}");
    let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = http.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = http.accept().await {
            drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await);
        }
    });
    let error = refusal(&format!("{scheme}://{address}")).await;
    assert!(error.contains(words) && error.contains(&format!("{scheme}s://")), "{error}");
    serving.abort();
}

/// How many sections each client runs. `QUORLOCK_SECTIONS=2000` for a longer run.
pub(crate) fn sections(usual: usize) -> usize {
    std::env::var("QUORLOCK_SECTIONS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// A number in a file, to which several programs add one under the same lock, and the numbers of the places that they had.
pub(crate) struct Counted {
    folder: TempDir,
}

impl Counted {
    pub(crate) fn new() -> Counted {
        let counted = Counted { folder: tempfile::tempdir().unwrap() };
        fs::write(counted.counter(), "0").unwrap();
        fs::write(counted.log(), "").unwrap();
        counted
    }

    pub(crate) fn counter(&self) -> PathBuf {
        self.folder.path().join("counter")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Runs this number of sections in a few processes, each of which has one place as a session of the store's own client has,
    /// and prints how long they have waited. `place` returns the number of a holder's place.
    pub(crate) async fn ours(
        &self,
        process: impl Fn() -> Coordinator,
        name: &str,
        sections: usize,
        place: impl AsyncFn(&Lease) -> u64,
    ) {
        const PROCESSES: usize = 4;
        let clock = SystemClock::default();
        let waits = (0..PROCESSES).map(async |number| {
            let lock = process().lock(name).wait(Wait::Forever);
            let mut waited = Vec::new();
            for _ in 0..sections / PROCESSES + usize::from(number < sections % PROCESSES) {
                let asked = clock.now();
                let lease = lock.acquire().await.unwrap();
                waited.push(clock.now().since(asked));
                let number: usize = fs::read_to_string(self.counter()).unwrap().trim().parse().unwrap();
                fs::write(self.counter(), (number + 1).to_string()).unwrap();
                let place = place(&lease).await;
                let mut log = fs::File::options().append(true).open(self.log()).unwrap();
                writeln!(log, "{place} ours").unwrap();
                lease.release().await.unwrap();
            }
            waited
        });
        let mut waited = futures::future::join_all(waits).await.concat();
        waited.sort_unstable();
        let at = |part: usize| waited[waited.len() * part / 100];
        println!("ours waited {:?}, at most {:?} in 99 of 100", at(50), at(99));
    }

    /// Expects that none of this number of sections was lost, and that their places have the order of their numbers.
    pub(crate) fn check(&self, sections: usize) {
        let counter = fs::read_to_string(self.counter()).unwrap();
        assert_eq!(counter.trim(), sections.to_string(), "a section was lost");
        let log = fs::read_to_string(self.log()).unwrap();
        let places: Vec<u64> =
            log.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        assert_eq!(places.len(), sections);
        assert!(places.is_sorted(), "not in the order of the numbers");
    }
}

/// Clients that come and go, as commands of cron do, none of which lives until the history is old enough. What they note of
/// it is enough for their drift.
pub(crate) async fn grows_old(builder: impl Fn() -> Builder, drift: f64, max_ttl: Duration) {
    let clock = SystemClock::default();
    let begun = clock.now();
    let voted = async || {
        let client = builder().drift(drift).ttl(TTL).max_ttl(max_ttl).build().unwrap();
        let acquired = client.lock("a").wait(Wait::UpTo(Duration::from_millis(500))).acquire().await;
        let early = clock.now().since(begun);
        assert!(acquired.is_err() || early > max_ttl.mul_f64(1.0 + drift), "it votes after {early:?}");
        acquired.is_ok()
    };
    until("a vote", voted).await;
}

/// Each member that refuses connections is named to all callers, also in the pauses between connections.
pub(crate) async fn are_named_if_they_refuse(kind: impl NodeKind, url: impl FnOnce(&str) -> String) {
    let ports = [ClosedPort::bind().unwrap(), ClosedPort::bind().unwrap()];
    let [one, other] = ports.each_ref().map(|port| port.address().unwrap().to_string());
    let builder = Coordinator::builder().kind(kind).nodes([url(&format!("{one},{other}"))]);
    let lock = builder.build().unwrap().lock("a").wait(Wait::UpTo(Duration::from_millis(400)));
    for _ in 0..5 {
        let error = lock.acquire().await.unwrap_err().to_string();
        for words in [&one, &other, "refused", "a majority of them must run"] {
            assert!(error.contains(words), "{error}");
        }
    }
}
