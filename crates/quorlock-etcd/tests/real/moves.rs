//! Whether the data are those that a client knew: restored snapshots, restarts, and leases that end from outside.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use quorlock::node::{Hint, HintListener, ListedKeys, Node as _, NodeError, Request, Seams, Vote, ask};
use quorlock::protocol::WaiterId;
use quorlock::runtime::{Clock as _, SystemClock, within};
use quorlock::{Coordinator, Lease, LossReason, Wait};
use quorlock_etcd::{EtcdKind, EtcdNode};
use quorlock_testkit::{Proxy, Way, eventually, patience, until};
use serde_json::json;

use crate::ordered::{self, TTL, acquire, answer, claim, identity, renew};
use crate::queue::process;
use crate::support::{Foreign, newest, node, programs};

/// The ID of a cluster is made of the token and the addresses, so it stays the same if both do.
#[tokio::test]
async fn a_restored_snapshot_is_a_new_history_to_all_clients() {
    for programs in programs() {
        // Which etcd's documentation advises, so that revisions do not fall. Debian's knows no such option.
        let raised = ["--bump-revision", "1000000", "--mark-compacted"];
        let raised = programs.program("etcdutl").is_file().then_some(("quorlock", &raised[..]));
        for (token, options) in [("quorlock", &[][..]), ("another", &[])].into_iter().chain(raised) {
            let mut cluster = programs.start(3).await.unwrap();
            let knows = node(&cluster);
            let before = identity(&knows).await;
            let snapshot = cluster.snapshot().unwrap();
            // What the snapshot lacks.
            for random in 1..=20 {
                let claim = claim("a", random);
                assert_eq!(answer(&knows, acquire(&claim)).await.vote, Vote::Granted);
                answer(&knows, Request::Release { claim }).await;
            }
            println!("on {programs}, {token}, {options:?}");
            cluster.restore(&snapshot, token, options).unwrap();
            let restored = SystemClock::default().now();
            futures::future::try_join_all((0..3).map(|member| cluster.restart(member))).await.unwrap();
            ordered::is_another_history(&knows, || node(&cluster), (before, restored)).await;
        }
    }
}

#[tokio::test]
async fn a_new_history_grows_old_without_a_client_that_stays() {
    let Some(programs) = newest() else { return };
    let cluster = programs.start(1).await.unwrap();
    let builder = || Coordinator::builder().kind(EtcdKind::new()).nodes([cluster.url()]);
    ordered::grows_old(builder, 0.2, TTL * 3).await;
}

#[tokio::test]
async fn a_restart_of_all_members_forgets_nothing() {
    let Some(programs) = newest() else { return };
    let cluster = programs.start(3).await.unwrap();
    let node = node(&cluster);
    let holder = claim("a", 1);
    let before = answer(&node, acquire(&holder)).await;
    (0..3).for_each(|member| cluster.kill(member));
    let restarts = (0..3).map(|member| cluster.restart(member));
    futures::future::try_join_all(restarts).await.unwrap();
    let after = answer(&node, acquire(&claim("a", 2))).await;
    assert!(matches!(after.vote, Vote::Held(holding) if holding.token == *holder.token()));
    assert_eq!(before.identity.id, after.identity.id);
}

/// A keep-alive of a lease that has ended is answered by a TTL of zero, not by an error.
#[tokio::test]
async fn a_lease_that_was_revoked_from_outside_is_noticed() {
    let Some(programs) = newest() else { return };
    let cluster = programs.start(3).await.unwrap();
    let (foreign, node, clock) = (Foreign::of(&cluster), node(&cluster), SystemClock::default());
    let holder = claim("a", 1);
    answer(&node, acquire(&holder)).await;
    let (_, _, lease) = foreign.places("a").await.unwrap().remove(0);
    foreign.call("lease/revoke", json!({"ID": lease.to_string()})).await.unwrap();
    // Later than a heartbeat may be old.
    clock.sleep_until(clock.now() + TTL / 2).await;
    assert_eq!(answer(&node, renew(&holder)).await.vote, Vote::Restored);
    assert_eq!(answer(&node, renew(&holder)).await.vote, Vote::Granted);
    let place = foreign.places("a").await.unwrap().remove(0).0;
    foreign.delete(&place).await.unwrap();
    clock.sleep_until(clock.now() + TTL / 2).await;
    assert_eq!(
        answer(&node, renew(&holder)).await.vote,
        Vote::Restored,
        "a key that is gone, on a lease that lives"
    );
    // The holder of a lease learns that it is lost.
    let lease = process(&cluster).lock("b").acquire().await.unwrap();
    let place = foreign.places("b").await.unwrap().remove(0).0;
    foreign.delete(&place).await.unwrap();
    let lost = lease.lost().await;
    assert_ne!(lost.reason, LossReason::Released, "{lost}");
}

