//! Locks in Redisson's layout: `?layout=redisson` (ADR 8).

use quorlock::doctor::{Check, Standing};
use quorlock::node::ListedKeys;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{AcquireError, ConfigError, Coordinator, Fencing, Lock, Owner, Wait};
use quorlock_testkit::{Resp, Server, Servers, patience, until};

use self::theirs::{OWNER, Place};
use crate::world::{TTL, client, knows, reported, run_command};

mod contract;
mod theirs;

fn patient(coordinator: &Coordinator, name: &str) -> Lock {
    coordinator.lock(name).wait(Wait::UpTo(patience()))
}

/// Of how many keys a server remembers to notify a client.
async fn tracked(server: &Server) -> Option<u64> {
    reported(server, "tracking_total_keys:").await
}

/// Waits until a server remembers to notify a client of a key: it was refused, and waits.
async fn waits(place: &Place, name: &str) {
    let server = place.master(name).await;
    until("a waiter that was refused", async || tracked(server).await > Some(0)).await;
}

/// Trap S1. Without the message, or by the other kind of channel, Redisson's waiters sleep until the lock expires.
#[tokio::test(flavor = "multi_thread")]
async fn s1_waiters_of_both_sides_are_woken_in_each_topology() {
    for place in Place::all().await {
        let (ours, clock) = (place.client(), SystemClock::default());
        let lease = patient(&ours, "r").acquire().await.unwrap();
        assert!(!place.lock("r").await, "it is held");
        let mut waiter = place.waiter("r").await;
        let released = clock.now();
        lease.release().await.unwrap();
        waiter.hears("\r\n$1\r\n0\r\n").await;
        println!("{place}: their waiter was woken after {:?}", clock.now().since(released));

        assert!(place.lock("r").await, "it is free");
        let lock = patient(&ours, "r");
        let waiting =
            tokio::spawn(
                async move { lock.acquire().await.map(|lease| (lease, SystemClock::default().now())) },
            );
        waits(&place, "r").await;
        let released = clock.now();
        place.unlock("r").await;
        let (lease, acquired) = waiting.await.unwrap().unwrap();
        println!("{place}: our waiter had the lock after {:?}", acquired.since(released));
        lease.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn their_owner_and_depth_are_shown_and_each_of_their_locks_needs_an_unlock() {
    let place = Place::one().await;
    let ours = place.client();
    for depth in 1..=2 {
        assert!(place.lock("r").await);
        let holder = ours.lock("r").inspect().await.unwrap().holder().unwrap();
        assert_eq!(holder.describe(), format!("Redisson {OWNER}, depth {depth}"));
        assert_eq!((holder.depth, holder.token.as_bytes()), (Some(depth), OWNER.as_bytes()));
    }
    place.unlock("r").await;
    let error = ours.lock("r").wait(Wait::Never).acquire().await.unwrap_err();
    assert!(error.to_string().contains(OWNER), "{error}");
    place.unlock("r").await;
    let lease = patient(&ours, "r").acquire().await.unwrap();
    // The field is our token, with a depth as theirs.
    let field = place.command(&["HGET", "r", str::from_utf8(lease.token().as_bytes()).unwrap()]).await;
    assert_eq!(field.to_string(), "1");
    let shown = ours.lock("r").inspect().await.unwrap().holder().unwrap().describe();
    assert!(!shown.contains("depth"), "{shown}: our owners are counted in their process");
    lease.release().await.unwrap();
    assert_eq!(place.command(&["EXISTS", "r"]).await, Resp::Number(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_of_ours_reenters_in_its_process() {
    let place = Place::one().await;
    let (ours, me) = (place.client(), Owner::new());
    let outer = patient(&ours, "r").owner(&me).acquire().await.unwrap();
    let inner = patient(&ours, "r").owner(&me).acquire().await.unwrap();
    outer.release().await.unwrap();
    assert!(!place.lock("r").await, "the inner one holds it");
    inner.release().await.unwrap();
    assert!(place.lock("r").await);
}

/// Trap S2: latches stay for 20 s after each unlock, and other data are hashes, too.
#[tokio::test(flavor = "multi_thread")]
async fn s2_a_list_has_locks_and_neither_latches_nor_data() {
    for place in Place::all().await {
        let ours = place.client();
        for round in 0..3 {
            assert!(place.lock(&format!("jobs/{round}")).await);
        }
        for round in 1..3 {
            place.unlock(&format!("jobs/{round}")).await;
        }
        let lease = patient(&ours, "jobs/ours").acquire().await.unwrap();
        place.command(&["HSET", "jobs/map", "name", "7"]).await;
        place.command(&["HSET", "jobs/session", "name", "anna"]).await;
        place.command(&["PEXPIRE", "jobs/session", "60000"]).await;
        place.command(&["HSET", "jobs/many", "one", "1", "two", "2"]).await;
        place.command(&["PEXPIRE", "jobs/many", "60000"]).await;
        place.command(&["SET", "jobs/text", "1"]).await;
        for prefix in ["", "jobs/"] {
            let mut names: Vec<String> = Vec::new();
            let mut pages = ours.list(prefix, ListedKeys::Locks);
            while let Some(page) = pages.next_page().await {
                names.extend(page.names.unwrap().iter().map(ToString::to_string));
            }
            names.sort_unstable();
            assert_eq!(names, ["jobs/0", "jobs/ours"]);
        }
        lease.release().await.unwrap();
    }
}

/// Trap S3: what is stored there is held, or refused with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn s3_other_locks_of_redisson_are_held_or_refused_by_name() {
    let place = Place::one().await;
    let ours = place.client();
    for (stored, reason) in [
        // Without the time until which it is to be waited for.
        ("RPUSH redisson_lock_queue:{r} 8743c9c0:32", "in the queue of a fair lock"),
        ("HSET r mode read 8743c9c0:31 1", "is a read-write lock of Redisson"),
        ("HSET r 8743c9c0:31 1 8743c9c0:32 1", "is not a lock of Redisson"),
        ("HSET r name anna", "is not a lock of Redisson"),
        ("SET r 4", "holds something that is not a lock"),
    ] {
        place.command(&stored.split(' ').collect::<Vec<_>>()).await;
        place.command(&["PEXPIRE", "r", "60000"]).await;
        for fencing in [Fencing::On, Fencing::Off] {
            let error = patient(&ours, "r").fencing(fencing).acquire().await.unwrap_err().to_string();
            assert!(error.contains(reason), "{stored}: {error}");
        }
        let report = ours.lock("r").inspect().await.unwrap().to_string();
        assert!(report.contains(reason), "{stored}: {report}");
        place.command(&["DEL", "r"]).await;
        place.command(&["DEL", "redisson_lock_queue:{r}"]).await;
    }
    // Nothing was left.
    let lease = patient(&ours, "r").acquire().await.unwrap();
    // A reader of a read-write lock enters what Redisson's script takes for no lock: ours is no longer alone.
    place.command(&["HSET", "r", "mode", "read", "8743c9c0:31", "1"]).await;
    assert!(lease.renew().await.is_err(), "the lock is shared");
    assert_eq!(place.command(&["HEXISTS", "r", "8743c9c0:31"]).await, Resp::Number(1), "the reader keeps it");
}

/// Leaves a client in the queue of a fair lock, as a crash does, for this time from now.
async fn queue(place: &Place, waiter: &str, time: i64) {
    let Ok(Resp::List(now)) = place.master("r").await.command(&["TIME"]).await else { panic!("no time") };
    let till = now[0].to_string().parse::<i64>().unwrap() * 1000 + time;
    place.command(&["RPUSH", "redisson_lock_queue:{r}", waiter]).await;
    place.command(&["ZADD", "redisson_lock_timeout:{r}", &till.to_string(), waiter]).await;
}

/// Redisson removes those whose time is over from the queue when it comes by.
#[tokio::test(flavor = "multi_thread")]
async fn clients_in_the_queue_of_a_fair_lock_are_waited_for_while_redisson_waits_for_them() {
    let place = Place::one().await;
    let ours = place.client();
    for crashed in ["8743c9c0:1", "8743c9c0:2"] {
        queue(&place, crashed, -60_000).await;
    }
    assert!(ours.lock("r").inspect().await.unwrap().holder().is_none(), "nobody waits any more");
    ours.lock("r").wait(Wait::Never).acquire().await.unwrap().release().await.unwrap();

    queue(&place, OWNER, 60_000).await;
    let refused = ours.lock("r").wait(Wait::Never).acquire().await.unwrap_err();
    assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    let holder = ours.lock("r").inspect().await.unwrap().holder().unwrap();
    assert_eq!(holder.describe(), format!("Redisson {OWNER}, first in the queue of a fair lock"));
    let lock = patient(&ours, "r");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    waits(&place, "r").await;
    // It gives up, which changes no key of the lock.
    place.command(&["DEL", "redisson_lock_queue:{r}"]).await;
    waiting.await.unwrap().unwrap().release().await.unwrap();

    // It crashes.
    place.command(&["DEL", "redisson_lock_timeout:{r}"]).await;
    queue(&place, OWNER, 3_000).await;
    patient(&ours, "r").acquire().await.unwrap().release().await.unwrap();
}

/// Trap S5: Redisson's watchdog sets an expiry, also to an earlier one.
#[tokio::test(flavor = "multi_thread")]
async fn s5_a_renewal_never_shortens() {
    let place = Place::one().await;
    let ours = client(&[place.url()], |builder| builder.ttl(TTL / 60).max_ttl(TTL / 60));
    let lease = patient(&ours, "r").acquire().await.unwrap();
    place.command(&["PEXPIRE", "r", &TTL.as_millis().to_string()]).await;
    lease.renew().await.unwrap();
    let Resp::Number(left) = place.command(&["PTTL", "r"]).await else { panic!("it has an expiry") };
    assert!(u128::from(left.unsigned_abs()) > TTL.as_millis() / 2, "shortened to {left} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_both_sides_grow_and_their_counter_never_expires() {
    for place in Place::all().await {
        let ours = place.client();
        let mut last = 0;
        for _ in 0..3 {
            let lease = patient(&ours, "r").acquire().await.unwrap();
            let number = lease.fencing_token().get();
            assert!(number > last, "{number} after {last}");
            let holder = ours.lock("r").inspect().await.unwrap().holder().unwrap();
            assert_eq!(holder.fencing_token.map(u64::from), Some(number));
            lease.release().await.unwrap();
            assert!(place.lock("r").await);
            let Resp::Number(theirs) = place.command(&["INCR", "redisson_lock_token:{r}"]).await else {
                panic!("a counter is a number")
            };
            last = theirs.unsigned_abs();
            assert_eq!(last, number + 1, "{place}");
            place.unlock("r").await;
        }
        assert_eq!(place.command(&["PTTL", "redisson_lock_token:{r}"]).await, Resp::Number(-1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_may_be_retained_taken_away_and_counted() {
    let place = Place::one().await;
    let ours = place.client();
    let lease = patient(&ours, "r").acquire().await.unwrap();
    lease.retain(TTL, "ran at noon").await.unwrap();
    assert!(!place.lock("r").await, "it stays taken");
    let retained = ours.lock("r").inspect().await.unwrap().holder().unwrap().token;
    let mut waiter = place.waiter("r").await;
    ours.lock("r").revoke(&retained).await.unwrap();
    waiter.hears("\r\n$1\r\n0\r\n").await;
    assert!(place.lock("r").await, "it is free");

    let permits = ours.semaphore("exports", 2);
    let held = [permits.acquire().await.unwrap(), permits.acquire().await.unwrap()];
    assert!(permits.try_acquire().await.unwrap().is_none(), "two are taken");
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_layout_cannot_do_is_refused_by_name() {
    let place = Place::one().await;
    let ours = place.client();
    let shared = ours.lock("r").shared().acquire().await.unwrap_err().to_string();
    assert!(shared.contains("shared locks"), "{shared}");
    let several = ours.lock_all(["a", "b"]).acquire().await.unwrap_err().to_string();
    assert!(several.contains("several resources"), "{several}");

    let servers = Servers::start(2).await.unwrap();
    let urls = servers.urls().into_iter().map(|url| format!("{url}?layout=redisson"));
    let error = Coordinator::builder().nodes(urls).build().err().unwrap();
    assert!(matches!(error, ConfigError::SharedStoreOfSeveral { .. }), "{error}");
}

/// Redisson cannot lock these either: its own script has keys of two slots.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_with_companions_in_another_slot_is_refused_in_a_cluster() {
    let place = Place::all().await.into_iter().next_back().unwrap();
    let ours = place.client();
    for name in ["a}b", "a{b", "a{}b"] {
        let error = ours.lock(name).try_acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::Misconfigured { .. }), "{error:?}");
        assert!(error.to_string().contains("slot"), "{error}");
    }
    drop(patient(&ours, "{jobs}/a").acquire().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_scripts_or_messages_is_refused_by_name() {
    let Place::One(servers) = Place::one().await else { return };
    let server = &servers[0];
    let user = |words: &str| {
        let words = format!("ACL SETUSER anna reset on >pw ~* {words}");
        async move { server.command(&words.split(' ').collect::<Vec<_>>()).await.unwrap() }
    };
    let ours = || client(&[format!("{}?layout=redisson", server.url_as("anna:pw"))], |builder| builder);
    let channels = if knows(server.kind(), "resetchannels") { "&*" } else { "+@all" };
    for (rights, named) in [("+@all -eval", "EVAL"), ("+@all -publish", "PUBLISH")] {
        assert_eq!(user(&format!("{channels} {rights}")).await.to_string(), "OK");
        let error = patient(&ours(), "r").acquire().await.unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("Redisson's layout needs"), "{error}");
    }
    if channels == "&*" {
        user("resetchannels +@all").await;
        let error = patient(&ours(), "r").acquire().await.unwrap_err().to_string();
        assert!(error.contains("Redisson's layout needs"), "{error}");
    }
    user(&format!("{channels} +@all")).await;
    drop(patient(&ours(), "r").acquire().await.unwrap());
}

/// As in the own layout: see `tracking.rs`.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_released_locks_is_tracked() {
    let place = Place::one().await;
    let (one, two) = (place.client(), place.client());
    for round in 0..5 {
        let name = format!("r/{round}");
        let lease = patient(&one, &name).acquire().await.unwrap();
        assert!(two.lock(&name).try_acquire().await.unwrap().is_none());
        lease.renew().await.unwrap();
        let lock = patient(&two, &name);
        let (next, released) = tokio::join!(lock.acquire(), lease.release());
        released.unwrap();
        next.unwrap().release().await.unwrap();
    }
    let server = place.master("r").await;
    until("a server that tracks nothing", async || tracked(server).await == Some(0)).await;
}

/// The rights of the page suffice, and the health check misses none of them.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_suffice_and_the_health_check_names_each_that_is_missing() {
    let Place::One(servers) = Place::one().await else { return };
    let server = &servers[0];
    let page = include_str!("../../docs/redisson.md");
    let line = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER quorlock ")).unwrap();
    let words: Vec<&str> = line.split(' ').filter(|word| knows(server.kind(), word)).collect();
    let unknown = |word: &&&str| {
        server.kind().to_string().contains("redis-server 6.0")
            && (word.starts_with('&') || **word == "+getex")
    };
    let words: Vec<&str> = words.iter().filter(|word| !unknown(word)).copied().collect();
    let set = async |words: &[&str]| {
        let words = words.iter().map(|word| word.replace("PASSWORD", "pw")).collect::<Vec<_>>();
        let words: Vec<&str> = ["ACL", "SETUSER", "quorlock", "reset"]
            .into_iter()
            .chain(words.iter().map(String::as_str))
            .collect();
        run_command(server, &words).await;
    };
    let url = format!("{}?layout=redisson", server.url_as("quorlock:pw"));
    let ours = || client(std::slice::from_ref(&url), |builder| builder.key_prefix("jobs:"));
    set(&words).await;
    let (one, two) = (ours(), ours());
    let lease = patient(&one, "r").acquire().await.unwrap();
    lease.renew().await.unwrap();
    assert!(two.lock("r").try_acquire().await.unwrap().is_none());
    let lock = patient(&two, "r");
    let (next, released) = tokio::join!(lock.acquire(), lease.release());
    released.unwrap();
    next.unwrap().release().await.unwrap();
    let mut listing = one.list("", ListedKeys::Locks);
    while let Some(page) = listing.next_page().await {
        assert!(page.names.as_ref().is_ok_and(Vec::is_empty), "{page:?}");
    }
    let missing = async || {
        let report = ours().doctor().await;
        let missing = report.findings.iter().filter(|finding| finding.check == Check::MissingRight);
        (
            missing.map(|finding| finding.evidence.clone()).collect::<Vec<_>>(),
            format!("{:?}", report.nodes[0].standing),
        )
    };
    assert_eq!(missing().await, (vec![], format!("{:?}", Standing::Votes)));
    assert_eq!(place_keys(server).await, [""; 0], "the health check leaves nothing");
    for right in words.iter().filter(|word| word.starts_with(['+', '~', '&'])) {
        if ["+getex", "+scan", "+client|setname"].contains(right) {
            continue;
        }
        let fewer: Vec<&str> = words.iter().copied().filter(|word| word != right).collect();
        set(&fewer).await;
        let (missing, standing) = missing().await;
        assert!(!missing.is_empty() || standing != format!("{:?}", Standing::Votes), "{right} is not missed");
    }
}

/// The keys that are left, except the counters of locks that were used.
async fn place_keys(server: &Server) -> Vec<String> {
    let Ok(Resp::List(keys)) = server.command(&["KEYS", "*"]).await else { panic!("no keys") };
    let keys = keys.iter().map(ToString::to_string);
    keys.filter(|key| key != "redisson_lock_token:{jobs:r}").collect()
}
