//! Offers on real servers: between clients with separate connections, with and without channel rights.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use quorlock::protocol::{Claim, InboxId, NextWaiter, OfferTerms, Token, WaiterId, preferred_node};
use quorlock::{
    Coordinator, Lease, Lock, Wait,
    node::{Request, Vote, ask},
    redis::{Address, RedisNode},
    runtime::{Clock as _, SystemClock},
};
use quorlock_testkit::{Proxy, Server, Servers, Way, patience, scaled, until};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::{knows, reported, run_command};

/// Servers that have just been started vote after this time.
const TTL: Duration = Duration::from_secs(2);
/// A round trip takes twice as long.
const LONG_WAY: Duration = Duration::from_millis(3);
/// One release in eight is open.
const RELEASES: usize = 40;

/// Servers, and ways to them that are long enough for offers.
async fn far(nodes: usize) -> (Servers, Vec<Proxy>) {
    let servers = Servers::start(nodes).await.unwrap();
    let ways = servers.ways(LONG_WAY).await.unwrap();
    (servers, ways)
}

fn client(ways: &[Proxy], user: Option<&str>) -> Coordinator {
    client_with(ways, user, TTL)
}

fn client_with(ways: &[Proxy], user: Option<&str>, ttl: Duration) -> Coordinator {
    let url = |way: &Proxy| user.map_or(way.url(), |user| format!("redis://{user}:pw@{}", way.address()));
    let builder = Coordinator::builder().nodes(ways.iter().map(url));
    builder.key_prefix("locks:").ttl(ttl).max_ttl(ttl).build().unwrap()
}

fn lock(client: &Coordinator) -> Lock {
    client.lock("r").wait(Wait::UpTo(patience()))
}

/// How many messages each server was asked to publish.
async fn published(server: &Server) -> u64 {
    reported(server, "cmdstat_publish:calls=").await.unwrap_or(0)
}

/// The same, that a quorum of the servers was asked at least: one that missed the lock at an open release, because it was
/// slow, has none to offer before the next.
async fn published_by_most(servers: &Servers) -> u64 {
    let mut sent = join_all(servers.iter().map(published)).await;
    sent.sort_unstable();
    sent[servers.len() / 2]
}

async fn pause(time: Duration) {
    let clock = SystemClock::default();
    clock.sleep_until(clock.now() + time).await;
}

/// Passes the lock around among these clients, each of which waits while the previous one holds it.
async fn go_round<const N: usize>(clients: [&Coordinator; N]) {
    // The servers have to be old enough to vote.
    until("a vote", async || lock(clients[0]).try_acquire().await.is_ok_and(|it| it.is_some())).await;
    let mut held: Lease = lock(clients[0]).acquire().await.unwrap();
    for number in 1..=RELEASES {
        let (holder, next) = (clients[(number - 1) % N], lock(clients[number % N]));
        let next = tokio::spawn(async move { next.acquire().await.unwrap() });
        // The queue's node notifies the holder of the waiter before it answers this request.
        let waits = async || lock(holder).waiters().await.is_ok_and(|seen| seen.waiters.len() == 1);
        until("a waiter", waits).await;
        let before = held.fencing_token();
        held.release().await.unwrap();
        held = next.await.unwrap();
        assert!(held.fencing_token() > before, "{} after {before}", held.fencing_token());
    }
    // It was renewed: an offered key lives for 1.2 s, or half of `max_ttl`.
    pause(TTL).await;
    assert_eq!(held.check(), Ok(()));
    held.release().await.unwrap();
}