/// A leader that was stopped answers a keep-alive when it goes on, which prolongs nothing.
#[tokio::test]
async fn a_renewal_counts_from_before_its_heartbeat_was_sent() {
    for programs in programs() {
        let cluster = programs.start(3).await.unwrap();
        let (node, clock) = (node(&cluster), SystemClock::default());
        let holder = claim("a", 1);
        // Another program is asked, and until it has ended no heartbeat is sent.
        let leader = cluster.leader().unwrap();
        answer(&node, acquire(&holder)).await;
        clock.sleep_until(clock.now() + TTL / 2).await;
        cluster.freeze(leader).unwrap();
        let sent = clock.now();
        let renewed = ask(&node, renew(&holder));
        let thaw = async {
            clock.sleep_until(sent + Duration::from_millis(500)).await;
            let thawed = clock.now();
            cluster.thaw(leader).unwrap();
            thawed
        };
        let (renewed, thawed) = futures::join!(renewed, thaw);
        // After an election it may be unknown.
        let Ok(renewed) = renewed else { continue };
        assert!(renewed.counts_from.is_some_and(|from| from < thawed), "{programs}: {renewed:?}");
    }
}

#[tokio::test]
async fn a_waiter_keeps_its_place_when_its_member_dies_and_history_is_compacted() {
    let Some(programs) = newest() else { return };
    let cluster = programs.start(3).await.unwrap();
    let happens = |holder: &Lease| {
        let revision = holder.store_revision().unwrap() + 2;
        let compacted = cluster.ctl(&["compact", &revision.to_string()]).unwrap();
        assert!(compacted.status.success(), "{compacted:?}");
        // Every client is connected to the first member.
        cluster.kill(0);
    };
    ordered::keep_their_places(|| process(&cluster), &Foreign::of(&cluster), happens).await;
}

#[tokio::test]
async fn what_cannot_vote_says_why() {
    let refusal = async |url: &str| ordered::refusal(&EtcdNode::new(url, &Seams::default()).unwrap()).await;
    ordered::other_servers_are_known(refusal, "etcd", "no etcd answers at").await;
}

#[tokio::test]
async fn a_cluster_without_space_or_leader_says_so_and_loses_nothing() {
    let Some(programs) = newest() else { return };
    let cluster = programs.start_with(3, &["--quota-backend-bytes", "16777216"]).await.unwrap();
    let (foreign, client) = (Foreign::of(&cluster), process(&cluster));
    let lease = client.lock("held").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    let lock = client.lock("a").wait(Wait::Never);
    let full = vec![0; 1 << 20];
    let mut number = 0;
    let refused = async || {
        number += 1;
        foreign.put(format!("filler{number}").as_bytes(), &full, 0).await.is_err()
    };
    until("a full cluster", refused).await;
    let error = lock.acquire().await.unwrap_err().to_string();
    assert!(error.contains("space quota is used up") && error.contains("alarm disarm"), "{error}");
    lease.check().unwrap();
    lease.release().await.unwrap();
    assert!(foreign.places("held").await.unwrap().is_empty(), "deleting needs no space");
    // The member that is left knows that it has no leader.
    (1..3).for_each(|member| cluster.kill(member));
    let alone = EtcdNode::new(&format!("etcd://{}", cluster.address(0)), &Seams::default()).unwrap();
    let mut refusal = String::new();
    let no_leader = async || {
        refusal = alone.ready().await.map_or_else(|error| format!("{error:#}"), |()| String::new());
        refusal.contains("a majority of the members must run")
    };
    let found = eventually("a member without a leader", patience(), no_leader).await;
    assert!(found.is_ok(), "{refusal}");
}

/// What is decoded may take forty times as much memory.
#[tokio::test]
async fn large_values_of_other_programs_are_not_read_and_locks_beside_them_are_listed() {
    let Some(programs) = newest() else { return };
    let cluster = programs.start(1).await.unwrap();
    let (foreign, node) = (Foreign::of(&cluster), node(&cluster));
    for number in 0..4 {
        foreign.put(format!("crowded/{number}").as_bytes(), &vec![0; 400 << 10], 0).await.unwrap();
    }
    let error = ask(&node, Request::inspect("crowded")).await.unwrap_err().to_string();
    assert!(error.contains("larger than any about locks"), "{error}");
    let client = process(&cluster);
    let lease = client.lock("crowd").acquire().await.unwrap();
    let mut listing = client.list("crowd", ListedKeys::Locks);
    let mut names = Vec::new();
    while let Some(page) = listing.next_page().await {
        names.extend(page.names.unwrap());
    }
    assert!(names.iter().any(|name| &**name == "crowd"), "{names:?}");
    lease.release().await.unwrap();
}

