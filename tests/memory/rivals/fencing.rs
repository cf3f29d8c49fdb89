//! Fencing: the guarded resource can guarantee what no lock can.

use std::sync::Arc;

use quorlock::{FencingToken, LossReason};
use quorlock_testkit::SkewedClock;

use crate::common::{TTL, another, bench};

#[tokio::test(start_paused = true)]
async fn an_expired_holder_cannot_write_after_its_successor() {
    let bench = bench(5);
    // A paused process: its clock keeps running, and nothing in it runs.
    let asleep = Arc::new(SkewedClock::new(bench.clock.clone(), 1.0));
    let sleeper = another(&bench.clock, &bench.nodes, |builder| builder.clock(asleep.clone()));
    let old = sleeper.lock("r").ttl(TTL).acquire().await.unwrap();
    // A check made before the pause is no longer valid after it.
    assert_eq!(old.check(), Ok(()));
    bench.nodes.iter().for_each(|node| node.remove("r"));
    let new = bench.lock().acquire().await.unwrap();
    let mut largest = FencingToken::ZERO;
    let mut write = |fence: FencingToken| {
        let accepted = fence >= largest;
        largest = largest.max(fence);
        accepted
    };
    assert!(write(new.fencing_token()), "the successor writes");
    assert!(write(new.fencing_token()), "repeatedly");
    assert!(!write(old.fencing_token()), "and its predecessor is refused");
    asleep.jump_forward(TTL);
    assert_eq!(old.check().unwrap_err().reason, LossReason::Expired);
}