/// As on a machine with one processor: while the work blocks the only thread, its runtime neither sends the renewal that takes
/// up the offer nor reads the answers.
#[test]
#[expect(clippy::disallowed_methods, reason = "the work blocks its thread")]
fn o12_work_that_blocks_its_thread_keeps_a_lock_that_was_offered() {
    const LONG: Duration = Duration::from_secs(8);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outside = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (_servers, ways) = outside.block_on(far(5));
    let client =
        || Coordinator::builder().nodes(ways.iter().map(Proxy::url)).ttl(LONG).max_ttl(LONG).build().unwrap();
    let ended = AtomicBool::new(false);
    let blocks = async || {
        let (client, mut short) = (client(), 0);
        for _ in 0..8 {
            if short == 2 {
                break;
            }
            let lease = lock(&client).acquire().await.unwrap();
            let (begun, left) = (SystemClock::default().now(), lease.remaining());
            // Offered, and not yet taken up.
            short += usize::from(left < LONG / 4);
            std::thread::sleep(LONG * 5 / 8);
            let blocked = SystemClock::default().now().since(begun);
            assert_eq!(lease.check(), Ok(()), "it began with {left:?}, and blocked for {blocked:?}");
            lease.release().await.unwrap();
        }
        short
    };
    let passes_on = async || {
        let client = client();
        while !ended.load(Ordering::Relaxed) {
            let lease = lock(&client).acquire().await.unwrap();
            pause(Duration::from_millis(300)).await;
            lease.release().await.unwrap();
        }
    };
    let short = std::thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(|| runtime().block_on(passes_on()))));
        let working = scope.spawn(|| runtime().block_on(blocks())).join();
        ended.store(true, Ordering::Relaxed);
        working.unwrap()
    });
    if short == 0 {
        println!("skipped: on a machine this busy, no lease was offered");
    }
}

/// What happens to the first waiter just before the release.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Its process is stopped: nothing drives its runtime, and its connections stay open.
    Stopped,
    /// What is sent to it and by it does not arrive.
    CutOff,
    /// Its connections are closed.
    Killed,
}

/// Returns how long the lock was free after a release by a holder whose first waiter met this `fate` so long `before`.
async fn free_after(
    urls: (Vec<String>, Arc<Vec<Proxy>>),
    name: String,
    ttl: Duration,
    (fate, before): (Fate, Duration),
) -> Duration {
    let client =
        |urls: Vec<String>| Coordinator::builder().nodes(urls).ttl(ttl).max_ttl(ttl).build().unwrap();
    let holder = client(urls.0.clone());
    let held = holder.lock(name.as_str()).wait(Wait::UpTo(patience())).acquire().await.unwrap();
    let way: Vec<_> = urls.1.iter().map(Proxy::url).collect();
    let (fail, failed) = tokio::sync::oneshot::channel::<()>();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let first = {
        let (name, client) = (name.clone(), client(way));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let lock = client.lock(name.as_str()).wait(Wait::Forever);
            let mut waiting = Box::pin(lock.acquire());
            runtime.block_on(async {
                tokio::select! {
                    _ = &mut waiting => panic!("the lock is held"),
                    _ = failed => {}
                }
                if let Fate::CutOff = fate {
                    drop(waiting.await);
                }
            });
            if let Fate::Killed = fate {
                return runtime.shutdown_background();
            }
            let _ = ended.recv();
        })
    };
    let queued =
        async |many| holder.lock(name.as_str()).waiters().await.is_ok_and(|seen| seen.waiters.len() == many);
    until("the first waiter", async || queued(1).await).await;
    let follows = client(urls.0);
    let next = {
        let lock = follows.lock(name.as_str()).wait(Wait::Forever);
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    until("the second waiter", async || queued(2).await).await;
    pause(Duration::from_millis(700)).await;
    if let Fate::CutOff = fate {
        for proxy in urls.1.iter() {
            proxy.hold(Way::Both);
        }
    }
    let _ = fail.send(());
    pause(before).await;
    held.release().await.unwrap();
    let released = SystemClock::default().now();
    let lease = next.await.unwrap();
    let free = SystemClock::default().now().since(released);
    drop(lease.release().await);
    for proxy in urls.1.iter() {
        proxy.release(Way::Both);
    }
    drop(end);
    if !matches!(fate, Fate::CutOff) {
        first.join().unwrap();
    }
    free
}

