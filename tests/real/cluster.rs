//! A Redis Cluster as a single node, on real clusters.

use std::time::Duration;

use quorlock::protocol::{WaiterId, gate};
use quorlock::{
    AcquireError, Coordinator, LossReason, Renewal, RestartGuard, Wait,
    doctor::{Check, Standing},
    health::NodeStatus,
    node::facts::Role,
    node::{Node as _, Request, Vote, ask},
    redis::{ClusterAddress, ClusterNode},
    runtime::SystemClock,
    votes::VoteOutcome,
};
use quorlock_testkit::contract::check_contract;
use quorlock_testkit::{Cluster, Resp, Server, Servers, eventually, patience, until};

use crate::world::{
    HintRecorder, client, is_believed_after_a_failover, knows, quarantined, run_command, wait_for_info,
};

mod load;

/// Short, to keep the quarantine short; long enough for a loaded machine.
const MAX_TTL: Duration = Duration::from_secs(4);

async fn cluster(masters: usize, replicas_each: usize) -> Cluster {
    let cluster = Cluster::start(masters, replicas_each).await.unwrap();
    println!("on {cluster}");
    cluster
}

/// A client whose only node is the cluster.
fn alone(cluster: &Cluster) -> Coordinator {
    client(&[cluster.url()], |builder| builder)
}

/// The same with the restart guard.
fn guarded(urls: &[String]) -> Coordinator {
    client(urls, |builder| builder.ttl(MAX_TTL).max_ttl(MAX_TTL).restart_guard(RestartGuard::On))
}

async fn votes(client: &Coordinator, resource: &str) {
    let mut last = String::new();
    let granted = async || match client.lock(resource).try_acquire().await {
        // If dropped, it would be held for a moment longer.
        Ok(Some(lease)) => lease.release().await.is_ok(),
        Ok(None) => false,
        Err(error) => {
            last = error.to_string();
            false
        }
    };
    let voted = eventually("a vote", patience(), granted).await;
    voted.unwrap_or_else(|error| panic!("{error}; the last answer: {last}"));
}

/// Waits until the only node is in quarantine.
async fn wait_for_quarantine(client: &Coordinator) {
    let quarantined = async || {
        let answer = client.lock("r").try_acquire().await;
        answer.is_err_and(|error| error.to_string().contains("first used too recently"))
    };
    until("its quarantine", quarantined).await;
}

/// How many running servers have a key of this name.
async fn keys(cluster: &Cluster, key: &str) -> usize {
    let mut keys = 0;
    for server in cluster.iter().filter(|server| server.pid().is_some()) {
        let found = server.command(&["KEYS", key]).await.unwrap();
        keys += usize::from(found.to_string() == key);
    }
    keys
}

