//! Connections and sessions that end, members that die, and data that are replaced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{NodeError, Request, Seams, Vote, ask};
use quorlock::protocol::{Claim, WaiterId};
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{Coordinator, LossReason, Wait};
use quorlock_testkit::{Proxy, Way, patience, scaled, until};
use quorlock_zookeeper::{ZooKeeperKind, ZooKeeperNode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::foreign::{BASE, Foreign, dir};
use crate::ordered::{self, TTL, acquire, answer, claim, identity, of, renew};
use crate::queue::process;
use crate::support::{SESSION, common, ensemble, node, programs, url};

fn node_at(address: SocketAddr) -> ZooKeeperNode {
    ZooKeeperNode::new(&format!("zookeeper://{address}{BASE}?session={SESSION}s"), &Seams::default()).unwrap()
}

/// What was created by a request without an answer is deleted over the next connection.
#[tokio::test]
async fn nothing_is_left_of_requests_whose_answer_was_lost() {
    let Some(cluster) = common().await else { return };
    let foreign = Foreign::of(cluster).await;
    let proxy = Proxy::start(cluster.address(0)).await.unwrap();
    let node = node_at(proxy.address());
    let (name, lost) = ("lost/answer", claim("lost/answer", 1));
    for waits in [false, true] {
        // From then on it need not look before it acquires.
        assert_eq!(answer(&node, acquire(&claim(name, 2))).await.vote, Vote::Granted);
        assert_eq!(answer(&node, Request::Release { claim: claim(name, 2) }).await.vote, Vote::Granted);
        proxy.hold(Way::ToClient);
        let request = if waits {
            Request::enqueue(name.into(), WaiterId::new(7), Duration::ZERO, TTL, TTL)
        } else {
            acquire(&lost)
        };
        let asked = ask(&node, request.clone());
        let carried_out = async {
            let there = async || foreign.places(&dir(name)).await.unwrap().len() == 1;
            until("what the request creates", there).await;
            proxy.cut();
            proxy.heal();
        };
        let (asked, ()) = futures::join!(asked, carried_out);
        assert!(asked.as_ref().is_err_and(NodeError::may_have_acted), "{asked:?}");
        // Before anything else is answered.
        let found = answer(&node, Request::inspect(name)).await.vote;
        assert_eq!(found, Vote::Free, "waits: {waits}");
        assert!(foreign.places(&dir(name)).await.unwrap().is_empty(), "waits: {waits}");
        assert_eq!(
            answer(&node, Request::Cancel { claim: lost.clone(), linger: TTL }).await.vote,
            Vote::Free
        );
    }
    assert_eq!(answer(&node, acquire(&claim(name, 2))).await.vote, Vote::Granted);
}

#[tokio::test]
async fn a_session_that_has_ended_takes_its_locks_with_it() {
    let Some(cluster) = common().await else { return };
    let proxy = Proxy::start(cluster.address(0)).await.unwrap();
    let (node, other) = (Arc::new(node_at(proxy.address())), node(cluster));
    let (name, holder) = ("ended/session", claim("ended/session", 1));
    answer(&node, acquire(&holder)).await;
    let lease = of(node.clone()).lock("ended/lease").acquire().await.unwrap();
    proxy.hold(Way::Both);
    let taken = async || answer(&other, acquire(&claim(name, 2))).await.vote == Vote::Granted;
    until("the end of the session", taken).await;
    let lost = lease.lost().await;
    assert_ne!(lost.reason, LossReason::Released, "{lost}");
    proxy.cut();
    proxy.heal();
    let found = answer(&node, renew(&holder)).await;
    assert!(matches!(found.vote, Vote::Held(_)), "{found:?}");
    answer(&other, Request::Release { claim: claim(name, 2) }).await;
    assert_eq!(answer(&node, renew(&holder)).await.vote, Vote::Restored);
    assert_eq!(answer(&node, renew(&holder)).await.vote, Vote::Granted);
}

/// It has the name and the token of an attempt of ours, and goes with the session that made it.
#[tokio::test]
async fn a_place_of_another_session_is_not_taken_for_ones_own() {
    let Some(cluster) = common().await else { return };
    let (node, foreign) = (node(cluster), Foreign::of(cluster).await);
    let holder = claim("old/place", 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978);
    for request in [acquire(&holder), renew(&holder)] {
        let old = Foreign::of(cluster).await;
        old.make(&dir("old/place")).await.unwrap();
        let path = format!("{}/_c_01234567-89ab-cdef-0f1e-2d3c4b5a6978-lock-", dir("old/place"));
        let path = old.create(&path, holder.token().as_bytes(), 3).await.unwrap();
        assert_eq!(answer(&node, request).await.vote, Vote::Granted);
        old.close().await;
        let places = foreign.places(&dir("old/place")).await.unwrap();
        assert!(places.len() == 1 && places[0] != path, "{places:?}");
        assert_eq!(answer(&node, renew(&holder)).await.vote, Vote::Granted);
        answer(&node, Request::Release { claim: holder.clone() }).await;
    }
}

/// Passes messages on, and asks for a new session where the client wants to continue one.
async fn forgetful(member: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let Ok(mut server) = TcpStream::connect(member).await else { continue };
            tokio::spawn(async move {
                let mut greeting = [0; 49];
                client.read_exact(&mut greeting).await?;
                // The number of the session, and its password.
                greeting[20..28].fill(0);
                greeting[32..48].fill(0);
                server.write_all(&greeting).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    address
}

#[tokio::test]
async fn another_session_in_the_place_of_the_old_one_is_noticed() {
    let Some(cluster) = common().await else { return };
    let (foreign, proxy) =
        (Foreign::of(cluster).await, Proxy::start(forgetful(cluster.address(0)).await).await.unwrap());
    let node = node_at(proxy.address());
    let holder = claim("another/session", 1);
    answer(&node, acquire(&holder)).await;
    let owner = async || {
        let places = foreign.places(&dir("another/session")).await.unwrap();
        foreign.get(places.first()?).await.unwrap().map(|(_, owner)| owner)
    };
    let before = owner().await.unwrap();
    proxy.cut();
    // The old session lives for a while, and its place with it.
    let replaced = async || {
        let renewed = answer(&node, renew(&holder)).await;
        assert!(matches!(renewed.vote, Vote::Granted | Vote::Restored), "{renewed:?}");
        owner().await.is_some_and(|owner| owner != before)
    };
    until("a place of the new session", replaced).await;
    let clock = SystemClock::default();
    clock.sleep_until(clock.now() + Duration::from_secs(SESSION) * 3 / 2).await;
    assert_eq!(answer(&node, renew(&holder)).await.vote, Vote::Granted);
    assert!(owner().await.is_some());
}

/// More than the servers and clients of ZooKeeper take in one message unless they are told to (`jute.maxbuffer`, 1 MB).
#[tokio::test]
async fn a_process_may_hold_more_than_fits_into_a_usual_message() {
    const LOCKS: u128 = 1300;
    let Some(cluster) = common().await else { return };
    let node = node(cluster);
    let claims: Vec<_> =
        (0..LOCKS).map(|number| claim(&format!("many/{}/{number}", "n".repeat(850)), number + 1)).collect();
    // Longer than a busy machine takes for all of them.
    let ttl = patience() * 2;
    let acquire = |claim: &Arc<Claim>| Request::Acquire { claim: Arc::clone(claim), ttl, fence_hint: None };
    // As many at a time as a busy machine answers in time; what it does not, is asked again.
    for some in claims.chunks(50) {
        let granted = some.iter().map(|claim| answer(&node, acquire(claim)));
        for response in futures::future::join_all(granted).await {
            assert_eq!(response.vote, Vote::Granted);
        }
    }
    for claim in &claims {
        assert_eq!(answer(&node, renew(claim)).await.vote, Vote::Granted);
    }
}

#[tokio::test]
async fn a_restart_of_all_members_forgets_nothing() {
    if std::env::var_os("QUORLOCK_CUTS").is_none() {
        return eprintln!(
            "skipped: three members that start together take a minute: scripts/nightly zookeeper"
        );
    }
    let Some(programs) = programs() else { return };
    // The members take longer to start than a short session lasts.
    let cluster = programs.start_with(3, &["tickTime=2000"]).await.unwrap();
    let url = format!("{}{BASE}?session=40s", cluster.url());
    let node = ZooKeeperNode::new(&url, &Seams::default()).unwrap();
    let ttl = Duration::from_secs(40);
    let acquire = |claim: &Arc<Claim>| Request::Acquire { claim: Arc::clone(claim), ttl, fence_hint: None };
    let holder = claim("a", 1);
    let before = answer(&node, acquire(&holder)).await;
    (0..3).for_each(|member| cluster.kill(member));
    let restarts = (0..3).map(|member| cluster.restart(member));
    futures::future::try_join_all(restarts).await.unwrap();
    let after = answer(&node, acquire(&claim("a", 2))).await;
    assert!(matches!(&after.vote, Vote::Held(holding) if holding.token == *holder.token()), "{after:?}");
    assert_eq!(before.identity.id, after.identity.id);
}

#[tokio::test]
async fn a_restored_backup_is_a_new_history_to_clients_that_lived_through_it() {
    let Some(cluster) = ensemble(3).await else { return };
    let knows = node(&cluster);
    let before = identity(&knows).await;
    answer(&knows, acquire(&claim("a", 1))).await;
    answer(&knows, Request::Release { claim: claim("a", 1) }).await;
    (0..3).for_each(|member| cluster.kill(member));
    let backup = cluster.backup().unwrap();
    let restart = async || {
        futures::future::try_join_all((0..3).map(|member| cluster.restart(member))).await.unwrap();
    };
    restart().await;
    assert_eq!(identity(&knows).await.id, before.id, "nothing is lost yet");
    // What the backup lacks.
    answer(&knows, acquire(&claim("a", 2))).await;
    (0..3).for_each(|member| cluster.kill(member));
    cluster.restore(&backup).unwrap();
    let restored = SystemClock::default().now();
    restart().await;
    ordered::is_another_history(&knows, || node(&cluster), (before, restored)).await;
}

/// A server gives the largest number to all places that come after, so that nothing would say which of them is first.
#[tokio::test]
async fn a_lock_whose_places_have_no_more_numbers_is_refused() {
    let (Some(programs), Some(cluster)) = (programs(), ensemble(1).await) else { return };
    let (name, before) = ("counted", node(&cluster));
    assert_eq!(answer(&before, acquire(&claim(name, 1))).await.vote, Vote::Granted);
    assert_eq!(answer(&before, Request::Release { claim: claim(name, 1) }).await.vote, Vote::Granted);
    drop(before);
    cluster.kill(0);
    let backup = cluster.backup().unwrap();
    let mut counted = programs.java(None);
    counted.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/Counted.java"));
    counted.arg(backup.join("0")).args([&dir(name), &(i32::MAX - 1).to_string()]);
    assert!(counted.status().unwrap().success(), "the data were not changed");
    cluster.restore(&backup).unwrap();
    cluster.restart(0).await.unwrap();
    let node = node(&cluster);
    identity(&node).await;
    // The last that has a number of its own, as one of two that ask at the same time.
    let (one, other) =
        futures::join!(ask(&node, acquire(&claim(name, 2))), ask(&node, acquire(&claim(name, 3))));
    let granted =
        [&one, &other].map(|answer| answer.as_ref().is_ok_and(|answer| answer.vote == Vote::Granted));
    assert!(granted.contains(&true) && granted.contains(&false), "{one:?} {other:?}");
    let wait = Request::enqueue(name.into(), WaiterId::new(7), Duration::ZERO, TTL, TTL);
    let refused = ask(&node, wait).await.unwrap_err();
    assert!(refused.is_permanent() && refused.to_string().contains("delete the node"), "{refused}");
    let held = if granted[0] { claim(name, 2) } else { claim(name, 3) };
    assert_eq!(answer(&node, Request::Release { claim: held }).await.vote, Vote::Granted);
    let refused = ask(&node, acquire(&claim(name, 4))).await.unwrap_err();
    assert!(refused.is_permanent() && !refused.may_have_acted(), "{refused}");
    assert!(Foreign::of(&cluster).await.places(&dir(name)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_new_history_grows_old_without_a_client_that_stays() {
    let Some(cluster) = ensemble(1).await else { return };
    for (drift, max_ttl) in [(0.01, TTL), (0.1, TTL * 4)] {
        let url = format!("{}/aging-{drift}?session={SESSION}s", cluster.url());
        let builder = || Coordinator::builder().kind(ZooKeeperKind::new()).nodes([&url]);
        ordered::grows_old(builder, drift, max_ttl).await;
    }
}

/// Whether they have lived through it themselves.
#[tokio::test]
async fn clients_that_come_later_count_the_time_that_others_have_lived_through() {
    let Some(cluster) = ensemble(1).await else { return };
    let clock = SystemClock::default();
    // A quarter of it passes after the second has come, and three are for a busy machine.
    let ttl = (TTL * 2).max(scaled(TTL / 2));
    let url = format!("{}/lived?session={SESSION}s", cluster.url());
    let client = || {
        let client = Coordinator::builder().kind(ZooKeeperKind::new()).nodes([&url]).ttl(TTL).max_ttl(ttl);
        client.build().unwrap().lock("a").wait(Wait::UpTo(patience()))
    };
    let (begun, first) = (clock.now(), client());
    let lived = tokio::spawn(async move { first.acquire().await.map(|lease| (lease, first)) });
    clock.sleep_until(begun + ttl * 3 / 4).await;
    let (came, second) = (clock.now(), client());
    let comes_later = tokio::spawn(async move { second.acquire().await.map(drop) });
    let (lease, first) = lived.await.unwrap().unwrap();
    lease.release().await.unwrap();
    comes_later.await.unwrap().unwrap();
    let (waited, alone) = (clock.now().since(begun), clock.now().since(came));
    assert!(waited >= ttl && alone < ttl, "it voted after {waited:?}, of which it was there for {alone:?}");
    // `young` may still be there, and what is noted may be a tenth of a second behind.
    let asked = clock.now();
    drop(client().acquire().await.unwrap());
    let waited = clock.now().since(asked);
    assert!(waited < ttl, "it began to count again: {waited:?}");
    drop(first);
}

/// Curator waits for it without an end, and so does no client of ours without saying so.
#[tokio::test]
async fn a_place_without_a_session_is_named_and_can_be_released() {
    let Some(cluster) = common().await else { return };
    let (foreign, name) = (Foreign::of(cluster).await, "without/session");
    foreign.make(&dir(name)).await.unwrap();
    foreign.create(&format!("{}/x-lock-", dir(name)), b"", 2).await.unwrap();
    let client = process(cluster);
    let lock = client.lock(name).wait(Wait::Forever);
    let error = lock.acquire().await.unwrap_err().to_string();
    assert!(error.contains("never expires") && error.contains("release --force"), "{error}");
    let holder = lock.inspect().await.unwrap().holder().unwrap();
    lock.revoke(&holder.token).await.unwrap();
    drop(lock.acquire().await.unwrap());
}

/// Such as an administrator sets for other programs.
#[tokio::test]
async fn servers_that_grant_very_long_sessions_can_be_locked_on() {
    let Some(programs) = programs() else { return };
    let cluster = programs.start_with(1, &["maxSessionTimeout=60000000"]).await.unwrap();
    let node = ZooKeeperNode::new(&format!("{}{BASE}?session=8s", cluster.url()), &Seams::default()).unwrap();
    let claim = claim("a", 1);
    let request = Request::Acquire { claim: claim.clone(), ttl: Duration::from_secs(8), fence_hint: None };
    assert_eq!(answer(&node, request).await.vote, Vote::Granted);
}

#[tokio::test]
async fn a_waiter_keeps_its_place_when_its_member_dies() {
    let Some(cluster) = ensemble(3).await else { return };
    let foreign = Foreign::of(&cluster).await;
    // Every client is connected to the first member.
    ordered::keep_their_places(|| process(&cluster), &foreign, |_| cluster.kill(0)).await;
}

#[tokio::test]
async fn the_session_ends_with_the_last_handle() {
    let Some(cluster) = common().await else { return };
    let foreign = Foreign::of(cluster).await;
    let node = node(cluster);
    answer(&node, acquire(&claim("last/handle", 1))).await;
    let clock = SystemClock::default();
    let dropped = clock.now();
    drop(node);
    let gone = async || foreign.places(&dir("last/handle")).await.unwrap().is_empty();
    until("the end of the session", gone).await;
    let passed = clock.now().since(dropped);
    assert!(passed < Duration::from_secs(SESSION), "only its timeout has ended it, after {passed:?}");
}

#[tokio::test]
async fn what_cannot_vote_says_why() {
    let Some(cluster) = common().await else { return };
    let at = |url: &str| ZooKeeperNode::new(url, &Seams::default()).unwrap();
    let refusal = async |url: &str| ordered::refusal(&at(url)).await;
    ordered::other_servers_are_known(refusal, "zookeeper", "no ZooKeeper serves at").await;
    let error = refusal(&format!("{}?session=500ms", cluster.url())).await;
    assert!(error.contains("write `?session=1s`"), "{error}");
    assert_eq!(refusal(&url(cluster)).await, "connected");
}

/// Nodes of a user who has logged in are for no other user.
#[tokio::test]
async fn a_lock_of_a_user_is_for_that_user() {
    let Some(cluster) = common().await else { return };
    let url = |login: &str| format!("zookeeper://{login}{}/private?session={SESSION}s", cluster.endpoints());
    let of = |login: &str| ZooKeeperNode::new(&url(login), &Seams::default()).unwrap();
    let (ann, again) = (of("ann:secret@"), of("ann:secret@"));
    assert_eq!(answer(&ann, acquire(&claim("a", 1))).await.vote, Vote::Granted);
    assert!(matches!(answer(&again, acquire(&claim("a", 2))).await.vote, Vote::Held(_)));
    for login in ["", "ann:wrong@", "bob:secret@"] {
        let error = ask(&of(login), acquire(&claim("a", 3))).await.unwrap_err();
        let refusal = format!("{error:#}");
        assert!(refusal.contains("log in as a user") && !refusal.contains("secret"), "{login}: {refusal}");
    }
}

#[tokio::test]
async fn each_member_that_refuses_connections_is_named_to_all_callers() {
    ordered::are_named_if_they_refuse(ZooKeeperKind::new(), |members| format!("zookeeper://{members}/x"))
        .await;
}
