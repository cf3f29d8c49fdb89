//! Tokens: drawn, never chosen.

use quorlock::Wait;

use crate::common::{LATE, TTL, another, bench};

#[tokio::test(start_paused = true)]
async fn a_cleanup_of_the_loser_leaves_the_winners_keys() {
    let bench = bench(5);
    // All settings of the program are the same for both.
    let twin = || another(&bench.clock, &bench.nodes, |builder| builder.label("job-1"));
    let winner = twin().lock("r").ttl(TTL).acquire().await.unwrap();
    let loser = twin();
    for _ in 0..10 {
        assert!(loser.lock("r").ttl(TTL).wait(Wait::Never).try_acquire().await.unwrap().is_none());
    }
    bench.pass(LATE).await;
    assert_eq!(winner.check(), Ok(()));
    let kept = bench.nodes.iter().filter(|node| node.holder("r").as_ref() == Some(winner.token()));
    assert_eq!(kept.count(), 5);
}
