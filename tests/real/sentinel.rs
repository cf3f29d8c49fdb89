//! Services as nodes: a master, its replicas and the Sentinels that fail over.

use std::time::Duration;

use quorlock::protocol::SUCCESSION;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock::{
    AcquireError, Coordinator, Lock, RestartGuard, Wait, doctor::Standing, health::NodeStatus,
    votes::VoteOutcome,
};
use quorlock_testkit::{Server, Servers, Service, Setup, patience, until};

use crate::world::{client, is_believed_after_a_failover, reported, run_command, wait_for_info};

/// A failover takes two or three seconds; renewals are sent after a third of this.
const TTL: Duration = Duration::from_secs(6);

async fn service(name: &str) -> Service {
    service_as(name, Servers::setup()).await
}

async fn service_as(name: &str, setup: Setup) -> Service {
    let service = Service::start(name, 1, setup).await.unwrap();
    println!("on {}", service.servers());
    service
}

fn of(urls: &[String], guard: RestartGuard) -> Coordinator {
    client(urls, |builder| builder.ttl(TTL).max_ttl(TTL).restart_guard(guard))
}

fn lock(of: &Coordinator) -> Lock {
    of.lock("r").wait(Wait::UpTo(patience()))
}

fn only(service: &Service, guard: RestartGuard) -> Coordinator {
    of(&[service.url()], guard)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_a_node_with_its_own_name() {
    let service = service("orders").await;
    let coordinator = only(&service, RestartGuard::Off);
    let lease = lock(&coordinator).acquire().await.unwrap();
    let master = &service.servers()[0];
    assert_eq!(master.command(&["EXISTS", "r"]).await.unwrap().to_string(), "1");
    let name = format!("orders@{}", service.sentinels()[0].address());
    assert_eq!(*coordinator.health().now()[0].node, *name);
    lease.release().await.unwrap();

    let unknown = of(&[service.url().replace("/orders", "/other")], RestartGuard::Off);
    let error = unknown.lock("r").acquire().await.unwrap_err().to_string();
    assert!(error.contains("does not know a master `other`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_are_dead_or_hang_are_not_waited_for() {
    let service = service("orders").await;
    service.sentinels()[0].freeze().unwrap();
    drop(lock(&only(&service, RestartGuard::Off)).acquire().await.unwrap());
}

/// Otherwise each client would log in every second at the slowest of them.
#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_asked_over_connections_that_last() {
    const LOOKS: Duration = Duration::from_secs(8);
    let (service, clock) = (service("orders").await, SystemClock::default());
    let coordinator = only(&service, RestartGuard::Off);
    drop(lock(&coordinator).acquire().await.unwrap());
    let received = async || {
        let mut all = 0;
        for sentinel in &**service.sentinels() {
            all += reported(sentinel, "total_connections_received:").await.unwrap();
        }
        all
    };
    let before = received().await;
    clock.sleep_until(clock.now() + LOOKS).await;
    // Three are those of the question itself.
    let since = received().await - before;
    assert!(since <= 5, "{since} connections in {LOOKS:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_most_sentinels_a_master_is_not_asked() {
    let service = service("orders").await;
    let known = only(&service, RestartGuard::Off);
    drop(lock(&known).acquire().await.unwrap());
    for sentinel in &service.sentinels()[1..] {
        sentinel.freeze().unwrap();
    }
    // Without any request, and with the metric of a node that is down.
    let status = async || known.health().now().remove(0).status;
    until("its health says so", async || matches!(status().await, NodeStatus::Stalled { .. })).await;
    let reason = status().await.to_string();
    assert!(reason.contains("a majority of its Sentinels has not confirmed it"), "{reason}");
    // Whether it was replaced is unknown: on a new connection, and soon on an old one.
    let error = only(&service, RestartGuard::Off).lock("r").try_acquire().await.unwrap_err().to_string();
    assert!(error.contains("1 of its Sentinels report the master, and 2 are needed"), "{error}");
    let refused = async || match known.lock("r").try_acquire().await {
        Err(error) => error.to_string().contains("a majority of its Sentinels has not confirmed it"),
        Ok(_) => false,
    };
    until("votes are not asked for", refused).await;
    for sentinel in &service.sentinels()[1..] {
        sentinel.thaw().unwrap();
    }
    until("its health says so", async || status().await == NodeStatus::Connected).await;
    drop(lock(&known).acquire().await.unwrap());
}

/// As where they know it by the address of a container, or by a name of another network.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_cannot_be_reached_is_named() {
    let service = service("orders").await;
    let master = service.master().await.unwrap();
    let named = format!("its master redis://{}: ", master.address());
    master.kill();
    let error = only(&service, RestartGuard::Off).lock("r").try_acquire().await.unwrap_err().to_string();
    assert!(error.contains(&named), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_names_too_few_sentinels_says_so() {
    let service = service_as("orders", Servers::setup().without_password()).await;
    let url = format!("redis+sentinel://{}/orders", service.sentinels()[0].address());
    let error = of(&[url], RestartGuard::Off).lock("r").acquire().await.unwrap_err().to_string();
    assert!(error.contains("names 1 of its Sentinels, and 2 must answer"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_may_want_a_password_of_their_own() {
    let service = service_as("orders", Servers::setup().without_password()).await;
    if service.servers().kind().to_string().contains("redis-server 6.0") {
        return println!("skipped: the Sentinels of Redis 6.0 have no passwords");
    }
    for sentinel in service.sentinels().iter() {
        run_command(sentinel, &["ACL", "SETUSER", "default", "resetpass", ">Qq7Zz9"]).await;
    }
    let error = only(&service, RestartGuard::Off).lock("r").acquire().await.unwrap_err().to_string();
    assert!(error.contains("the Sentinels at") && error.contains("it requires a password"), "{error}");
    let url = format!("{}?sentinel_password=Qq7Zz9", service.url());
    drop(lock(&of(&[url], RestartGuard::Off)).acquire().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn t2_a_promoted_master_waits_while_its_predecessor_may_vote() {
    let service = service("orders").await;
    service.servers()[0].kill();
    service.failed_over(&service.servers()[0]).await.unwrap();
    let error = only(&service, RestartGuard::On).lock("r").try_acquire().await.unwrap_err();
    let AcquireError::Unavailable { report, .. } = &error else { panic!("{error}") };
    let VoteOutcome::Quarantined { left, .. } = report.votes()[0].outcome else { panic!("{error}") };
    // It was just connected to for the first time.
    assert!(left > TTL + SUCCESSION, "{left:?}");
    let examination = only(&service, RestartGuard::On).doctor().await;
    let Standing::Quarantined { left: reported } = examination.nodes[0].standing else {
        panic!("{examination:#?}")
    };
    assert!(reported <= left && reported > TTL, "{reported:?} of {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i53_by_the_operators_word_a_promoted_master_votes_immediately() {
    let service = service("orders").await;
    // Behind the password of the Sentinels.
    let urls = [format!("{}&forgets=never", service.url()), service.url()];
    let [master, replica] = &service.servers()[..] else { panic!("two servers") };
    let replicated = async || replica.command(&["EXISTS", "r"]).await.unwrap().to_string() == "1";
    let fail_over = async || {
        master.kill();
        service.failed_over(master).await.unwrap();
    };
    is_believed_after_a_failover(urls, ["r", "free"], replicated, fail_over).await;
}

/// The lock of a single service whose master fails: lost, reported, and only then free.
async fn lost_and_notified(hurt: impl FnOnce(&Server)) {
    let service = service("orders").await;
    let [one, two] = [(); 2].map(|()| only(&service, RestartGuard::On));
    let held = lock(&one).acquire().await.unwrap();
    let master = &service.servers()[0];
    hurt(master);
    service.failed_over(master).await.unwrap();
    let second = lock(&two).acquire().await.unwrap();
    assert!(held.check().is_err(), "two holders");
    held.lost().await;
    assert!(second.check().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_on_a_service_is_lost_with_its_killed_master() {
    lost_and_notified(Server::kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_on_a_service_is_lost_with_its_hung_master() {
    lost_and_notified(|master| master.freeze().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_survives_the_failover_of_a_minority() {
    let service = service("orders").await;
    let plain = Servers::start(2).await.unwrap();
    let urls = [vec![service.url()], plain.urls()].concat();
    let [one, two] = [(); 2].map(|()| of(&urls, RestartGuard::On));
    let held = lock(&one).acquire().await.unwrap();
    service.servers()[0].kill();
    service.failed_over(&service.servers()[0]).await.unwrap();
    held.check().unwrap();
    assert!(two.lock("r").try_acquire().await.is_ok_and(|lease| lease.is_none()), "it is held");
    // When it votes again, the other nodes are no longer needed.
    let votes = async || one.health().now().iter().all(|node| matches!(node.status, NodeStatus::Connected));
    until("the service votes again", votes).await;
    plain[0].kill();
    held.renew().await.unwrap();
    held.check().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_master_is_disconnected() {
    let service = service("orders").await;
    let coordinator = only(&service, RestartGuard::Off);
    drop(lock(&coordinator).acquire().await.unwrap());
    let old = &service.servers()[0];
    // Refused until the Sentinel has heard from the replica recently.
    let asked = async || {
        let answer = service.sentinels()[0].command(&["SENTINEL", "FAILOVER", "orders"]).await;
        answer.is_ok_and(|answer| answer.to_string() == "OK")
    };
    until("a planned failover", asked).await;
    let new = service.failed_over(old).await.unwrap();
    let there = async || {
        let lease = lock(&coordinator).acquire().await.unwrap();
        let keys = new.command(&["EXISTS", "r"]).await.unwrap().to_string();
        drop(lease);
        keys == "1"
    };
    until("the new master votes", there).await;
}

/// Makes a Sentinel name another server as the master.
async fn names(sentinel: &Server, other: &Server) {
    run_command(sentinel, &["SENTINEL", "REMOVE", "orders"]).await;
    run_command(sentinel, &["SENTINEL", "MONITOR", "orders", "127.0.0.1", &other.port().to_string(), "2"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_master_is_disconnected_within_seconds() {
    let service = service("orders").await;
    let coordinator = only(&service, RestartGuard::Off);
    drop(lock(&coordinator).acquire().await.unwrap());
    // The Sentinels name another server as the master, while the old one continues as before.
    let password = service.servers()[0].password().unwrap();
    let other = Servers::setup().password(password).start(1).await.unwrap();
    for sentinel in service.sentinels().iter() {
        names(sentinel, &other[0]).await;
    }
    let there = async || {
        let lease = lock(&coordinator).acquire().await.unwrap();
        let keys = other[0].command(&["EXISTS", "r"]).await.unwrap().to_string();
        drop(lease);
        keys == "1"
    };
    until("the named master votes", there).await;
    wait_for_info(&service.servers()[0], "role:master").await;
}

/// It gets no password and no vote, whatever it says.
#[tokio::test(flavor = "multi_thread")]
async fn t1_one_sentinel_that_names_another_server_decides_nothing() {
    let service = service("orders").await;
    let other = Servers::setup().password(service.servers()[0].password().unwrap()).start(1).await.unwrap();
    let sentinel = &service.sentinels()[0];
    names(sentinel, &other[0]).await;
    for _ in 0..10 {
        let lease = lock(&only(&service, RestartGuard::Off)).acquire().await.unwrap();
        assert_eq!(service.servers()[0].command(&["EXISTS", "r"]).await.unwrap().to_string(), "1");
        lease.release().await.unwrap();
    }
    let clients = other[0].command(&["CLIENT", "LIST"]).await.unwrap().to_string();
    assert!(!clients.contains("name=quorlock"), "{clients}");

    service.sentinels()[1].freeze().unwrap();
    let error = only(&service, RestartGuard::Off).lock("r").try_acquire().await.unwrap_err().to_string();
    assert!(error.contains("its Sentinels name different masters"), "{error}");
    assert!(error.contains(&format!("127.0.0.1:{} by 1", other[0].port())), "{error}");
}

/// The window of asynchronous replication, which the restart guard closes: see the tests of promotions.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_guard_a_failover_makes_two_holders() {
    let service = service("orders").await;
    let [one, two] = [(); 2].map(|()| client(&[service.url()], |builder| builder));
    let [master, replica] = &service.servers()[..] else { panic!("two servers") };
    // An unused port: later grants do not reach the replica.
    replica.command(&["REPLICAOF", "127.0.0.1", "1"]).await.unwrap();
    let held = lock(&one).acquire().await.unwrap();
    assert_eq!(replica.command(&["EXISTS", "r"]).await.unwrap().to_string(), "0");
    master.kill();
    service.failed_over(master).await.unwrap();
    let second = lock(&two).acquire().await.unwrap();
    assert!(held.check().is_ok() && second.check().is_ok(), "without the guard there must be two holders");
}