/// A master other than that of `key`.
async fn another<'a>(cluster: &'a Cluster, masters: usize, key: &str) -> &'a Server {
    let owner = cluster.master_of(key).await.unwrap().port();
    cluster[..masters].iter().find(|master| master.port() != owner).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_the_contract() {
    for replicas in [0, 1] {
        let cluster = cluster(3, replicas).await;
        let node = ClusterNode::new(ClusterAddress::parse(&cluster.url()).unwrap());
        let hints = HintRecorder::of(&node);
        if let Err(breach) = check_contract(&node, &cluster, &SystemClock::default()).await {
            panic!("{breach}");
        }
        assert!(hints.heard().contains(&"Subscribed".to_owned()), "the clauses about hints were skipped");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_reachable_member_is_enough_to_find_the_others() {
    let cluster = cluster(3, 0).await;
    let url = cluster[1].url().replace("redis:", "redis+cluster:") + ",127.0.0.1:1";
    let coordinator = client(&[url], |builder| builder);
    for resource in ["a", "b", "c", "d", "e", "f"] {
        let lease = coordinator.lock(resource).try_acquire().await.unwrap().unwrap();
        lease.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_locks_need_one_hash_tag_in_a_cluster() {
    let cluster = cluster(3, 0).await;
    let coordinator = alone(&cluster);
    // In slots of two different masters.
    let refused = coordinator.lock_all(["a", "b"]).try_acquire().await.unwrap_err();
    assert!(refused.to_string().contains("one hash tag, such as `{accounts}/1`"), "{refused}");
    assert_eq!(keys(&cluster, "a").await + keys(&cluster, "b").await, 0);

    let both = coordinator.lock_all(["{a}/1", "{a}/2"]).acquire().await.unwrap();
    assert!(coordinator.lock("{a}/2").try_acquire().await.unwrap().is_none());
    both.renew().await.unwrap();
    both.release().await.unwrap();
    let left = async || keys(&cluster, "{a}/1").await + keys(&cluster, "{a}/2").await;
    until("no key left", async || left().await == 0).await;
}

/// Nothing that belongs to it could be in its slot (rule C-4).
#[tokio::test(flavor = "multi_thread")]
async fn a_name_without_companions_in_its_slot_is_refused() {
    let cluster = cluster(3, 0).await;
    let refused = alone(&cluster).lock("a{}b").try_acquire().await.unwrap_err();
    assert!(refused.to_string().contains("contains `{}` before any hash tag"), "{refused}");
    assert_eq!(keys(&cluster, "a{}b").await, 0);
    alone(&cluster).lock("a{b").try_acquire().await.unwrap().unwrap().release().await.unwrap();
}

/// A prefix with a hash tag puts all locks into one slot, and the note about the start of its master as well.
#[tokio::test(flavor = "multi_thread")]
async fn the_master_of_a_prefix_with_a_hash_tag_is_noted_wherever_its_slot_moves() {
    let cluster = cluster(3, 0).await;
    let coordinator = client(&[cluster.url()], |builder| {
        builder.ttl(MAX_TTL).max_ttl(MAX_TTL).restart_guard(RestartGuard::On).key_prefix("{app}:")
    });
    votes(&coordinator, "r").await;
    let connected = async || coordinator.health().now()[0].status == NodeStatus::Connected;
    until("the other masters need no note", connected).await;
    let noted = async || {
        let master = cluster.master_of("{app}").await.unwrap();
        let note =
            master.command(&["GET", &gate("{app}:").replace("reign", "start")]).await.unwrap().to_string();
        let server = master.command(&["INFO", "server"]).await.unwrap().to_string();
        note.split(' ').next().is_some_and(|run_id| run_id.len() == 40 && server.contains(run_id))
    };
    assert!(noted().await, "by the first client of a young process");
    cluster.move_slot("{app}", another(&cluster, 3, "{app}").await).await.unwrap();
    votes(&coordinator, "r").await;
    until("a note about the next master", noted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_survives_the_move_of_its_slot() {
    let cluster = cluster(3, 0).await;
    let (holder, other) = (alone(&cluster), alone(&cluster));
    let lease = holder.lock("r").acquire().await.unwrap();
    votes(&other, "{r}/other").await;
    cluster.move_slot("r", another(&cluster, 3, "r").await).await.unwrap();

    // A client that asks the previous master of the slot is redirected once, and then knows the new
    // one.
    until("a renewal", async || lease.renew().await.is_ok()).await;
    let held = async || matches!(other.lock("r").try_acquire().await, Ok(None));
    until("a refusal by the new master", held).await;
    let waiting = other.lock("r").wait(Wait::UpTo(patience()));
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    lease.check().unwrap();
    lease.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    next.release().await.unwrap();
    until("no key left", async || keys(&cluster, "r").await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_moved_to_a_young_master_has_no_vote_until_it_is_old() {
    let cluster = cluster(3, 0).await;
    let coordinator = guarded(&[cluster.url()]);
    votes(&coordinator, "r").await;
    let to = another(&cluster, 3, "r").await;
    to.restart_empty().await.unwrap();
    cluster.settled().await.unwrap();
    cluster.move_slot("r", to).await.unwrap();
    wait_for_quarantine(&coordinator).await;
    votes(&coordinator, "r").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moving_slot_grants_nothing_and_leaves_no_key() {
    let cluster = cluster(3, 0).await;
    let coordinator = alone(&cluster);
    let lease = coordinator.lock("r").acquire().await.unwrap();
    let moving = Moving::begin(&cluster, "r").await;

    // A held lock is renewed; a free key may be free or may have moved.
    lease.renew().await.expect("the key has not moved yet");
    let error = coordinator.lock("{r}/free").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("being migrated"), "{error}");
    lease.release().await.unwrap();
    let error = coordinator.lock("r").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("being migrated"), "{error}");
    moving.stop().await;
    votes(&coordinator, "r").await;
    for key in ["r", "{r}/free"] {
        until("no key left", async || keys(&cluster, key).await == 0).await;
    }
}

/// A server refuses to store a key that is missing in a slot that is being moved, also one that a script has just deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_leaves_a_moving_slot_leaves_the_others_there() {
    let cluster = cluster(3, 0).await;
    let [leaving, staying, writing] = [(); 3].map(|()| alone(&cluster));
    let shared = async |client: &Coordinator| {
        client.lock("r").shared().renewal(Renewal::Manual).acquire().await.unwrap()
    };
    let (left, stays) = (shared(&leaving).await, shared(&staying).await);
    let moving = Moving::begin(&cluster, "r").await;
    left.release().await.unwrap();
    stays.renew().await.expect("its share is there");
    moving.stop().await;
    assert!(writing.lock("r").try_acquire().await.unwrap().is_none(), "it is shared");
    // The last one deletes the lock, also there.
    let moving = Moving::begin(&cluster, "r").await;
    stays.release().await.unwrap();
    until("no key left", async || keys(&cluster, "r").await == 0).await;
    moving.stop().await;
    votes(&writing, "r").await;
}

/// The same for the queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_stays_there_while_its_slot_is_moved() {
    let cluster = cluster(3, 0).await;
    let node = ClusterNode::new(ClusterAddress::parse(&cluster.url()).unwrap());
    node.ready().await.unwrap();
    let lease = alone(&cluster).lock("r").renewal(Renewal::Manual).acquire().await.unwrap();
    let enqueue = |id| {
        let [elapsed, patience, turn] = [0, 60, 60].map(Duration::from_secs);
        Request::enqueue("r".into(), WaiterId::new(id), elapsed, patience, turn)
    };
    for waiter in [1, 2] {
        let vote = ask(&node, enqueue(waiter)).await.unwrap().vote;
        assert!(matches!(vote, Vote::Queued(_)), "{vote:?}");
    }
    let moving = Moving::begin(&cluster, "r").await;
    for request in [enqueue(1), Request::ListWaiters { key: "r".into() }] {
        let error = ask(&node, request.clone()).await.unwrap_err().to_string();
        assert!(error.contains("being migrated"), "{request:?}: {error}");
    }
    moving.stop().await;
    let Vote::Queued(queued) = ask(&node, enqueue(2)).await.unwrap().vote else { panic!("it is held") };
    assert_eq!(queued.ahead, 1, "the first is there");
    lease.release().await.unwrap();
}

/// A slot that is being moved, while no key is.
struct Moving<'a> {
    ends: [&'a Server; 2],
    slot: String,
}

impl Moving<'_> {
    async fn begin<'a>(cluster: &'a Cluster, key: &str) -> Moving<'a> {
        let from = cluster.master_of(key).await.unwrap();
        let to = another(cluster, 3, key).await;
        let slot = from.command(&["CLUSTER", "KEYSLOT", key]).await.unwrap().to_string();
        let (source, target) = (id(from).await, id(to).await);
        run_command(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]).await;
        run_command(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).await;
        Moving { ends: [from, to], slot }
    }

    /// Ends that, and leaves the slot where it was.
    async fn stop(self) {
        for server in self.ends {
            run_command(server, &["CLUSTER", "SETSLOT", &self.slot, "STABLE"]).await;
        }
    }
}

async fn id(server: &Server) -> String {
    server.command(&["CLUSTER", "MYID"]).await.unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_of_a_single_cluster_ends_its_leases_audibly() {
    let cluster = cluster(3, 1).await;
    let holder = guarded(&[cluster.url()]);
    votes(&holder, "r").await;
    let lease = holder.lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    cluster.master_of("r").await.unwrap().kill();
    let other = guarded(&[cluster.url()]);
    let next = tokio::spawn(async move { other.lock("r").wait(Wait::UpTo(2 * patience())).acquire().await });
    assert_eq!(lease.lost().await.reason, LossReason::Expired);
    let next = next.await.unwrap().unwrap();
    assert!(lease.check().is_err(), "two holders");
    next.release().await.unwrap();
}

/// A cluster whose replica has not received the lock that `holder` holds, and is promoted.
async fn lossy_failover(holder: impl Fn(&Cluster) -> Coordinator) -> (Cluster, quorlock::Lease) {
    let cluster = cluster(3, 1).await;
    let holder = holder(&cluster);
    votes(&holder, "r").await;
    for replica in &cluster[3..] {
        replica.freeze().unwrap();
    }
    // Writes over an existing replication connection would wait in the replica's socket.
    for master in &cluster[..3] {
        master.command(&["CLIENT", "KILL", "TYPE", "replica"]).await.unwrap();
    }
    // A renewal would store it on the replica.
    let lock = holder.lock("r").renewal(Renewal::Manual).wait(Wait::UpTo(patience()));
    let lease = lock.acquire().await.unwrap();
    cluster.master_of("r").await.unwrap().kill();
    for replica in &cluster[3..] {
        replica.thaw().unwrap();
    }
    cluster.settled().await.unwrap();
    assert_eq!(keys(&cluster, "r").await, 0, "the replica has received the lock");
    (cluster, lease)
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_a_promoted_replica_grants_nothing_it_may_have_missed() {
    let (cluster, lease) = lossy_failover(|cluster| guarded(&[cluster.url()])).await;
    let other = guarded(&[cluster.url()]);
    // On a busy machine the quarantine may be over by now, and then so is the lease.
    if let Err(error) = other.lock("r").try_acquire().await {
        assert_eq!(quarantined(&error), 1, "{error}");
    }
    let next = other.lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    assert!(lease.check().is_err(), "two holders");
    drop(next);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_guard_off_a_failover_makes_two_holders() {
    let (cluster, lease) = lossy_failover(alone).await;
    let next = alone(&cluster).lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    assert!(lease.check().is_ok() && next.check().is_ok(), "the test above proves something");
}

#[tokio::test(flavor = "multi_thread")]
async fn i53_by_the_operators_word_a_promoted_replica_votes_immediately() {
    let cluster = cluster(3, 1).await;
    let urls = [format!("{}?forgets=never", cluster.url()), cluster.url()];
    let fail_over = async || {
        cluster.master_of("r").await.unwrap().kill();
        cluster.settled().await.unwrap();
    };
    is_believed_after_a_failover(urls, ["r", "{r}/free"], async || keys(&cluster, "r").await == 2, fail_over)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_nodes_fails_over_and_no_lease_is_lost() {
    let (cluster, servers) = (cluster(3, 1).await, Servers::start(2).await.unwrap());
    let urls = [servers.urls(), vec![cluster.url()]].concat();
    let coordinator = guarded(&urls);
    votes(&coordinator, "r").await;
    let all_vote =
        async || coordinator.health().now().iter().all(|node| node.status == NodeStatus::Connected);
    until("three that vote", all_vote).await;
    let lease = coordinator.lock("r").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    cluster.master_of("r").await.unwrap().kill();
    let partial = async || matches!(coordinator.health().now()[2].status, NodeStatus::Partial { .. });
    until("a cluster in part", partial).await;
    until("the replica's vote", all_vote).await;
    lease.check().expect("two of three nodes were enough");
    // The cluster is needed now, and has its key again.
    servers[0].kill();
    until("a renewal", async || lease.renew().await.is_ok()).await;
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_and_repromoted_master_is_noticed_by_its_next_vote() {
    let cluster = cluster(3, 1).await;
    let coordinator = guarded(&[cluster.url()]);
    votes(&coordinator, "r").await;
    let master = cluster.master_of("r").await.unwrap();
    let name = id(master).await;
    let mut replica = None;
    for server in &cluster[3..] {
        let nodes = server.command(&["CLUSTER", "NODES"]).await.unwrap().to_string();
        if nodes.lines().any(|line| line.contains("myself,slave") && line.contains(&name)) {
            replica = Some(server);
        }
    }
    let replica = replica.unwrap();
    // No request is sent meanwhile, and no connection ends.
    for (promoted, demoted) in [(replica, master), (master, replica)] {
        run_command(promoted, &["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
        wait_for_info(promoted, "role:master").await;
        wait_for_info(demoted, "master_link_status:up").await;
    }
    let error = coordinator.lock("r").try_acquire().await.unwrap_err().to_string();
    // The slot map is refreshed every second: on a slow machine the refresh may have noticed first.
    let noticed = ["was one since the handshake", "first used too recently"]
        .iter()
        .any(|reports| error.contains(reports));
    assert!(noticed, "{error}");
    wait_for_quarantine(&coordinator).await;
    votes(&coordinator, "r").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_replicas_loses_the_keys_of_the_master_that_dies() {
    let cluster = Cluster::with(3, 0, &["--cluster-require-full-coverage", "no"]).await.unwrap();
    let coordinator = alone(&cluster);
    votes(&coordinator, "r").await;
    let lost = cluster.master_of("r").await.unwrap();
    let elsewhere = another(&cluster, 3, "r").await;
    let mut kept = None;
    for number in 0.. {
        let resource = format!("s{number}");
        if cluster.master_of(&resource).await.unwrap().port() == elsewhere.port() {
            kept = Some(resource);
            break;
        }
    }
    let kept = coordinator.lock(kept.unwrap());
    lost.kill();
    let partial = async || {
        let NodeStatus::Partial { reason } = &coordinator.health().now()[0].status else { return false };
        reason.to_string().contains(&lost.address().to_string())
    };

    until("health names the master that is down", partial).await;
    let error = coordinator.lock("r").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains(&format!("its master redis://{}", lost.address())), "{error}");
    drop(kept.try_acquire().await.unwrap().expect("the key is on another master"));
    lost.restart_empty().await.unwrap();
    votes(&coordinator, "r").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_has_lost_slots_says_so() {
    let cluster = cluster(3, 0).await;
    let coordinator = alone(&cluster);
    votes(&coordinator, "r").await;
    let lost = another(&cluster, 3, "r").await;
    lost.kill();
    // By default a cluster serves all slots or none.
    let unserved = async || {
        let answer = coordinator.lock("r").try_acquire().await;
        answer.is_err_and(|error| error.to_string().contains("the cluster does not serve its slot"))
    };
    until("a refusal", unserved).await;
    lost.restart_empty().await.unwrap();
    votes(&coordinator, "r").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i2_two_nodes_that_share_a_cluster_are_one_vote() {
    let (cluster, servers) = (cluster(3, 0).await, Servers::start(1).await.unwrap());
    let member = |place: usize| cluster[place].url().replace("redis:", "redis+cluster:");
    let coordinator = client(&[member(0), member(1), servers[0].url()], |builder| builder);
    votes(&coordinator, "r").await;
    servers[0].kill();
    for resource in ["r", "s", "t"] {
        let error = coordinator.lock(resource).try_acquire().await.unwrap_err();
        let AcquireError::Unavailable { report, .. } = &error else { panic!("{error}") };
        assert!(matches!(report.votes()[1].outcome, VoteOutcome::Duplicate { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_member_used_as_a_server_names_the_fix() {
    let (cluster, servers) = (cluster(3, 0).await, Servers::start(1).await.unwrap());
    let error = client(&[cluster[0].url()], |builder| builder).lock("r").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("`redis+cluster://host:port,host:port`"), "{error}");
    let server = servers[0].url().replace("redis://", "redis+cluster://");
    let error = client(&[server], |builder| builder).lock("r").try_acquire().await.unwrap_err();
    assert!(
        error.to_string().contains("not a cluster member") && error.to_string().contains("redis://"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_lock_works_on_a_cluster() {
    let cluster = cluster(3, 0).await;
    let coordinator = alone(&cluster);
    let semaphore = coordinator.semaphore("exports", 2);
    let (one, two) = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    assert!(semaphore.try_acquire().await.unwrap().is_none(), "a third permit of two");
    for permit in [one, two] {
        permit.renew().await.unwrap();
        permit.release().await.unwrap();
    }
    let shared = || coordinator.lock("papers").shared();
    let readers = [shared().acquire().await.unwrap(), shared().acquire().await.unwrap()];
    assert!(coordinator.lock("papers").try_acquire().await.unwrap().is_none(), "a writer among readers");
    drop(readers);
    let writer = coordinator.lock("papers").wait(Wait::UpTo(patience())).acquire().await.unwrap();
    writer.downgrade().await.unwrap().release().await.unwrap();
    let plain = coordinator.lock("plain").fencing(quorlock::Fencing::Off);
    plain.try_acquire().await.unwrap().unwrap().release().await.unwrap();
    let leadership = coordinator.election("scheduler").campaign("http://10.0.0.7").await.unwrap();
    drop(leadership);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_examines_every_master_and_leaves_only_counters() {
    let cluster = cluster(3, 0).await;
    for (prefix, masters) in [("", 3), ("{locks}/", 1)] {
        let coordinator = client(&[cluster.url()], |builder| builder.key_prefix(prefix));
        let examination = coordinator.doctor().await;
        let found =
            |matter: Check| examination.findings.iter().filter(|finding| finding.check == matter).count();
        let shown: Vec<_> = examination.findings.iter().map(ToString::to_string).collect();
        assert_eq!(examination.nodes[0].standing, Standing::Votes, "{shown:#?}");
        assert_eq!(examination.nodes[0].role, Some(Role::Cluster));
        assert_eq!(found(Check::NoReplica), masters, "{shown:#?}");
        for matter in [Check::LockFails, Check::MissingRight, Check::SlotsUncovered, Check::ClusterMember] {
            assert_eq!(found(matter), 0, "{shown:#?}");
        }
    }
    for server in cluster.iter() {
        let Resp::List(keys) = server.command(&["KEYS", "*"]).await.unwrap() else { panic!("a list") };
        assert!(keys.iter().all(|key| key.to_string().contains(":quorlock:fence:counter")), "left: {keys:?}");
    }
    let lost = &cluster[1];
    lost.kill();
    let examination = alone(&cluster).doctor().await;
    let names_it =
        |finding: &quorlock::doctor::Finding| finding.evidence.contains(&lost.address().to_string());
    let away = examination.findings.iter().find(|finding| finding.check == Check::Unreachable);
    assert!(away.is_some_and(names_it), "{:#?}", examination.findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_user_needs_one_more_right_for_the_slot_map() {
    let cluster = cluster(3, 0).await;
    let grant = async |rights: &[&str]| {
        for server in cluster.iter() {
            run_command(server, &[&["ACL", "SETUSER", "anna"], rights].concat()).await;
        }
    };
    // As documented in SECURITY.md.
    let security = include_str!("../../SECURITY.md");
    let line = security.lines().find(|line| line.starts_with("ACL SETUSER quorlock ")).unwrap();
    let known = |word: &&str| !word.starts_with('>') && knows(cluster.kind(), word);
    let rights: Vec<_> = line.split(' ').skip(3).filter(known).collect();
    grant(&[&["on", ">s3cret"], &rights[..]].concat()).await;
    let url = cluster.url_as("anna:s3cret");
    let lock = || client(std::slice::from_ref(&url), |builder| builder.key_prefix("locks:")).lock("r");
    let error = lock().try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("+cluster|nodes") && error.to_string().contains("anna"), "{error}");
    grant(&["+cluster|nodes"]).await;
    lock().try_acquire().await.unwrap().unwrap().release().await.unwrap();
}
