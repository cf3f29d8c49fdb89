//! Leaves nothing behind.

use std::time::Duration;

use futures::future::join_all;
use quorlock::protocol::fence_counter;
use quorlock::{Coordinator, Said, Token};

use crate::config::Settings;

/// Deletes the counters of fencing tokens of the locks with these names, which nobody but this
/// program has used. Anybody else's must never go: the next number would be too small.
///
/// They would end by themselves a day later. At nodes that do not answer now, they do.
pub(super) async fn remove_counters<'a>(settings: &Settings, names: impl Iterator<Item = &'a str>) {
    // A counter is a string that can be compared and deleted, as a lock is. What is left of that is
    // a tombstone that lasts for `max_ttl`: so that is short here. The key is what it is, without
    // another prefix.
    let ttl = settings.node_limit().saturating_mul(10).max(Duration::from_secs(1));
    let Ok(builder) = settings.builder() else { return };
    let Ok(coordinator) = builder.key_prefix("").ttl(ttl).max_ttl(ttl).build() else { return };
    let counters = names.map(|name| fence_counter(&format!("{}{name}", settings.key_prefix())));
    join_all(counters.map(async |counter| remove(&coordinator, &counter).await)).await;
    coordinator.close(settings.patience()).await;
}

/// Deletes the key at each node, whatever number it has there.
async fn remove(coordinator: &Coordinator, counter: &str) {
    let lock = coordinator.lock(counter);
    let Ok(ballot) = lock.inspect().await else { return };
    let mut numbers: Vec<Token> = Vec::new();
    for paper in ballot.papers() {
        if let Said::Held(holding) = &paper.said
            && !numbers.contains(&holding.token)
        {
            numbers.push(holding.token.clone());
        }
    }
    for number in numbers {
        drop(lock.revoke(&number).await);
    }
}
