//! Tokens: drawn, never chosen.

use quorlock::Wait;
use quorlock_testkit::SeededEntropy;

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

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_not_repeated_with_the_same_token() {
    let bench = bench(3);
    let client = another(&bench.clock, &bench.nodes, |builder| builder.entropy(SeededEntropy::new(7)));
    let mut seen = std::collections::BTreeSet::new();
    for node in &bench.nodes[..2] {
        node.set_data("r", "another client", quorlock::node::Expiry::In(TTL));
    }
    // The third node grants each attempt until the answers arrive.
    bench.delay(std::time::Duration::ZERO, LATE / 4);
    let (third, lock) = (&bench.nodes[2], client.lock("r").ttl(TTL).wait(Wait::Never));
    let mut attempts = 0;
    while attempts < 5 {
        let lock = lock.clone();
        let asked = tokio::spawn(async move { lock.try_acquire().await });
        bench.pass(LATE / 8).await;
        if let Some(token) = third.holder("r") {
            seen.insert(token.as_bytes().to_vec());
        }
        assert!(asked.await.unwrap().unwrap().is_none());
        bench.pass(LATE).await;
        attempts += 1;
    }
    assert!(seen.len() == attempts, "{} tokens in {attempts} attempts", seen.len());
}
