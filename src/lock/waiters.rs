//! Lists the processes that wait for a lock.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use futures::future::join_all;

use super::Lock;
use crate::node::{Capability, QueueListing, QueuedWaiter, Request};
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::WaiterId;

impl<K, F> Lock<K, F> {
    /// Asks all nodes that keep a queue for the processes in it.
    pub(super) async fn list_waiters(&self) -> QueueListing {
        let nodes = &self.engine.nodes;
        let mut known: BTreeMap<WaiterId, QueuedWaiter> = BTreeMap::new();
        let (mut answered, mut has_more) = (false, false);
        let listings = self.keys.iter().map(async |key| {
            let request =
                |node| nodes.can(node, Capability::Queue).then(|| Request::ListWaiters { key: key.clone() });
            let round = Round::start(nodes, Expect::AnyAnswer, self.options.ttl, request);
            round.settled().await;
            round.with(|round, _| round.listings())
        });
        for listing in join_all(listings).await.into_iter().flatten() {
            (answered, has_more) = (true, has_more | listing.has_more);
            for waiter in listing.waiters {
                // It may be in the queues of two nodes, after the first was down.
                let longest = known.entry(waiter.id).or_insert_with(|| waiter.clone());
                if longest.waited < waiter.waited {
                    *longest = waiter;
                }
            }
        }
        let mut waiters: Vec<_> = known.into_values().collect();
        waiters.sort_by_key(|waiter| Reverse(waiter.waited));
        QueueListing::new(waiters, has_more || !answered)
    }
}
