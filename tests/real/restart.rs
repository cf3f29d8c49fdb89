//! The restart guard on real servers.

use std::time::Duration;

use quorlock::{AcquireError, Coordinator, RestartGuard, Said, Wait};
use quorlock_testkit::{Servers, eventually};

use crate::world::{DEADLINE, World, client};

/// Short, so that the quarantine is.
const MAX_TTL: Duration = Duration::from_secs(2);

fn guarded(servers: &Servers, guard: RestartGuard) -> Coordinator {
    client(&servers.urls(), |builder| builder.ttl(MAX_TTL).max_ttl(MAX_TTL).restart_guard(guard))
}

/// Holds the lock at servers 0, 1 and 2 only, renews it, and lets server 0 forget it.
async fn forget(world: &World, holder: &Coordinator) -> quorlock::Lease {
    let lock = holder.lock("r").ttl(MAX_TTL).wait(Wait::UpTo(DEADLINE));
    for server in &world.servers[3..] {
        server.freeze().unwrap();
    }
    let lease = lock.acquire().await.unwrap();
    for server in &world.servers[3..] {
        server.restart_empty().await.unwrap();
    }
    world.servers[0].restart_empty().await.unwrap();
    lease
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restarted_empty_within_max_ttl_does_not_vote() {
    let world = World::start(5).await;
    let holder = guarded(&world.servers, RestartGuard::On);
    // The servers themselves are too young at first.
    let young = holder.lock("r").try_acquire().await.unwrap_err();
    assert!(young.to_string().contains("restarted too recently to vote"), "{young}");
    eventually("the end of the first quarantine", DEADLINE, async || {
        matches!(holder.lock("r").try_acquire().await, Ok(Some(_)))
    })
    .await
    .unwrap();

    let lock = holder.lock("r").ttl(MAX_TTL).wait(Wait::UpTo(DEADLINE));
    let lease = lock.acquire().await.unwrap();
    for server in &world.servers[2..] {
        server.restart_empty().await.unwrap();
    }
    let other = guarded(&world.servers, RestartGuard::On);
    let error = other.lock("r").try_acquire().await.unwrap_err();
    let AcquireError::Unavailable { ballot, .. } = &error else { panic!("{error}") };
    let quarantined = ballot.papers().iter().filter(|paper| matches!(paper.said, Said::Quarantined { .. }));
    assert_eq!(quarantined.count(), 3, "{error}");
    drop(lease);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_guard_off_a_restart_makes_two_holders() {
    let world = World::start(5).await;
    let holder = guarded(&world.servers, RestartGuard::Off);
    let held = forget(&world, &holder).await;
    let other = guarded(&world.servers, RestartGuard::Off);
    let second = other.lock("r").ttl(MAX_TTL).wait(Wait::Never).acquire().await.unwrap();
    assert!(second.check().is_ok());
    // The first one learns at its next renewal. Until then both believe they hold.
    held.lost().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_is_another_instance_and_nothing_is_sent_twice() {
    let world = World::start(1).await;
    let lease = world.lock().acquire().await.unwrap();
    world.servers[0].restart_empty().await.unwrap();
    // The renewal finds the key gone and stores it anew, which does not confirm it.
    eventually("a renewal that reaches the new process", DEADLINE, async || {
        let Err(error) = lease.renew().await else { return true };
        error.to_string().contains("had lost the key")
            || error.to_string().contains("somebody else may hold it")
    })
    .await
    .unwrap();
}
