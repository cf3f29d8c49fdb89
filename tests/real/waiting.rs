//! Waiting on real servers, in many processes, while servers stall and connections break.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::{Claim, FenceHint, FencingToken, Moment, Token, WaiterId, preferred_node};
use quorlock::{
    Handoff, Wait,
    node::{Hint, HintListener, Node as _, Request, Vote, ask},
    redis::{Address, RedisNode},
    runtime::{Clock, Entropy, SystemClock},
};
use quorlock_testkit::{Kind, SeededEntropy, Server, Servers, patience, until};

use crate::world::{TTL, World, client};

const PROCESSES: usize = 8;
const TASKS: usize = 16;
const GRANTS: usize = 4;

/// Names the directory in which the workers of a test meet. The same program is started again as a
/// worker; without this variable the worker's test does nothing.
const WORKER: &str = "QUORLOCK_TEST_WORKER";
const NODES: &str = "QUORLOCK_TEST_NODES";

/// The role of a worker process: its tasks acquire the lock in turn, and write to the log while they
/// hold it.
#[tokio::test(flavor = "multi_thread")]
async fn worker() {
    let (Some(place), Ok(nodes)) = (std::env::var_os(WORKER), std::env::var(NODES)) else { return };
    let place = PathBuf::from(place);
    let urls: Vec<String> = nodes.split(',').map(str::to_owned).collect();
    let coordinator = client(&urls, |builder| builder);
    // So that the processes take turns: by default one process would serve all its tasks in one series.
    let lock = coordinator.lock("contended").wait(Wait::Forever).handoff(Handoff::times(8));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (lock, place) = (lock.clone(), place.clone());
            tokio::spawn(async move {
                for _ in 0..GRANTS {
                    let lease = lock.acquire().await.unwrap();
                    enter(&place);
                    let clock = SystemClock::default();
                    clock.sleep_until(clock.now() + Duration::from_millis(1)).await;
                    // If the lease was lost meanwhile, another process may be inside legitimately.
                    leave(&place, lease.check().is_ok());
                    drop(lease.release().await);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    coordinator.close(patience()).await;
}

/// Two processes inside would find the same file.
fn enter(place: &Path) {
    std::fs::File::create_new(place.join("inside")).expect("two holders");
    let mut log = std::fs::File::options().append(true).create(true).open(place.join("log")).unwrap();
    writeln!(log, "{}", std::process::id()).unwrap();
}

fn leave(place: &Path, held: bool) {
    assert!(held, "no fault of this test is long enough to lose a lease");
    std::fs::remove_file(place.join("inside")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_waiter_is_stranded_by_stalls_and_disconnects() {
    let world = World::start(5).await;
    let place = tempfile::tempdir().unwrap();
    let mut workers: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "waiting::worker", "--nocapture"])
                .env(WORKER, place.path())
                .env(NODES, world.servers.urls().join(","))
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let seed = std::process::id().into();
    println!("seed {seed}");
    let entropy = SeededEntropy::new(seed);
    let clock = SystemClock::default();
    let end = clock.now() + 2 * patience();
    let grants = || std::fs::read_to_string(place.path().join("log")).unwrap_or_default().lines().count();
    while workers.iter_mut().any(|worker| worker.try_wait().unwrap().is_none()) {
        assert!(clock.now() < end, "stranded after {} of {} grants", grants(), PROCESSES * TASKS * GRANTS);
        let server = &world.servers[usize::try_from(entropy.next_u64() % 5).unwrap()];
        if entropy.next_u64().is_multiple_of(2) {
            server.freeze().unwrap();
            clock.sleep_until(clock.now() + Duration::from_millis(100)).await;
            server.thaw().unwrap();
        } else {
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
            clock.sleep_until(clock.now() + Duration::from_millis(30)).await;
        }
    }
    for worker in &mut workers {
        assert!(worker.wait().unwrap().success(), "a worker failed");
    }
    let log = std::fs::read_to_string(place.path().join("log")).unwrap();
    let holders: Vec<&str> = log.lines().collect();
    assert_eq!(holders.len(), PROCESSES * TASKS * GRANTS);
    // The order is random, too much so on a loaded machine to expect a share of each. If each process
    // did all its work in one series, there would be as many turns as processes.
    let turns = 1 + holders.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns >= 3 * PROCESSES, "the processes take turns: {turns} turns of {PROCESSES} processes");
    until("no key left", async || crate::world::count(&world.servers, "contended").await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_tracks_no_counter_for_a_listener() {
    for kind in Kind::all_found() {
        println!("on {kind}");
        let servers = Servers::setup().kind(kind).start(1).await.unwrap();
        let node = RedisNode::new(Address::parse(&servers[0].url()).unwrap());
        node.listen(Arc::new(Silent));
        let fence_hint = Some(FenceHint::at(SystemClock::default().wall(), None, TTL));
        let (ttl, waiter) = (TTL, WaiterId::new(1));
        let large = FencingToken::new(FencingToken::MAX.get() - 9).unwrap();
        // The handshake reads the secret of the inboxes, which is tracked on purpose.
        node.ready().await.unwrap();
        let before = remembered(&servers[0]).await;
        for number in 0..50_u128 {
            let fenced: Arc<str> = format!("fenced/{number}").into();
            let [holder, refused, next] = claims(&fenced);
            for request in [
                Request::Acquire { claim: holder.clone(), ttl, fence_hint },
                Request::Transfer { from: holder.clone(), to: next.clone(), ttl, fence_hint },
                Request::WriteBack { claim: next.clone(), fencing_token: large },
                // From here on the counter does not change, so the server keeps tracking it.
                Request::WriteBack { claim: next.clone(), fencing_token: FencingToken::ZERO },
                Request::Acquire { claim: refused.clone(), ttl, fence_hint },
                Request::enqueue(fenced.clone(), waiter, ttl, ttl, ttl),
                Request::LeaveQueue { key: fenced.clone(), waiter },
                Request::Transfer { from: holder, to: refused.clone(), ttl, fence_hint },
                Request::WriteBack { claim: refused, fencing_token: large },
                Request::Renew { claim: next.clone(), ttl, fencing_token: Some(large) },
                Request::Release { claim: next },
            ] {
                ask(&node, request).await.unwrap();
            }
            let [holder, refused, restored] = claims(&format!("restored/{number}"));
            for request in [
                Request::Renew { claim: restored.clone(), ttl, fencing_token: FencingToken::new(42) },
                Request::Renew { claim: refused, ttl, fencing_token: FencingToken::new(42) },
                Request::Renew { claim: restored.clone(), ttl, fencing_token: FencingToken::new(42) },
                Request::Release { claim: restored },
                Request::Acquire { claim: holder.clone(), ttl, fence_hint },
                Request::Release { claim: holder },
            ] {
                ask(&node, request).await.unwrap();
            }
            let [holder, refused, _] = claims(&format!("plain/{number}"));
            let plain = |claim: &Arc<Claim>| Request::Acquire { claim: claim.clone(), ttl, fence_hint: None };
            ask(&node, plain(&holder)).await.unwrap();
            assert!(matches!(ask(&node, plain(&refused)).await.unwrap().vote, Vote::Held(_)));
            ask(&node, Request::Release { claim: holder }).await.unwrap();
        }
        assert_eq!(remembered(&servers[0]).await, before);
        ask(&node, Request::inspect("fenced/0")).await.unwrap();
        assert_ne!(remembered(&servers[0]).await, before, "the server reports what it tracks");
    }
}

fn claims(key: &str) -> [Arc<Claim>; 3] {
    [1, 2, 3].map(|random| Arc::new(Claim::new(key.into(), Token::new(random, "waiting"))))
}

/// As reported by the server.
async fn remembered(server: &Server) -> String {
    let stats = server.command(&["INFO", "stats"]).await.unwrap().to_string();
    stats.lines().find(|line| line.starts_with("tracking_total_keys")).unwrap().to_owned()
}

/// Subscribes, and ignores the hints.
#[derive(Debug)]
struct Silent;

impl HintListener for Silent {
    fn on_hint(&self, _hint: Hint<'_>) {}
}

/// Redis 6.0 notifies a waiter of changes made by its own requests; such a change is not its turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_requests_no_vote_until_its_turn() {
    let world = World::start(3).await;
    if !world.servers.kind().is_real() {
        return println!("skipped: {} does not count its commands", world.servers.kind());
    }
    let held = world.lock().acquire().await.unwrap();
    let other = client(&world.servers.urls(), |builder| builder);
    let waiting = tokio::spawn(async move { other.lock("r").wait(Wait::Forever).acquire().await.unwrap() });
    let waits = async || world.lock().waiters().await.is_ok_and(|seen| seen.waiters.len() == 1);
    until("a waiter", waits).await;
    let home = preferred_node("r", 3);
    let scripts = async |node: usize| {
        let stats = world.servers[node].command(&["INFO", "commandstats"]).await.unwrap().to_string();
        let calls = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(name))?;
            line.split(',').next()?.parse::<usize>().ok()
        };
        ["cmdstat_eval:calls=", "cmdstat_evalsha:calls="].iter().filter_map(|name| calls(name)).sum::<usize>()
    };
    let others = async || scripts((home + 1) % 3).await + scripts((home + 2) % 3).await;
    let (at_home, elsewhere) = (scripts(home).await, others().await);
    // It asks for its place repeatedly, on one node; every other second it asks another node for the holder. With a vote for
    // each heartbeat it would be five requests a second.
    let clock = SystemClock::default();
    let since = clock.now();
    let asked = async || scripts(home).await >= at_home + 8;
    until("heartbeats of the waiter", asked).await;
    let (asked, most) = ((others().await - elsewhere) as u64, 2 + clock.now().since(since).as_secs());
    assert!(asked <= most, "{asked} requests of other nodes while it waited, more than {most}");
    held.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

/// The role of the process that is killed while it holds the lock: it writes down until when it may
/// rely on it.
#[tokio::test(flavor = "multi_thread")]
async fn doomed_holder() {
    let (Some(place), Ok(nodes)) = (std::env::var_os(DOOMED), std::env::var(NODES)) else { return };
    let urls: Vec<String> = nodes.split(',').map(str::to_owned).collect();
    let coordinator = client(&urls, |builder| builder);
    let lease = coordinator.lock("r").ttl(DOOMED_TTL).acquire().await.unwrap();
    let end = SystemClock::default().now() + lease.remaining();
    let end = end.since(Moment::ORIGIN).as_nanos().to_string();
    std::fs::write(Path::new(&place).join("writing"), end).unwrap();
    std::fs::rename(Path::new(&place).join("writing"), Path::new(&place).join("end")).unwrap();
    std::future::pending::<()>().await;
}

/// As [`WORKER`], for [`doomed_holder`].
const DOOMED: &str = "QUORLOCK_TEST_DOOMED";
const DOOMED_TTL: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_holder_is_followed_when_its_lock_expires() {
    let world = World::start(5).await;
    let place = tempfile::tempdir().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "waiting::doomed_holder", "--nocapture"])
        .env(DOOMED, place.path())
        .env(NODES, world.servers.urls().join(","))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("a holder", async || place.path().join("end").exists()).await;
    holder.kill().unwrap();
    holder.wait().unwrap();
    let end: u64 = std::fs::read_to_string(place.path().join("end")).unwrap().parse().unwrap();
    let before = commands(&world).await;
    let _lease = world.lock().acquire().await.unwrap();
    let entered = SystemClock::default().now();
    assert!(
        entered >= Moment::since_origin(Duration::from_nanos(end)),
        "it entered during the lease of the dead holder"
    );
    world.wait_for_keys(5).await;
    let asked = commands(&world).await - before;
    // A round to all, then at most one heartbeat per second, and a few as the keys expire.
    assert!(asked <= 40, "it does not poll: {asked} requests");
}

/// How many requests the servers have processed.
async fn commands(world: &World) -> i64 {
    let mut all = 0;
    for server in world.servers.iter() {
        let stats = server.command(&["INFO", "commandstats"]).await.unwrap().to_string();
        for line in stats.lines().filter(|line| line.starts_with("cmdstat_eval:")) {
            let calls = line.split("calls=").nth(1).and_then(|rest| rest.split(',').next());
            all += calls.and_then(|calls| calls.parse::<i64>().ok()).unwrap_or(0);
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_concurrent_tries_gets_a_free_lock() {
    let servers = Servers::start(5).await.unwrap();
    let clients: Vec<_> = (0..6).map(|_| client(&servers.urls(), |builder| builder)).collect();
    for round in 0..50 {
        let name = format!("r/{round}");
        let asking = clients
            .iter()
            .map(|client| client.lock(&name))
            .map(|lock| async move { lock.try_acquire().await });
        let leases: Vec<_> =
            futures::future::join_all(asking).await.into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(leases.len(), 1, "of six in round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w10_servers_that_forget_at_once_what_was_read_are_not_flooded() {
    let world = World::start(3).await;
    if matches!(world.servers.kind(), Kind::BuiltinTask | Kind::BuiltinProcess) {
        return println!("skipped: the built-in server remembers all that was read");
    }
    for server in world.servers.iter() {
        server.command(&["CONFIG", "SET", "tracking-table-max-keys", "1"]).await.unwrap();
    }
    let held = world.lock().acquire().await.unwrap();
    let clients: Vec<_> = (0..10).map(|_| client(&world.servers.urls(), |builder| builder)).collect();
    let waiters = clients.iter().map(|client| {
        let lock = client.lock("r").wait(Wait::UpTo(patience()));
        tokio::spawn(async move { drop(lock.acquire().await) })
    });
    let waiters: Vec<_> = waiters.collect();
    let commands = async || {
        let stats = world.servers[0].command(&["INFO", "stats"]).await.unwrap().to_string();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let seconds = |seconds: u64| {
        let end = SystemClock::default().now() + Duration::from_secs(seconds);
        async move { until("some seconds", async || SystemClock::default().now() >= end).await }
    };
    seconds(2).await;
    let before = commands().await;
    seconds(4).await;
    let rate = (commands().await - before) / 4;
    println!("{rate} commands a second");
    // Some 2,200 where waiters keep no pace, from one process that is not optimized.
    assert!(rate < 1_000, "{rate} commands a second while ten clients wait");
    drop(held);
    for waiter in waiters {
        waiter.await.unwrap();
    }
}
