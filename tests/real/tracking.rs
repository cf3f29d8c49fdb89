//! What servers track for a client (CLIENT TRACKING): nothing of released locks, and the keys of leases that were renewed.
//!
//! A lock that an inspection finds free is tracked on purpose, until it is acquired: observers and
//! clients that look for a free permit wait for that.

use futures::future::{BoxFuture, join_all};
use quorlock::{
    Coordinator, Fencing, Lock, MultiLock, Wait,
    node::{Request, Vote, ask},
    redis::{Address, RedisNode},
};
use quorlock_testkit::{Kind, Servers, eventually, patience, until};

use crate::world::{HintRecorder, World, client, reported};

const NAMES: usize = 12;

/// The number of keys tracked by all servers together.
async fn remembered(world: &World) -> u64 {
    let keys = join_all(world.servers.iter().map(|server| reported(server, "tracking_total_keys:"))).await;
    keys.into_iter().map(|keys| keys.expect("the server tracks keys")).sum()
}

/// Waits for each, and releases it.
async fn acquire_and_release<K, F>(lock: Lock<K, F>) {
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// Refused, and then waited for, while another process holds it.
async fn contended<K, F>(holder: Lock<K, F>, other: Lock<K, F>) {
    let lease = holder.acquire().await.unwrap();
    let refused = other.clone().wait(Wait::Never).acquire().await;
    assert!(refused.is_err(), "it is held");
    let (next, released) = tokio::join!(other.acquire(), lease.release());
    released.unwrap();
    next.unwrap().release().await.unwrap();
}

/// Uses one or more locks of a name that is not used again, from two processes.
type Use = for<'a> fn(&'a Coordinator, &'a Coordinator, String) -> BoxFuture<'a, ()>;

fn patient<K, F>(lock: Lock<K, F>) -> Lock<K, F> {
    lock.wait(Wait::UpTo(patience()))
}

fn all(coordinator: &Coordinator, name: &str) -> MultiLock {
    patient(coordinator.lock_all(["a", "b", "c"].map(|part| format!("{name}/{part}"))))
}

const USES: &[(&str, Use)] = &[
    ("a lock", |one, _, name| Box::pin(async move { acquire_and_release(patient(one.lock(name))).await })),
    ("a lock without fencing", |one, _, name| {
        Box::pin(async move { acquire_and_release(patient(one.lock(name).fencing(Fencing::Off))).await })
    }),
    ("a contended lock", |one, two, name| {
        Box::pin(async move { contended(patient(one.lock(&name)), patient(two.lock(&name))).await })
    }),
    ("a contended lock without fencing", |one, two, name| {
        let lock = |of: &Coordinator| patient(of.lock(&name).fencing(Fencing::Off));
        let (one, two) = (lock(one), lock(two));
        Box::pin(async move { contended(one, two).await })
    }),
    ("a lock that is renewed, inspected, and handed off within its process", |one, _, name| {
        Box::pin(async move {
            let lock = patient(one.lock(name));
            let lease = lock.acquire().await.unwrap();
            lease.renew().await.unwrap();
            assert!(lock.inspect().await.unwrap().holder().is_some());
            let (next, released) = tokio::join!(lock.acquire(), lease.release());
            released.unwrap();
            next.unwrap().release().await.unwrap();
        })
    }),
    ("readers, and a writer that waits for them", |one, two, name| {
        Box::pin(async move {
            let (readers, writer) = (patient(one.lock(&name).shared()), patient(two.lock(&name)));
            let (ann, ben) = (readers.acquire().await.unwrap(), readers.acquire().await.unwrap());
            ann.renew().await.unwrap();
            ann.release().await.unwrap();
            let (next, released) = tokio::join!(writer.acquire(), ben.release());
            released.unwrap();
            next.unwrap().release().await.unwrap();
        })
    }),
    ("a writer that downgrades", |one, _, name| {
        Box::pin(async move {
            let writer = patient(one.lock(&name)).acquire().await.unwrap();
            writer.downgrade().await.unwrap().release().await.unwrap();
        })
    }),
    ("a lock of several resources", |one, _, name| {
        Box::pin(async move {
            let lease = all(one, &name).acquire().await.unwrap();
            lease.renew().await.unwrap();
            lease.release().await.unwrap();
        })
    }),
    ("a lock of several resources, contended", |one, two, name| {
        Box::pin(async move { contended(all(one, &name), all(two, &name)).await })
    }),
    ("a revoked lock", |one, two, name| {
        Box::pin(async move {
            let lease = patient(one.lock(&name)).acquire().await.unwrap();
            let report = two.lock(&name).revoke(lease.token()).await.unwrap();
            assert!(report.granted() >= report.quorum().needed(), "{report}");
            assert!(lease.renew().await.is_err());
        })
    }),
    ("a revoked lock of several resources", |one, two, name| {
        Box::pin(async move {
            let lease = all(one, &name).acquire().await.unwrap();
            let report = all(two, &name).revoke(lease.token()).await.unwrap();
            assert!(report.granted() >= report.quorum().needed(), "{report}");
            assert!(lease.renew().await.is_err());
        })
    }),
    ("a semaphore", |one, _, name| {
        Box::pin(async move {
            let semaphore = one.semaphore(&name, 2).wait(Wait::UpTo(patience()));
            let (first, second) = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
            first.release().await.unwrap();
            second.release().await.unwrap();
        })
    }),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_server_tracks_no_released_lock() {
    let world = World::start(3).await;
    if matches!(world.servers.kind(), Kind::BuiltinTask | Kind::BuiltinProcess) {
        return println!("skipped: the built-in server does not report what it tracks");
    }
    let (one, two) = (&world.coordinator, &client(&world.servers.urls(), |builder| builder));
    acquire_and_release(patient(one.lock("warm"))).await;
    acquire_and_release(patient(two.lock("warm"))).await;
    for (what, uses) in USES {
        let before = remembered(&world).await;
        for number in 0..NAMES {
            uses(one, two, format!("{what}/{number}")).await;
        }
        // Cleanups may outlive the call that started them.
        let most = format!("{what}: {before} keys, as before");
        let forgotten = eventually(&most, patience(), async || remembered(&world).await <= before).await;
        assert!(forgotten.is_ok(), "{what}: {} keys for {before} before", remembered(&world).await);
    }
}

/// The next renewal is due in twenty minutes.
#[tokio::test(flavor = "multi_thread")]
async fn i52_a_holder_that_has_renewed_hears_that_its_key_was_deleted_or_revoked() {
    let world = World::start(3).await;
    let other = client(&world.servers.urls(), |builder| builder);
    let lease = world.lock().acquire().await.unwrap();
    lease.renew().await.unwrap();
    // One after the other: each is restored before the next is deleted.
    for server in world.servers.iter() {
        server.command(&["DEL", "r"]).await.unwrap();
        world.wait_for_keys(3).await;
        lease.check().unwrap();
    }
    // After as many hints as there are nodes the next ones would have to wait. The first may join a renewal in flight.
    for _ in 0..2 {
        lease.renew().await.unwrap();
    }
    other.lock("r").revoke(lease.token()).await.unwrap();
    until("the holder knows", async || lease.check().is_err()).await;
    world.wait_for_keys(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_of_a_free_lock_is_notified_when_another_program_takes_it() {
    for kind in Kind::all_found() {
        println!("on {kind}");
        let servers = Servers::setup().kind(kind).start(1).await.unwrap();
        let node = RedisNode::new(Address::parse(&servers[0].url()).unwrap());
        let hints = HintRecorder::of(&node);
        assert_eq!(ask(&node, Request::inspect("r")).await.unwrap().vote, Vote::Free);
        servers[0].command(&["SET", "r", "theirs", "PX", "600000"]).await.unwrap();
        until("a hint", async || hints.heard().contains(&"r".to_owned())).await;
    }
}
