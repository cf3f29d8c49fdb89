//! Locks of several resources, on real servers.

use futures::future::join_all;
use quorlock::{
    AcquireError, Coordinator, MultiLock, Wait,
    runtime::{Clock as _, SystemClock},
};
use quorlock_testkit::{Kind, Servers, patience, until};

use crate::world::{World, client, count, scripts_run};

fn all(coordinator: &Coordinator, names: &[&str]) -> MultiLock {
    coordinator.lock_all(names).wait(Wait::UpTo(patience()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_stores_none_of_several() {
    let world = World::start(3).await;
    world.warm_up().await;
    if !is_real(&world) {
        return println!("skipped: the built-in server has no memory limit");
    }
    for server in world.servers.iter() {
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    }
    let error = all(&world.coordinator, &["a", "b"]).wait(Wait::Never).acquire().await.unwrap_err();
    assert!(error.to_string().contains("out of memory"), "{error}");
    assert_eq!([count(&world.servers, "a").await, count(&world.servers, "b").await], [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_to_one_key_is_an_error_and_stores_nothing() {
    let world = World::start(1).await;
    world.warm_up().await;
    let rights = ["ACL", "SETUSER", "anna", "on", ">secret", "~a*", "&a*", "~*:fence:*", "+@all"];
    if !world.servers[0].command(&rights).await.is_ok_and(|reply| reply.to_string() == "OK") {
        return println!("skipped: this server has no users with rights to channels");
    }
    let anna = client(&[world.servers[0].url_as("anna:secret")], |builder| builder);
    let error = all(&anna, &["a", "b"]).acquire().await.unwrap_err();
    assert!(matches!(error, AcquireError::Misconfigured { .. }), "{error}");
    assert!(error.to_string().contains("the user `anna` may not"), "{error}");
    assert_eq!([count(&world.servers, "a").await, count(&world.servers, "b").await], [0, 0]);
    drop(all(&anna, &["a"]).acquire().await.unwrap());
}

/// Some servers notify of every key that a script names, including keys that the waiter does not wait
/// for.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_another_resource_cause_no_request() {
    let world = World::start(3).await;
    if !is_real(&world) {
        return println!("skipped: the built-in server does not count scripts");
    }
    let holder = client(&world.servers.urls(), |builder| builder);
    let held = all(&holder, &["b"]).acquire().await.unwrap();
    let lock = all(&world.coordinator, &["a", "b"]);
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    until("it waits", async || asked(&world.servers).await > 3).await;
    let (clock, before) = (SystemClock::default(), asked(&world.servers).await);
    let began = clock.now();
    for _ in 0..100 {
        for server in world.servers.iter() {
            server.command(&["SET", "a", "other", "PX", "60000"]).await.unwrap();
            server.command(&["DEL", "a"]).await.unwrap();
        }
    }
    // At most one heartbeat per second, each of which may ask all nodes and undo the attempt.
    let heartbeats = clock.now().since(began).as_secs() + 2;
    let more = asked(&world.servers).await - before;
    assert!(more <= heartbeats * 7, "{more} scripts for {heartbeats} heartbeats at the most");
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

fn is_real(world: &World) -> bool {
    matches!(world.servers.kind(), Kind::Program { .. })
}

/// How many scripts all servers have run.
async fn asked(servers: &Servers) -> u64 {
    join_all(servers.iter().map(scripts_run)).await.into_iter().sum()
}
