//! Losing: the holder is notified in time, whatever has failed.

use std::time::Duration;

use quorlock::{LossReason, Wait, runtime::Clock as _};

use crate::common::{TTL, bench};
use crate::way::Way;

#[tokio::test(start_paused = true)]
async fn a_partitioned_holder_is_notified_before_the_next_begins() {
    // Immediately, in the middle, and while a renewal is in flight or due.
    for cut_after in [1, 1_000, 3_332, 3_333, 3_334, 5_000, 6_700, 20_000] {
        let bench = bench(5);
        let way = Way::default();
        let lease = way.client(&bench, |builder| builder).lock("r").ttl(TTL).acquire().await.unwrap();
        bench.pass(Duration::from_millis(cut_after)).await;
        way.cut();
        let (watch, clock) = (lease.watch(), bench.clock.clone());
        let notified = tokio::spawn(async move {
            let lost = watch.lost().await;
            (lost.reason, clock.now())
        });
        let _next = bench.lock().wait(Wait::Forever).acquire().await.unwrap();
        let entered = bench.clock.now();
        assert!(lease.check().is_err(), "cut after {cut_after} ms: two holders");
        let (reason, notified) = notified.await.unwrap();
        assert_eq!(reason, LossReason::Expired);
        assert!(notified < entered, "cut after {cut_after} ms: notified {:?} late", notified.since(entered));
    }
}
