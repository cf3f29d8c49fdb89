//! Defects of other lock libraries on real servers, as guarantees of ours: `docs/comparison.md` lists
//! them.

use std::time::Duration;

use quorlock::{Fencing, LossReason, RestartGuard, Wait, runtime::SystemClock};
use quorlock_testkit::{Proxy, Resp, Server, Servers, SkewedClock, Way, patience, until};

use crate::world::{TTL, World, client};

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_locks_and_releases_leave_no_key() {
    let world = World::start(5).await;
    for _ in 0..2_000 {
        world.lock().acquire().await.unwrap().release().await.unwrap();
    }
    world.wait_for_keys(0).await;
}

/// The remaining lifetime of `key`.
async fn time_to_live(server: &Server, key: &str) -> Option<Duration> {
    let Resp::Number(millis) = server.command(&["PTTL", key]).await.unwrap() else { panic!("a number") };
    u64::try_from(millis).ok().map(Duration::from_millis)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_the_requested_ttl_however_it_was_stored() {
    let world = World::start(1).await;
    let server = &world.servers[0];
    let lives = async |what: &str| {
        let left = time_to_live(server, "r").await;
        let left = left.unwrap_or_else(|| panic!("{what}: the key has no expiry, or is missing"));
        // A busy machine may read it late.
        assert!(left <= TTL && left + patience() > TTL, "{what}: the key lives for {left:?}");
    };
    for fencing in [Fencing::On, Fencing::Off] {
        let lock = world.lock().fencing(fencing);
        let lease = lock.acquire().await.unwrap();
        lives("acquired").await;
        server.command(&["PEXPIRE", "r", "5000"]).await.unwrap();
        lease.renew().await.unwrap();
        lives("renewed").await;
        let lock = lock.wait(Wait::Forever);
        let next = tokio::spawn(async move { lock.acquire().await });
        tokio::task::yield_now().await;
        lease.release().await.unwrap();
        let lease = next.await.unwrap().unwrap();
        lives("passed on").await;
        server.command(&["DEL", "r"]).await.unwrap();
        // A key that was stored again does not confirm the renewal.
        lease.renew().await.unwrap_err();
        drop(lease);
        world.wait_for_keys(0).await;
    }
}

/// The keys on `server`, each of which must have an expiry, except for fencing counters.
async fn expiring_keys(server: &Server) -> String {
    let Resp::List(keys) = server.command(&["KEYS", "*"]).await.unwrap() else { panic!("a list") };
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    for key in &keys {
        let Resp::Number(left) = server.command(&["PTTL", key]).await.unwrap() else { panic!("{key}") };
        assert!((left == -1) == key.ends_with(":quorlock:fence:counter"), "`{key}` has expiry {left}");
    }
    keys.join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_stored_key_has_an_expiry() {
    let world = World::start(1).await;
    let server = &world.servers[0];
    let proxy = Proxy::before(server).await.unwrap();
    // Long enough for a request to be in flight when its time is over, however busy the machine: a
    // request that was never sent leaves nothing to clean up.
    let other = client(&[proxy.url()], |builder| builder.node_timeout(Duration::from_millis(500)));
    let held = world.lock().acquire().await.unwrap();
    assert!(other.lock("r").try_acquire().await.unwrap().is_none());
    let lock = other.lock("r").wait(Wait::Forever);
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    // The lock, its counter, the mark of a waiter, the queue, and a key for each place in it.
    for kind in ["r", "fence", "mark", "mark:order"] {
        until(kind, async || expiring_keys(server).await.contains(kind)).await;
    }
    waiting.abort();
    drop(waiting.await);
    held.release().await.unwrap();
    world.wait_for_keys(0).await;
    // The readers that share it, and a writer that waits for them.
    let shared = world.lock().shared().acquire().await.unwrap();
    let lock = other.lock("r").wait(Wait::Forever);
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    until("readers", async || expiring_keys(server).await.contains("shared")).await;
    waiting.abort();
    drop(waiting.await);
    shared.release().await.unwrap();
    world.wait_for_keys(0).await;
    // An attempt whose answer is lost with its connection, so that its result is unknown.
    proxy.hold(Way::ToClient);
    other.lock("r").try_acquire().await.unwrap_err();
    proxy.cut();
    proxy.release(Way::ToClient);
    until("a tombstone", async || expiring_keys(server).await.contains("tomb")).await;
    world.wait_for_keys(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_calendar_that_is_years_wrong_shortens_no_lock() {
    let servers = Servers::start(3).await.unwrap();
    let right = client(&servers.urls(), |builder| builder);
    for forward in [false, true] {
        let wrong = SkewedClock::new(std::sync::Arc::new(SystemClock::default()), 1.0);
        let years = Duration::from_secs(86_400 * 365 * 40);
        if forward {
            wrong.calendar_forward(years);
        } else {
            wrong.calendar_back(years);
        }
        let wrong = client(&servers.urls(), |builder| builder.clock(wrong));
        for fencing in [Fencing::On, Fencing::Off] {
            let lock = wrong.lock("r").fencing(fencing);
            let lease = lock.acquire().await.unwrap();
            for server in servers.iter().take(2) {
                until("the key", async || time_to_live(server, "r").await.is_some()).await;
                assert!(time_to_live(server, "r").await.unwrap() + patience() > TTL);
            }
            assert!(right.lock("r").try_acquire().await.unwrap().is_none(), "others must be excluded");
            lease.release().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_longer_or_shorter_than_a_token_is_foreign() {
    let world = World::start(1).await;
    let server = &world.servers[0];
    for fencing in [Fencing::On, Fencing::Off] {
        let change: [fn(&str) -> String; 3] =
            [|token| format!("{token}0"), |token| token[..token.len() - 1].to_owned(), |_| String::new()];
        for change in change {
            let lease = world.lock().fencing(fencing).acquire().await.unwrap();
            let token = String::from_utf8(lease.token().as_bytes().to_vec()).unwrap();
            let other = change(&token);
            server.command(&["SET", "r", &other, "PX", "50000"]).await.unwrap();
            lease.renew().await.expect_err("it is not ours");
            drop(lease);
            assert!(world.lock().fencing(fencing).wait(Wait::Never).try_acquire().await.unwrap().is_none());
            let left = server.command(&["GET", "r"]).await.unwrap();
            assert_eq!(left.to_string(), other, "the foreign key was changed");
            assert!(time_to_live(server, "r").await.unwrap() <= Duration::from_secs(50));
            server.command(&["DEL", "r"]).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_survives_the_loss_of_its_connections() {
    let world = World::start(3).await;
    let lease = world.lock().acquire().await.unwrap();
    world.wait_for_keys(3).await;
    for server in world.servers.iter() {
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    }
    assert_eq!(lease.check(), Ok(()));
    assert_eq!(world.keys().await, 3, "the lock is not tied to a connection");
    until("new connections", async || lease.renew().await.is_ok()).await;
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_holder_ends_before_the_next_begins() {
    const SHORT: Duration = Duration::from_millis(1_500);
    let world = World::start(5).await;
    let proxies = world.servers.ways(Duration::ZERO).await.unwrap();
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let cut_off = client(&urls, |builder| builder.restart_guard(RestartGuard::Off));
    let lease = cut_off.lock("r").ttl(SHORT).wait(Wait::UpTo(patience())).acquire().await.unwrap();
    let loss = tokio::spawn({
        let watch = lease.watch();
        async move { watch.lost().await }
    });
    for proxy in &proxies {
        proxy.hold(Way::Both);
    }
    let _next = world.lock().acquire().await.unwrap();
    assert!(lease.check().is_err(), "two holders");
    assert_eq!(loss.await.unwrap().reason, LossReason::Expired);
}