/// For half of `max_ttl` as long as offers lived that long.
#[tokio::test(flavor = "multi_thread")]
async fn o7_a_first_waiter_that_is_stopped_cut_off_or_killed_holds_up_the_next_for_its_offer_alone() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let (trials, ttl) = (number("QUORLOCK_TRIALS").unwrap_or(4), number("QUORLOCK_SECONDS").unwrap_or(16));
    let ttl = Duration::from_secs(ttl);
    let servers = Servers::start(5).await.unwrap();
    let first = Coordinator::builder().nodes(servers.urls()).ttl(ttl).max_ttl(ttl).build().unwrap();
    until("a vote", async || lock(&first).try_acquire().await.is_ok_and(|it| it.is_some())).await;
    for fate in [Fate::Stopped, Fate::CutOff, Fate::Killed] {
        let mut all = Vec::new();
        for trial in 0..trials {
            let ways = servers.ways(LONG_WAY).await.unwrap();
            let before =
                Duration::from_secs(1) * u32::try_from(trial).unwrap() / u32::try_from(trials).unwrap();
            let urls = (servers.urls(), Arc::new(ways));
            all.push(free_after(urls, format!("{fate:?}{trial}"), ttl, (fate, before)));
        }
        let mut free = join_all(all).await;
        free.sort_unstable();
        println!("{fate:?}: {free:?}");
        let longest = free.last().copied().unwrap_or_default();
        assert!(longest < ttl / 4, "{fate:?}: {free:?}");
    }
}

/// A user without channel rights, and one with them, hold the same lock in turn.
#[tokio::test(flavor = "multi_thread")]
async fn without_channel_rights_a_lock_still_reaches_the_next_client() {
    let (servers, ways) = far(3).await;
    if !servers.kind().is_real() || !knows(servers.kind(), "resetchannels") {
        return println!("skipped: {} has no channel rights", servers.kind());
    }
    let text = include_str!("../../SECURITY.md");
    let rights = text.lines().find_map(|line| line.strip_prefix("ACL SETUSER quorlock ")).unwrap();
    let more = text.split_once("With `&locks").and_then(|(_, rest)| rest.split_once('`')).unwrap().0;
    for server in servers.iter() {
        for (user, rights) in [("plain", rights.to_owned()), ("full", format!("{rights} &locks{more}"))] {
            let rights = rights.replace("PASSWORD", "pw");
            let words = ["ACL", "SETUSER", user].into_iter().chain(rights.split(' '));
            run_command(server, &words.collect::<Vec<_>>()).await;
        }
    }
    let sent = async || published(&servers[0]).await;
    go_round([&client(&ways, Some("plain")), &client(&ways, Some("plain"))]).await;
    assert_eq!(sent().await, 0, "without subscribers no lock is offered");
    go_round([&client(&ways, Some("plain")), &client(&ways, Some("full"))]).await;
    let before = sent().await;
    go_round([&client(&ways, Some("full")), &client(&ways, Some("full"))]).await;
    let offered = sent().await - before;
    assert!(offered > RELEASES as u64 / 8, "{offered} offers of {RELEASES} releases");
    // One of three has no rights: it is served in its turn, and the others still offer the lock to each
    // other.
    let before = sent().await;
    let [one, two, three] = ["full", "plain", "full"].map(|user| client(&ways, Some(user)));
    go_round([&one, &two, &three]).await;
    let offered = sent().await - before;
    assert!(offered > RELEASES as u64 / 6, "{offered} offers of {} releases", RELEASES / 3);
}

/// Users may have different rights on one of the nodes. That node publishes nothing, and the others are
/// a quorum.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_offered_without_channel_rights_on_one_node() {
    let (servers, ways) = far(5).await;
    if !servers.kind().is_real() || !knows(servers.kind(), "resetchannels") {
        return println!("skipped: {} has no channel rights", servers.kind());
    }
    let home = preferred_node("locks:r", 5);
    for without in [home, (home + 1) % 5] {
        for (number, server) in servers.iter().enumerate() {
            let channels = if number == without { "resetchannels" } else { "allchannels" };
            run_command(server, &["ACL", "SETUSER", "user", "on", ">pw", "allkeys", "+@all", channels]).await;
        }
        let before = [published(&servers[without]).await, published_by_most(&servers).await];
        go_round([&client(&ways, Some("user")), &client(&ways, Some("user"))]).await;
        let after = [published(&servers[without]).await, published_by_most(&servers).await];
        let offered = after[1] - before[1];
        // The queue's node notifies the holder of waiters. If it may not publish, the lock is released
        // instead.
        if without == home {
            assert_eq!(offered, 0, "the node with the queue may not publish");
        } else {
            assert!(offered > RELEASES as u64 / 8, "{offered} offers of {RELEASES} releases");
        }
    }
}

