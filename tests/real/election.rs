//! Leader election on real servers: a leader that is killed, one that resigns, one that is partitioned.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{
    Election, LossReason, Observer,
    election::Observed,
    node::{Hint, HintListener, Node as _, Request, Vote, ask},
    redis::{Address, RedisNode},
    runtime::{Clock, SystemClock},
};
use quorlock_testkit::{Kind, Proxy, Servers, Way, patience, until};

use crate::world::{TTL, World, client, count};

/// Short, so that tests that wait for it are fast.
const SHORT: Duration = Duration::from_secs(3);

/// As in `waiting.rs`: the same program is started again as a candidate.
const CANDIDATE: &str = "QUORLOCK_TEST_CANDIDATE";
const NODES: &str = "QUORLOCK_TEST_NODES";

fn now() -> Moment {
    SystemClock::default().now()
}

/// The result of a future, with a deadline.
async fn in_time<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    let clock = SystemClock::default();
    tokio::select! {
        outcome = waiting => outcome,
        () = clock.sleep_until(clock.now() + patience()) => panic!("{what}"),
    }
}

async fn next_leader(observer: &mut Observer) -> String {
    loop {
        if let Observed::Leader(leader) = observer.changed().await {
            return leader.value;
        }
    }
}

/// The process that is killed while it leads: it writes down until when it may rely on its leadership.
#[tokio::test(flavor = "multi_thread")]
async fn doomed_leader() {
    let (Some(place), Ok(nodes)) = (std::env::var_os(CANDIDATE), std::env::var(NODES)) else { return };
    let urls: Vec<String> = nodes.split(',').map(str::to_owned).collect();
    let election = client(&urls, |builder| builder).election("r").ttl(SHORT);
    let leadership = election.campaign("doomed").await.unwrap();
    let place = PathBuf::from(place);
    while leadership.check().is_ok() {
        let end = (now() + leadership.remaining()).since(Moment::ORIGIN).as_nanos().to_string();
        std::fs::write(place.join("writing"), end).unwrap();
        std::fs::rename(place.join("writing"), place.join("end")).unwrap();
        SystemClock::default().sleep_until(now() + Duration::from_millis(20)).await;
    }
}

fn written_end(place: &Path) -> Option<Moment> {
    let nanos = std::fs::read_to_string(place.join("end")).ok()?.parse().ok()?;
    Some(Moment::since_origin(Duration::from_nanos(nanos)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_followed_when_its_lease_expires() {
    let world = World::start(5).await;
    let place = tempfile::tempdir().unwrap();
    let mut doomed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "election::doomed_leader", "--nocapture"])
        .env(CANDIDATE, place.path())
        .env(NODES, world.servers.urls().join(","))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let election = world.coordinator.election("r").ttl(SHORT);
    let mut observer = client(&world.servers.urls(), |builder| builder).election("r").observe().unwrap();
    assert_eq!(next_leader(&mut observer).await, "doomed");
    until("a leader that has written", async || written_end(place.path()).is_some()).await;
    doomed.kill().unwrap();
    doomed.wait().unwrap();
    let leadership = election.campaign("next").await.unwrap();
    let elected = now();
    assert!(elected >= written_end(place.path()).unwrap(), "two leaders");
    assert_eq!(next_leader(&mut observer).await, "next");
    leadership.check().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resigned_leader_is_followed_and_observers_see_it() {
    // So long that no candidate would win in time through expiry.
    let servers = Servers::start(5).await.unwrap();
    let elections: [Election; 3] =
        std::array::from_fn(|_| client(&servers.urls(), |builder| builder).election("r").ttl(TTL));
    let mut observers: Vec<Observer> = (0..3).map(|index| elections[index].observe().unwrap()).collect();
    let mut leadership = elections[0].campaign("0").await.unwrap();
    for round in 1..=6 {
        let value = round.to_string();
        let next = tokio::spawn({
            let (election, value) = (elections[round % 3].clone(), value.clone());
            async move { election.campaign(value).await.unwrap() }
        });
        leadership.check().unwrap();
        leadership.resign().await.unwrap();
        leadership = in_time("the next candidate was not notified", next).await.unwrap();
        for observer in &mut observers {
            in_time("an observer was not notified", async { while next_leader(observer).await != value {} })
                .await;
        }
    }
    drop(leadership);
    until("no key left", async || count(&servers, "r").await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_leader_learns_of_it_before_the_next() {
    let servers = Servers::start(5).await.unwrap();
    let mut proxies = Vec::new();
    for server in servers.iter() {
        proxies.push(Proxy::before(server).await.unwrap());
    }
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let isolated = client(&urls, |builder| builder).election("r").ttl(SHORT);
    let other = client(&servers.urls(), |builder| builder).election("r").ttl(SHORT);
    let mut observer = other.observe().unwrap();
    let leadership = isolated.campaign("isolated").await.unwrap();
    assert_eq!(next_leader(&mut observer).await, "isolated");
    let next = tokio::spawn(async move {
        let leadership = other.campaign("next").await.unwrap();
        (leadership, now())
    });
    let watch = leadership.watch();
    let last_end = tokio::spawn(async move {
        let (clock, mut end) = (SystemClock::default(), now());
        while watch.check().is_ok() {
            end = end.max(now() + watch.remaining());
            clock.sleep_until(now() + Duration::from_millis(20)).await;
        }
        end
    });
    for proxy in &proxies {
        proxy.hold(Way::Both);
    }
    let (next, elected) = next.await.unwrap();
    assert_eq!(leadership.lost().await.reason, LossReason::Expired);
    assert!(elected >= last_end.await.unwrap(), "the other began while it could rely on its leadership");
    assert_eq!(next_leader(&mut observer).await, "next");
    drop(leadership);
    for proxy in &proxies {
        proxy.heal();
    }
    next.check().unwrap();
}

/// Subscribes to one key.
#[derive(Debug, Default)]
struct Listener(AtomicBool);

impl HintListener for Listener {
    fn on_hint(&self, hint: Hint<'_>) {
        if hint == Hint::Invalidated(b"r") {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_without_a_leader_is_notified_of_one() {
    for kind in Kind::all_found() {
        println!("on {kind}");
        let servers = Servers::setup().kind(kind).start(1).await.unwrap();
        let node = RedisNode::new(Address::parse(&servers[0].url()).unwrap());
        let listener = Arc::new(Listener::default());
        node.listen(listener.clone());
        assert_eq!(ask(&node, Request::inspect("r")).await.unwrap().vote, Vote::Free);
        servers[0].command(&["SET", "r", "theirs", "PX", "600000"]).await.unwrap();
        until("a hint", async || listener.0.load(Ordering::Relaxed)).await;
    }
}
