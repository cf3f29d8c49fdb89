//! Semaphores on real servers: all permits are used, and never more, while servers are stopped and
//! killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::{
    Permit, PermitError, Semaphore, Wait,
    runtime::{Clock, SystemClock},
};
use quorlock_testkit::{Servers, find_eventually, patience, until};

use crate::world::{client, count};

const PROCESSES: usize = 3;
const GRANTS: usize = 6;

const PERMITS: usize = 10;

/// The permits and how many are taken.
#[derive(Clone, Default)]
struct Ledger {
    taken: Arc<[AtomicBool; PERMITS]>,
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    grants: Arc<AtomicUsize>,
}

impl Ledger {
    fn enter(&self, permit: &Permit) {
        let number = permit.number();
        assert!(!self.taken[number].swap(true, Ordering::SeqCst), "permit {number} has two holders");
        self.most.fetch_max(self.inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    }

    /// Must be called before the permit is released.
    fn leave(&self, permit: &Permit) {
        permit.check().expect("no fault of this test is long enough to lose a lease");
        self.taken[permit.number()].store(false, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.grants.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_permits_are_all_taken_and_never_an_eleventh() {
    let servers = Servers::start(5).await.unwrap();
    println!("on {}", servers.kind());
    let semaphores: Vec<Semaphore> = (0..PROCESSES)
        .map(|_| client(&servers.urls(), |builder| builder).semaphore("r", PERMITS).wait(Wait::Forever))
        .collect();
    let ledger = Ledger::default();

    // All permits are taken, and no more, also when two servers are down.
    let mut held = Vec::new();
    for number in 0..PERMITS {
        let permit = semaphores[number % PROCESSES].acquire().await.unwrap();
        ledger.enter(&permit);
        held.push(permit);
    }
    for gone in 0..=2 {
        if gone > 0 {
            servers[gone].freeze().unwrap();
        }
        // The machine may be too busy for an answer in time.
        let one_more = semaphores[gone].clone().wait(Wait::Never);
        let refusal = async || match one_more.acquire().await {
            Err(PermitError::Full { holders, .. }) => Some(holders),
            Err(_) => None,
            Ok(_) => panic!("more permits than the semaphore has"),
        };
        let holders = find_eventually("an answer", patience(), refusal).await.unwrap();
        assert_eq!(holders.iter().flatten().count(), PERMITS, "{holders:?}");
    }
    for gone in 1..=2 {
        servers[gone].thaw().unwrap();
    }

    // Then all tasks contend for one.
    let tasks: Vec<_> = (0..PROCESSES * (PERMITS + 2))
        .map(|number| {
            let (semaphore, ledger) = (semaphores[number % PROCESSES].clone(), ledger.clone());
            tokio::spawn(async move {
                let clock = SystemClock::default();
                for _ in 0..GRANTS {
                    let permit = semaphore.acquire().await.unwrap();
                    ledger.enter(&permit);
                    clock.sleep_until(clock.now() + Duration::from_millis(2)).await;
                    ledger.leave(&permit);
                    permit.release().await.unwrap();
                }
            })
        })
        .collect();
    for permit in held {
        ledger.leave(&permit);
        permit.release().await.unwrap();
    }
    let all = PERMITS + PROCESSES * (PERMITS + 2) * GRANTS;
    let clock = SystemClock::default();
    let end = clock.now() + 2 * patience();
    let mut killed = 0;
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        let grants = ledger.grants.load(Ordering::SeqCst);
        assert!(clock.now() < end, "stranded after {grants} of {all} grants");
        if killed < 2 && grants > all * (killed + 1) / 3 {
            servers[killed].kill();
            killed += 1;
        }
        clock.sleep_until(clock.now() + Duration::from_millis(1)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(killed, 2);
    assert_eq!(ledger.grants.load(Ordering::SeqCst), all);
    assert_eq!(ledger.most.load(Ordering::SeqCst), PERMITS, "all permits, and not one more");
    until("no key left", async || {
        let mut keys = 0;
        for number in 0..PERMITS {
            keys += count(&servers, &format!("r#{number}")).await;
        }
        keys == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_permits_is_refused_while_one_is_held() {
    let servers = Servers::start(5).await.unwrap();
    let short = Duration::from_secs(2);
    let [four, two] = [4, 2].map(|permits| {
        client(&servers.urls(), |builder| builder).semaphore("r", permits).ttl(short).wait(Wait::Forever)
    });
    let permit = four.acquire().await.unwrap();
    let error = two.acquire().await.unwrap_err();
    assert!(matches!(error, PermitError::OtherPermits { .. }), "{error}");
    assert!(error.to_string().contains("has 4 permits, and 2 were asked for"), "{error}");
    permit.release().await.unwrap();
    until("the limit to run out", async || matches!(two.try_acquire().await, Ok(Some(_)))).await;
}
