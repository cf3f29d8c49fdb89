//! One coordinator, with runtimes that come and go, or are not driven: a coordinator in a `static` with
//! many `#[tokio::test]` functions, workers with one runtime each, several `block_on` in sequence.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use quorlock::{
    Coordinator, Wait,
    runtime::{Entropy as _, SystemEntropy},
};
use quorlock_testkit::{Servers, patience};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::runtime::{Builder, Runtime};

use crate::world::{client, count};

/// Servers in a separate runtime.
struct Bench {
    servers: Servers,
    driven: Runtime,
    coordinator: Coordinator,
}

fn bench() -> Bench {
    let driven = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let servers = driven.block_on(Servers::start(3)).unwrap();
    // A longer node timeout than usual: the speed of the machine is not tested here.
    let coordinator = client(&servers.urls(), |builder| builder.node_timeout(Duration::from_secs(2)));
    Bench { servers, driven, coordinator }
}

impl Bench {
    /// A release is over once a quorum has confirmed it. If its runtime ends then, what a slower node has not been
    /// sent is left to the next call, which is made here.
    fn nothing_is_left(&self, key: &str) {
        let gone = async || count(&self.servers, key).await == 0;
        self.driven.block_on(async {
            let lock = self.coordinator.lock(key).wait(Wait::UpTo(patience()));
            lock.acquire().await.unwrap().release().await.unwrap();
            quorlock_testkit::until("no key is left", gone).await;
        });
    }
}

fn alone() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn many() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn once(coordinator: &Coordinator) {
    let lease = coordinator.lock("r").try_acquire().await.unwrap().expect("the lock is free");
    lease.check().unwrap();
    lease.release().await.unwrap();
}

#[test]
fn a_coordinator_serves_one_runtime_after_the_other() {
    let bench = bench();
    for time in 0..100 {
        let runtime = if time % 3 == 0 { many() } else { alone() };
        runtime.block_on(once(&bench.coordinator));
    }
    bench.nothing_is_left("r");
}

#[test]
fn stalled_runtimes_delay_no_other() {
    let bench = bench();
    let mut still = Vec::new();
    for _ in 0..20 {
        let runtime = alone();
        runtime.block_on(once(&bench.coordinator));
        still.push(runtime);
    }
    // Each is driven again, and finds that its tasks have ended.
    for runtime in &still {
        runtime.block_on(once(&bench.coordinator));
    }
    bench.nothing_is_left("r");
}

#[test]
fn runtimes_that_end_at_random_share_a_coordinator() {
    let seed = SystemEntropy::default().next_u64();
    println!("seed {seed}");
    let bench = Arc::new(bench());
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let (coordinator, mut random) =
                (bench.coordinator.clone(), SmallRng::seed_from_u64(seed.wrapping_add(number)));
            thread::spawn(move || {
                let mut stock: Vec<Runtime> = Vec::new();
                for _ in 0..12 {
                    let runtime = stock.pop().unwrap_or_else(alone);
                    let lock = coordinator.lock("r").wait(Wait::UpTo(patience()));
                    let abandon = random.random_ratio(1, 3);
                    runtime.block_on(async {
                        let lease = lock.acquire().await.unwrap();
                        lease.check().unwrap();
                        if abandon { drop(lease) } else { lease.release().await.unwrap() }
                    });
                    if random.random_ratio(1, 2) {
                        stock.push(runtime);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    bench.nothing_is_left("r");
}