/// As a monitoring program does. Messages still reach the inboxes, and no vote is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_offered_despite_a_subscriber_to_all_channels() {
    let (servers, ways) = far(5).await;
    if !servers.kind().is_real() {
        return println!("skipped: {} has no patterns of channels", servers.kind());
    }
    let mut monitors = Vec::new();
    for server in servers.iter() {
        monitors.push(monitor(server).await);
    }
    go_round([&client(&ways, None), &client(&ways, None)]).await;
    let sent = published_by_most(&servers).await;
    assert!(sent > RELEASES as u64 / 8, "{sent} offers of {RELEASES} releases");
    drop(monitors);
}

/// Subscribes to all channels, as a monitoring program may.
async fn monitor(server: &Server) -> TcpStream {
    let mut monitor = TcpStream::connect(server.address()).await.unwrap();
    let words = format!("AUTH {}\r\nPSUBSCRIBE *\r\n", server.password().unwrap());
    monitor.write_all(words.as_bytes()).await.unwrap();
    monitor.read_exact(&mut [0; "+OK\r\n*".len()]).await.unwrap();
    monitor
}

/// A monitor that subscribes to all channels receives the messages to a dead waiter. It must not count
/// as a waiter.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_waiter_gets_no_offer_despite_a_subscriber_to_all() {
    let servers = Servers::start(1).await.unwrap();
    if !servers.kind().is_real() {
        return println!("skipped: {} has no patterns of channels", servers.kind());
    }
    let _monitor = monitor(&servers[0]).await;
    let node = RedisNode::new(Address::parse(&servers[0].url()).unwrap());
    let claim = |number| Arc::new(Claim::new("r".into(), Token::new(number, "")));
    let acquire = Request::Acquire { claim: claim(1), ttl: TTL, fence_hint: None };
    assert_eq!(ask(&node, acquire).await.unwrap().vote, Vote::Granted);
    let (inbox, token) = (InboxId::new(7), claim(2).token().clone());
    let terms = OfferTerms { inbox, prefix_len: 0, life: TTL, fenced: false, token };
    let next = Arc::new(NextWaiter { waiter: WaiterId::new(7), terms });
    let offer = Request::Offer { claim: claim(1), next, queued: false, fence_hint: None };
    assert_eq!(ask(&node, offer).await.unwrap().vote, Vote::Granted, "it is released");
    assert_eq!(servers[0].command(&["EXISTS", "r"]).await.unwrap().to_string(), "0");
}

/// Each server is restarted empty as soon as the previous one votes again. Waiters take no vote of a
/// node that has lost the lock, and regain their places in the queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_with_32_waiters_survives_a_rolling_restart() {
    let (servers, ways) = far(5).await;
    // On a busy machine it is renewed late.
    let ttl = scaled(TTL);
    let holder = client_with(&ways, None, ttl);
    until("a vote", async || lock(&holder).try_acquire().await.is_ok_and(|it| it.is_some())).await;
    let held = lock(&holder).acquire().await.unwrap();
    let number = held.fencing_token();
    let waiting: Vec<_> = (0..32)
        .map(|_| {
            let client = client_with(&ways, None, ttl);
            tokio::spawn(async move {
                let lease = client.lock("r").wait(Wait::Forever).acquire().await.unwrap();
                let number = lease.fencing_token();
                lease.release().await.unwrap();
                number
            })
        })
        .collect();
    let all_wait = async || lock(&holder).waiters().await.is_ok_and(|seen| seen.waiters.len() == 32);
    until("32 waiters", all_wait).await;
    for server in servers.iter() {
        server.restart_empty().await.unwrap();
        // The server reports its age in whole seconds.
        pause(ttl + Duration::from_secs(2)).await;
        assert_eq!(held.check(), Ok(()));
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "there were two holders");
        until("32 waiters", all_wait).await;
    }
    held.release().await.unwrap();
    let mut numbers = vec![number];
    for waiting in waiting {
        numbers.push(waiting.await.unwrap());
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((numbers.len(), numbers[0]), (33, number), "each has its own number, above the holder's");
}
