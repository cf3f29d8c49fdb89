//! Failovers under load.

use std::time::Duration;

use quorlock::{Builder, RestartGuard};
use quorlock_testkit::{Servers, Service};

use crate::load::Load;
use crate::world::client;

const TTL: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn five_nodes_with_two_services_survive_failovers() {
    let services = [service("one").await, service("two").await];
    let plain = Servers::start(3).await.unwrap();
    let urls: Vec<_> = services.iter().map(Service::url).chain(plain.urls()).collect();
    let load = load(&urls);
    load.long_hold().await;
    fail_over(&services[0], Blow::Kill).await;
    load.long_hold().await;
    fail_over(&services[1], Blow::Freeze).await;
    load.grants(10).await;
    load.judge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_alone_grant_no_lock_twice_when_most_fail_over() {
    let services = [service("one").await, service("two").await, service("three").await];
    let urls: Vec<_> = services.iter().map(Service::url).collect();
    let load = load(&urls);
    load.long_hold().await;
    // Both fail over together: the lock is lost, and nothing is granted until they vote again.
    tokio::join!(fail_over(&services[0], Blow::Kill), fail_over(&services[1], Blow::Freeze));
    load.grants(10).await;
    fail_over(&services[2], Blow::Freeze).await;
    load.grants(10).await;
    assert!(load.judge().await > 0, "no failover was in the middle of a hold");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_service_grants_no_lock_twice_in_failover() {
    let service = service("one").await;
    let load = load(&[service.url()]);
    load.long_hold().await;
    fail_over(&service, Blow::Freeze).await;
    load.grants(10).await;
    assert!(load.judge().await > 0, "no failover was in the middle of a hold");
}

async fn service(name: &str) -> Service {
    Service::start(name, 1, Servers::setup()).await.unwrap()
}

#[derive(Clone, Copy)]
enum Blow {
    Kill,
    /// And resume it, after another one was promoted, which it does not know yet.
    Freeze,
}

async fn fail_over(service: &Service, blow: Blow) {
    let old = service.master().await.unwrap();
    match blow {
        Blow::Kill => old.kill(),
        Blow::Freeze => old.freeze().unwrap(),
    }
    service.failed_over(old).await.unwrap();
    if let Blow::Freeze = blow {
        old.thaw().unwrap();
    }
}

/// Four clients that contend for one lock.
fn load(urls: &[String]) -> Load {
    let guarded = |builder: Builder| builder.ttl(TTL).max_ttl(TTL).restart_guard(RestartGuard::On);
    Load::start((0..4).map(|_| client(urls, guarded)), &["r"], TTL)
}