/// The lease that it is on lives as long as another waiter of the process.
#[tokio::test]
async fn the_place_of_a_waiter_whose_entry_was_not_answered_goes_when_it_leaves() {
    let Some(programs) = newest() else { return };
    let cluster = programs.start(1).await.unwrap();
    let (foreign, proxy) = (Foreign::of(&cluster), Proxy::start(cluster.address(0)).await.unwrap());
    let node = EtcdNode::new(&format!("etcd://{}", proxy.address()), &Seams::default()).unwrap();
    // Long enough for a heartbeat to be recent until the end.
    let enter = |lock: &str| Request::enqueue(lock.into(), WaiterId::new(7), Duration::ZERO, TTL * 100, TTL);
    let leave = || Request::LeaveQueue { key: "a".into(), waiter: WaiterId::new(7) };
    assert_eq!(answer(&node, enter("other")).await.vote, Vote::Free);
    for leaves in [true, false] {
        // From then on the lock is watched.
        assert_eq!(answer(&node, enter("a")).await.vote, Vote::Free);
        assert_eq!(answer(&node, leave()).await.vote, Vote::Granted);
        proxy.hold(Way::ToClient);
        let carried_out = async {
            until("a place", async || foreign.places("a").await.unwrap().len() == 1).await;
            proxy.cut();
            proxy.heal();
        };
        let (asked, ()) = futures::join!(ask(&node, enter("a")), carried_out);
        assert!(asked.as_ref().is_err_and(NodeError::may_have_acted), "{asked:?}");
        if !leaves {
            let place = foreign.places("a").await.unwrap();
            assert_eq!(answer(&node, enter("a")).await.vote, Vote::Free);
            assert_eq!(foreign.places("a").await.unwrap(), place, "it has entered twice");
        }
        assert_eq!(answer(&node, leave()).await.vote, Vote::Granted);
        assert!(foreign.places("a").await.unwrap().is_empty(), "leaves: {leaves}");
    }
}

/// A member that has hung may carry out what it was asked for long after the waiter has left.
#[tokio::test]
async fn a_place_that_was_put_after_its_waiter_had_left_goes_with_the_next_heartbeat() {
    let Some(programs) = newest() else { return };
    let cluster = programs.start(1).await.unwrap();
    let (foreign, node, clock) = (Foreign::of(&cluster), node(&cluster), SystemClock::default());
    let (holder, enter) =
        (claim("a", 1), Request::enqueue("b".into(), WaiterId::new(7), Duration::ZERO, TTL, TTL));
    for (heartbeat, lock) in [(renew(&holder), "a"), (enter, "b")] {
        // The lease of the waiter is that of the holder.
        answer(&node, acquire(&holder)).await;
        answer(&node, heartbeat.clone()).await;
        let (_, _, lease) = foreign.places(lock).await.unwrap().remove(0);
        let waits = format!("\0waits {} 0 anna:1", WaiterId::new(9));
        for (digits, value) in [("1", waits.as_bytes()), ("2", b"an attempt, which a cancellation deletes")] {
            foreign.put(format!("late/{lease:x}{digits}").as_bytes(), value, lease).await.unwrap();
        }
        let gone = async || {
            clock.sleep_until(clock.now() + TTL / 100).await;
            answer(&node, heartbeat.clone()).await;
            foreign.places("late").await.unwrap().len() == 1
        };
        until("the end of the late place", gone).await;
        assert!(!foreign.places(lock).await.unwrap().is_empty(), "that of a request that was answered");
    }
}

/// Each request waits for the keep-alive of the one before it, also those over the next connection. Where the node has a
/// listener, the first renewal of a lock waits for its watch before that.
#[tokio::test]
async fn a_member_that_hangs_costs_no_lease_of_however_many() {
    const TTL: Duration = Duration::from_secs(20);
    let Some(programs) = newest() else { return };
    for is_heard in [false, true] {
        let cluster = programs.start(3).await.unwrap();
        let leader = cluster.leader().unwrap();
        let members = [1, 2, 3].map(|next| cluster.address((leader + next) % 3).to_string());
        let (node, clock) = (
            EtcdNode::new(&format!("etcd://{}", members.join(",")), &Seams::default()).unwrap(),
            SystemClock::default(),
        );
        if is_heard {
            node.listen(Arc::new(Listener));
        }
        let holders: Vec<_> = (0..16).map(|number| claim(&format!("held/{number}"), number)).collect();
        for holder in &holders {
            let acquire = Request::Acquire { claim: holder.clone(), ttl: TTL, fence_hint: None };
            assert_eq!(answer(&node, acquire).await.vote, Vote::Granted);
        }
        // Until their heartbeat is old.
        clock.sleep_until(clock.now() + TTL / 8).await;
        cluster.freeze((leader + 1) % 3).unwrap();
        let renew = |holder| Request::Renew { claim: Clone::clone(holder), ttl: TTL, fencing_token: None };
        let renewals = join_all(holders.iter().map(|holder| ask(&node, renew(holder))));
        assert!(within(&clock, TTL / 2, renewals).await.is_some(), "no end of the wait, heard: {is_heard}");
        for holder in &holders {
            assert_eq!(answer(&node, renew(holder)).await.vote, Vote::Granted, "heard: {is_heard}");
        }
    }
}

/// Of a node whose locks are watched.
#[derive(Debug)]
struct Listener;

impl HintListener for Listener {
    fn on_hint(&self, _: Hint<'_>) {}
}

#[tokio::test]
async fn each_member_that_refuses_connections_is_named_to_all_callers() {
    ordered::are_named_if_they_refuse(EtcdKind::new(), |members| format!("etcd://{members}")).await;
}
