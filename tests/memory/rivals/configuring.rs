//! Configuring: any setting works or is refused with a clear error, before any request.

use std::time::Duration;

use quorlock::{Builder, Coordinator, Handoff, Renewal, RestartGuard, Wait};

use crate::common::{MS, bench, bench_by_default, passing};

const EXTREMES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_millis(20),
    Duration::from_secs(3_600),
    Duration::from_secs(u64::MAX / 2),
    Duration::MAX,
];

#[tokio::test(start_paused = true)]
async fn extreme_options_of_a_lock_work_or_are_refused_and_never_panic() {
    let bench = bench(3);
    for time in EXTREMES {
        let locks = [
            bench.lock().ttl(time),
            bench.lock().wait(Wait::UpTo(time)),
            bench.lock().renewal(Renewal::Every(time)),
            bench.lock().max_hold(time),
            bench.lock().handoff(Handoff::times(u32::MAX).within(time)),
        ];
        for lock in locks {
            let tried = lock.validate();
            let lease = lock.acquire().await;
            assert_eq!(lease.is_ok(), tried.is_ok(), "{lease:?}");
            if let Ok(lease) = lease {
                // The next waiter queues behind it, for as long as its wait allows.
                let next = passing(lock);
                bench.settle().await;
                drop(lease.release().await);
                drop(next.await.expect("waiting does not panic"));
                bench.pass(10 * MS).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn extreme_settings_of_a_coordinator_work_or_are_refused_and_never_panic() {
    let settings: [fn(Builder, Duration) -> Builder; 5] = [
        Builder::ttl,
        Builder::max_ttl,
        |builder, time| builder.ttl(time).max_ttl(time),
        Builder::node_timeout,
        Builder::connect_timeout,
    ];
    for time in EXTREMES {
        for (number, set) in settings.iter().enumerate() {
            for (drift, guard) in
                [(0.0, RestartGuard::Off), (0.01, RestartGuard::On), (0.5, RestartGuard::On)]
            {
                let bench = bench(3);
                let builder =
                    Coordinator::builder().custom_nodes(bench.nodes).clock(bench.clock).drift(drift);
                if let Ok(client) = set(builder, time).restart_guard(guard).build() {
                    let acquired = client.lock("r").wait(Wait::Never).acquire().await;
                    // Nodes that are a day old do not vote if the longest TTL is a year.
                    let may_refuse = guard == RestartGuard::On && time > Duration::from_secs(86_000);
                    let held = acquired.map(|lease| lease.check());
                    assert!(held == Ok(Ok(())) || may_refuse, "setting {number}, {time:?}: {held:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_ttl_is_the_only_setting_that_a_shorter_lock_needs() {
    for ttl in [100, 300, 1_000, 10_000, 30_000] {
        let ttl = ttl * MS;
        let bench = bench_by_default(5, |builder| builder.ttl(ttl));
        bench.delay(5 * MS / 2, 5 * MS / 2);
        for _ in 0..20 {
            let lease = bench.coordinator.lock("r").acquire().await.unwrap();
            lease.release().await.unwrap();
        }
        bench.pass(10 * MS).await;
        assert_eq!(bench.keys(), 0, "with a TTL of {ttl:?}");
    }
}
