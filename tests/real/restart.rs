//! The restart guard on real servers.

use std::time::Duration;

use quorlock::protocol::gate;
use quorlock::{AcquireError, Coordinator, Renewal, RestartGuard, Wait, doctor::Check, votes::VoteOutcome};
use quorlock_testkit::{Servers, patience, until};

use crate::world::{World, client, quarantined};

/// Short, to keep the quarantine short.
const MAX_TTL: Duration = Duration::from_secs(2);

fn guarded(servers: &Servers) -> Coordinator {
    client(&servers.urls(), |builder| builder.ttl(MAX_TTL).max_ttl(MAX_TTL).restart_guard(RestartGuard::On))
}

/// Holds the lock, and deletes it on all servers but two. Renewals would store it again.
async fn forget(world: &World) -> quorlock::Lease {
    let lease = world.lock().renewal(Renewal::Manual).acquire().await.unwrap();
    world.wait_for_keys(5).await;
    for server in &world.servers[2..] {
        server.restart_empty().await.unwrap();
    }
    lease
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restarted_empty_within_max_ttl_does_not_vote() {
    let world = World::start(5).await;
    let holder = guarded(&world.servers);
    // The servers themselves are too young at first.
    let young = holder.lock("r").try_acquire().await.unwrap_err();
    assert!(young.to_string().contains("restarted or first used too recently to vote"), "{young}");
    until("the end of the first quarantine", async || {
        matches!(holder.lock("r").try_acquire().await, Ok(Some(_)))
    })
    .await;

    // Renewals would store it again on the servers that have restarted.
    let lock = holder.lock("r").ttl(MAX_TTL).renewal(Renewal::Manual).wait(Wait::UpTo(patience()));
    let lease = lock.acquire().await.unwrap();
    for server in &world.servers[2..] {
        server.restart_empty().await.unwrap();
    }
    let other = guarded(&world.servers);
    let error = other.lock("r").try_acquire().await.unwrap_err();
    assert_eq!(quarantined(&error), 3, "{error}");
    // Once they are old enough, the lease has ended.
    let second = other.lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    assert!(lease.check().is_err() && second.check().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_guard_off_a_restart_makes_two_holders() {
    let world = World::start(5).await;
    let held = forget(&world).await;
    let other = client(&world.servers.urls(), |builder| builder);
    let second = other.lock("r").wait(Wait::Never).acquire().await.unwrap();
    // The first one would notice at its next renewal.
    assert!(held.check().is_ok() && second.check().is_ok(), "two holders: the test above proves something");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_is_another_instance_and_confirms_no_renewal() {
    let world = World::start(1).await;
    let lease = world.lock().acquire().await.unwrap();
    world.servers[0].restart_empty().await.unwrap();
    // The renewal finds the key missing and stores it again, which does not confirm it.
    until("a renewal that reaches the new process", async || {
        let error = lease.renew().await.expect_err("the new process does not have the key");
        error.to_string().contains("had lost the key")
            || error.to_string().contains("another client may hold the lock")
    })
    .await;
}

/// A client that takes the operator's word, and would otherwise wait an hour for a server that has just started.
fn trusting(servers: &Servers) -> Coordinator {
    let urls: Vec<String> = servers.urls().iter().map(|url| format!("{url}?forgets=never")).collect();
    client(&urls, |builder| builder.restart_guard(RestartGuard::On))
}

#[tokio::test(flavor = "multi_thread")]
async fn i53_by_the_operators_word_servers_that_restart_with_their_data_vote_immediately() {
    let servers = Servers::setup().durable().start(3).await.unwrap();
    let (holder, other) = (trusting(&servers), trusting(&servers));
    let lease = holder.lock("held").renewal(Renewal::Manual).try_acquire().await.unwrap().unwrap();
    for server in servers.iter() {
        server.restart_with_data().await.unwrap();
    }
    let free = other.lock("free").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    drop(free);
    assert!(other.lock("held").try_acquire().await.unwrap().is_none(), "no server has forgotten it");
    until("a renewal at the new processes", async || lease.renew().await.is_ok()).await;
    // Without that word, all of them are too young.
    let guarded = client(&servers.urls(), |builder| builder.restart_guard(RestartGuard::On));
    let error = guarded.lock("free").try_acquire().await.unwrap_err();
    assert!(quarantined(&error) >= 2, "{error}");
    let names: Vec<String> = other.health().now().iter().map(|node| node.node.to_string()).collect();
    assert!(names.iter().all(|name| name.ends_with("?forgets=never")), "{names:?}");
    let examined = other.doctor().await;
    let words = examined.findings.iter().filter(|finding| finding.check == Check::NeverForgets).count();
    assert_eq!(words, 3, "{:?}", examined.findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn i53_by_the_operators_word_a_node_votes_right_after_a_new_connection() {
    let servers = Servers::start(1).await.unwrap();
    let (client, server) = (trusting(&servers), &servers[0]);
    client.lock("r").try_acquire().await.unwrap().unwrap().release().await.unwrap();
    // As of another client that has met the process in the same moment.
    let key = gate("").replace("reign", "start");
    let note = server.command(&["GET", &key]).await.unwrap().to_string();
    let mut words = note.split(' ');
    let process = words.next().unwrap();
    let later: Vec<String> = words.map(|time| (time.parse::<u64>().unwrap() + 1).to_string()).collect();
    let another = format!("{process} {}", later.join(" "));
    server.command(&["SET", &key, &another]).await.unwrap();
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    let granted = async || client.lock("r").try_acquire().await.is_ok_and(|lease| lease.is_some());
    until("a vote over a new connection", granted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_false_word_that_servers_never_forget_makes_two_holders() {
    let servers = Servers::start(3).await.unwrap();
    let (holder, other) = (trusting(&servers), trusting(&servers));
    let held = holder.lock("r").renewal(Renewal::Manual).try_acquire().await.unwrap().unwrap();
    for server in &servers[..] {
        server.restart_empty().await.unwrap();
    }
    let second = other.lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    assert!(held.check().is_ok() && second.check().is_ok(), "two holders: the test above proves something");
}

const HOUR: Duration = Duration::from_secs(3600);

fn with_max_ttl(world: &World, max_ttl: Duration) -> Coordinator {
    client(&world.servers.urls(), |builder| {
        builder.ttl(MAX_TTL).max_ttl(max_ttl).restart_guard(RestartGuard::On)
    })
}

/// The findings of a client about other clients with a different `max_ttl`.
fn found(coordinator: &Coordinator) -> Vec<String> {
    let noticed = coordinator.warnings().into_iter();
    noticed.filter(|finding| finding.check == Check::MaxTtl).map(|finding| finding.evidence).collect()
}

/// Restarts two of three servers, which lose their notes, and waits until the client counts neither for an hour.
async fn waits_an_hour_for_restarted_servers(world: &World, coordinator: &Coordinator) {
    for server in &world.servers[..2] {
        server.restart_empty().await.unwrap();
    }
    let waits_an_hour = async || {
        let Err(AcquireError::Unavailable { report, .. }) = coordinator.lock("r").try_acquire().await else {
            return false;
        };
        let long =
            |reply: &VoteOutcome| matches!(reply, VoteOutcome::Quarantined { left, .. } if *left > HOUR / 2);
        report.votes().iter().filter(|vote| long(&vote.outcome)).count() >= 2
    };
    until("two nodes that do not vote for an hour", waits_an_hour).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i37_differing_max_ttl_warns_and_the_larger_one_counts() {
    let world = World::start(3).await;
    let with = |max_ttl| with_max_ttl(&world, max_ttl);
    let alone = with(MAX_TTL);
    drop(alone.lock("r").inspect().await);
    assert_eq!(found(&alone), [""; 0]);

    let longer = with(HOUR);
    drop(longer.lock("r").inspect().await);
    until("it finds the shorter one", async || !found(&longer).is_empty()).await;
    let warnings = found(&longer);
    assert!(warnings[0].contains("max_ttl is 1h here, and another client has 2s"), "{warnings:?}");

    let shorter = with(MAX_TTL);
    drop(shorter.lock("r").inspect().await);
    until("it finds the longer one", async || !found(&shorter).is_empty()).await;
    let warnings = found(&shorter);
    assert!(warnings[0].contains("max_ttl is 2s here, and another client has 1h"), "{warnings:?}");
    let examined = shorter.doctor().await;
    assert_eq!(examined.findings.iter().filter(|finding| finding.check == Check::MaxTtl).count(), 1);

    waits_an_hour_for_restarted_servers(&world, &shorter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i37_a_larger_max_ttl_that_comes_later_is_learnt_by_those_who_are_connected() {
    let world = World::start(3).await;
    let shorter = with_max_ttl(&world, MAX_TTL);
    drop(shorter.lock("r").inspect().await);
    let connected = async || shorter.health().now().iter().all(|node| node.identity.is_some());
    until("it is connected to all", connected).await;
    assert_eq!(found(&shorter), [""; 0]);

    let longer = with_max_ttl(&world, HOUR);
    drop(longer.lock("r").inspect().await);
    until("it finds the longer one", async || !found(&shorter).is_empty()).await;
    let warnings = found(&shorter);
    assert!(warnings[0].contains("max_ttl is 2s here, and another client has 1h"), "{warnings:?}");
    // No node may tell the one with the shorter again.
    drop(longer);
    waits_an_hour_for_restarted_servers(&world, &shorter).await;
}
