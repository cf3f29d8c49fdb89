//! Failovers under load: the history is recorded, and checked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{
    Coordinator, Lease, RestartGuard, Wait,
    runtime::{Clock, SystemClock},
};
use quorlock_history::{Check, Expectations, History, Stamp, What, check};
use quorlock_testkit::{Servers, Service, eventually, patience};

use crate::world::client;

const TTL: Duration = Duration::from_secs(2);
const PROCESSES: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn five_nodes_with_two_services_survive_failovers() {
    let services = [service("one").await, service("two").await];
    let plain = Servers::start(3).await.unwrap();
    let urls: Vec<_> = services.iter().map(Service::url).chain(plain.urls()).collect();
    let load = Load::start(&urls);
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
    let load = Load::start(&urls);
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
    let load = Load::start(&[service.url()]);
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

/// Clients that contend for one lock and record the history.
struct Load {
    history: Arc<Mutex<History>>,
    grants: Arc<AtomicUsize>,
    long: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(urls: &[String]) -> Load {
        let mut load = Load {
            history: Arc::default(),
            grants: Arc::default(),
            long: Arc::default(),
            over: Arc::default(),
            clients: Vec::new(),
        };
        for number in 0..PROCESSES {
            let coordinator =
                client(urls, |builder| builder.ttl(TTL).max_ttl(TTL).restart_guard(RestartGuard::On));
            let worker = Worker {
                name: format!("client-{number}"),
                history: Arc::clone(&load.history),
                grants: Arc::clone(&load.grants),
                long: Arc::clone(&load.long),
                over: Arc::clone(&load.over),
            };
            load.clients.push(tokio::spawn(worker.run(coordinator)));
        }
        load
    }

    /// Waits until the next hold begins that lasts across renewals.
    async fn long_hold(&self) {
        let before = self.long.load(Ordering::Relaxed);
        let begun = async || self.long.load(Ordering::Relaxed) > before;
        eventually("a long hold", 2 * patience(), begun).await.unwrap();
    }

    /// Waits for this many more grants.
    async fn grants(&self, more: usize) {
        let before = self.grants.load(Ordering::Relaxed);
        let enough = async || self.grants.load(Ordering::Relaxed) >= before + more;
        eventually("more grants", 2 * patience(), enough).await.unwrap();
    }

    /// Checks the history, and returns how many holds were lost.
    async fn judge(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.unwrap();
        }
        // A busy machine may notify a holder late: that is not checked here.
        let expected = Expectations::new().max_ttl(TTL).signal_slack(patience());
        let report = check(&self.history.lock().unwrap(), &expected);
        for promise in [Check::Exclusion, Check::Mutex, Check::Loss, Check::Register, Check::Record] {
            let broken: Vec<_> = report.of(promise).map(ToString::to_string).collect();
            assert!(broken.is_empty(), "{broken:#?}");
        }
        println!("{}", report.seen);
        report.seen.lost
    }
}

struct Worker {
    name: String,
    history: Arc<Mutex<History>>,
    grants: Arc<AtomicUsize>,
    long: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Worker {
    async fn run(self, coordinator: Coordinator) {
        for count in 0_u32.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let attempt = format!("{}-{count}", self.name);
            let (client, resource) = (self.name.as_str().into(), "r".into());
            self.record(stamp(), What::Invoked { client, resource, attempt: attempt.as_str().into() });
            match coordinator.lock("r").wait(Wait::UpTo(patience())).acquire().await {
                Ok(lease) => {
                    let long = count % 4 == 3;
                    self.long.fetch_add(usize::from(long), Ordering::Relaxed);
                    let hold = if long { TTL * 2 } else { Duration::from_millis(30) };
                    self.hold(lease, &attempt, hold).await;
                }
                Err(_) => self.record(stamp(), What::NotAcquired { attempt: attempt.as_str().into() }),
            }
        }
    }

    async fn hold(&self, lease: Lease, attempt: &str, time: Duration) {
        let clock = SystemClock::default();
        let attempt = || attempt.into();
        let deadline = |lease: &Lease| clock.now() + lease.remaining();
        let mut known = deadline(&lease);
        let fencing_token = Some(lease.fencing_token().get());
        self.record(stamp(), What::Acquired { attempt: attempt(), deadline: of(known), fencing_token });
        self.grants.fetch_add(1, Ordering::Relaxed);
        let end = clock.now() + time;
        let mut looked = clock.now();
        while clock.now() < end {
            let look = clock.now() + Duration::from_millis(20);
            tokio::select! {
                lost = lease.lost() => {
                    self.record(stamp(), What::Lost { attempt: attempt(), reason: lost.to_string() });
                    return;
                }
                () = clock.sleep_until(look) => {}
            }
            let asked = stamp();
            if lease.check().is_ok() {
                let renewed = deadline(&lease);
                // The clock is read twice: a smaller change is no move.
                if renewed > known + Duration::from_millis(100) {
                    known = renewed;
                    self.record(of(looked), What::Renewed { attempt: attempt(), deadline: of(renewed) });
                }
                self.record(asked, What::SeenValid { attempt: attempt() });
            }
            looked = clock.now();
        }
        self.record(stamp(), What::Releasing { attempt: attempt() });
        match lease.release().await {
            Ok(()) => self.record(stamp(), What::Released { attempt: attempt() }),
            Err(lost) => self.record(stamp(), What::Lost { attempt: attempt(), reason: lost.to_string() }),
        }
    }

    fn record(&self, at: Stamp, what: What) {
        self.history.lock().unwrap().record(at, what);
    }
}

fn stamp() -> Stamp {
    of(SystemClock::default().now())
}

fn of(moment: Moment) -> Stamp {
    Stamp::from_nanos(u64::try_from(moment.since(Moment::ORIGIN).as_nanos()).unwrap())
}
