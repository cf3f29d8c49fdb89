//! Waiting on real servers, in many processes, while servers stall and connections break.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::future::join_all;
use quorlock::protocol::{Moment, preferred_node};
use quorlock::{
    Handoff, Wait,
    runtime::{Clock, Entropy, SystemClock},
};
use quorlock_testkit::{Kind, SeededEntropy, Servers, patience, until};

use crate::world::{World, client, reported, scripts_run};

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
    let scripts = async |node: usize| scripts_run(&world.servers[node]).await;
    let others = async || scripts((home + 1) % 3).await + scripts((home + 2) % 3).await;
    let (at_home, elsewhere) = (scripts(home).await, others().await);
    // It asks for its place repeatedly, on one node; every other second it asks another node for the holder. With a vote for
    // each heartbeat it would be five requests a second.
    let clock = SystemClock::default();
    let since = clock.now();
    let asked = async || scripts(home).await >= at_home + 8;
    until("heartbeats of the waiter", asked).await;
    let (asked, most) = (others().await - elsewhere, 2 + clock.now().since(since).as_secs());
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
    let before = asked(&world).await;
    let _lease = world.lock().acquire().await.unwrap();
    let entered = SystemClock::default().now();
    assert!(
        entered >= Moment::since_origin(Duration::from_nanos(end)),
        "it entered during the lease of the dead holder"
    );
    world.wait_for_keys(5).await;
    let asked = asked(&world).await - before;
    // A round to all, then at most one heartbeat per second, and a few as the keys expire.
    assert!(asked <= 40, "it does not poll: {asked} requests");
}

/// How many scripts the servers have run.
async fn asked(world: &World) -> u64 {
    join_all(world.servers.iter().map(scripts_run)).await.into_iter().sum()
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
        let leases: Vec<_> = join_all(asking).await.into_iter().filter_map(Result::unwrap).collect();
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
    let commands = async || reported(&world.servers[0], "total_commands_processed:").await.unwrap();
    let seconds = |seconds: u64| {
        let end = SystemClock::default().now() + Duration::from_secs(seconds);
        async move { until("some seconds", async || SystemClock::default().now() >= end).await }
    };
    seconds(2).await;
    let (before, began) = (commands().await, SystemClock::default().now());
    seconds(4).await;
    // Late on a busy machine.
    let rate = (commands().await - before) * 1_000
        / u64::try_from(SystemClock::default().now().since(began).as_millis()).unwrap();
    println!("{rate} commands a second");
    // Some 2,200 where waiters keep no pace, from one process that is not optimized.
    assert!(rate < 1_500, "{rate} commands a second while ten clients wait");
    drop(held);
    for waiter in waiters {
        waiter.await.unwrap();
    }
}
