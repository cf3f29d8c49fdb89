//! Reads the present state of locks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::{Owner, decode_counter, encode_counter};
use quorlock::node::{Expiry, Holding, NodeError, Vote};
use quorlock::protocol::{FencingToken, Token};

use crate::error::Failure;
use crate::layout::{is_place, places, tombstone};
use crate::session::Session;
use crate::wire::{Compare, KeyValue, Range, RequestOp, TimeToLive, TimeToLiveResponse, Txn};

/// How many comparisons or operations a transaction may have, by default.
const MOST_OPERATIONS: usize = 128;
/// How many keys of a lock are read in one request. Those of locks below it may be among them.
const PAGE: usize = 512;

/// The state of several locks at one revision.
pub(crate) struct Look {
    /// The places of each lock, in the order of their creation.
    pub(crate) locks: Vec<(Arc<str>, Vec<KeyValue>)>,
    /// Of each counter, once.
    counters: Vec<(Vec<u8>, Option<KeyValue>)>,
    /// Whether the attempt was cancelled.
    pub(crate) is_buried: bool,
    pub(crate) revision: i64,
}

impl Look {
    /// Returns the largest number that a counter of these locks has.
    pub(crate) fn counter(&self) -> Result<FencingToken, NodeError> {
        let mut largest = FencingToken::ZERO;
        for (key, found) in &self.counters {
            let Some(found) = found else { continue };
            largest = largest.max(decode_counter(String::from_utf8_lossy(key), &found.value)?);
        }
        Ok(largest)
    }

    /// No counter has changed since. Where they are more than a transaction can compare, no counter of any lock.
    pub(crate) fn same_counters(&self) -> Vec<Compare> {
        if self.locks.len() + self.counters.len() >= MOST_OPERATIONS {
            let (start, end) = (b"quorlock/fence/".to_vec(), b"quorlock/fence0".to_vec());
            return vec![Compare::unchanged_since(start, end, self.revision)];
        }
        let revision = |found: &Option<KeyValue>| found.as_ref().map_or(0, |found| found.mod_revision);
        self.counters
            .iter()
            .map(|(key, found)| Compare::changed_at(key.as_slice(), revision(found)))
            .collect()
    }

    /// Sets all counters.
    pub(crate) fn count(&self, number: FencingToken) -> impl Iterator<Item = RequestOp> {
        let value = encode_counter(number);
        self.counters.iter().map(move |(key, _)| RequestOp::put(key.as_slice(), value, 0))
    }

    /// No place of this lock has changed since, nor has anything below it.
    pub(crate) fn same_places(&self, lock: &str) -> Compare {
        let (start, end) = places(lock);
        Compare::unchanged_since(start, end, self.revision)
    }
}

impl Session {
    /// Reads the places of these locks, these counters, and whether the attempt with this token was cancelled.
    pub(crate) async fn look(
        &self,
        locks: impl Iterator<Item = &Arc<str>>,
        counters: BTreeSet<Vec<u8>>,
        token: Option<&Token>,
    ) -> Result<Look, Failure> {
        let locks: Vec<Arc<str>> = locks.cloned().collect();
        let mut success: Vec<RequestOp> = locks.iter().map(|lock| RequestOp::range(page(lock, 0))).collect();
        success.extend(token.map(|token| RequestOp::range(Range::of(tombstone(token)))));
        let at_counters = success.len();
        let counting = || counters.iter().map(|key| RequestOp::range(Range::of(key.as_slice())));
        let fits = at_counters + counters.len() <= MOST_OPERATIONS;
        if fits {
            success.extend(counting());
        }
        let found = self.txn(Txn { success, ..Txn::default() }).await?;
        let revision = found.revision();
        let is_buried = token.is_some() && !found.range(locks.len()).is_empty();
        let mut read = Vec::new();
        for (at, lock) in locks.iter().enumerate() {
            let direct = self.direct(lock, found.range(at)).await?;
            read.push((Arc::clone(lock), direct));
        }
        let (found, begin) = if fits {
            (found, at_counters)
        } else {
            (self.txn(Txn { success: counting().collect(), ..Txn::default() }).await?, 0)
        };
        let counters = counters.into_iter().enumerate();
        let counters = counters.map(|(at, key)| (key, found.range(begin + at).first().cloned())).collect();
        Ok(Look { locks: read, counters, is_buried, revision })
    }

    /// Returns the places of the lock among keys that were read, and reads further where the first page has none.
    async fn direct(&self, lock: &str, found: &[KeyValue]) -> Result<Vec<KeyValue>, Failure> {
        let mut last = page_end(found);
        let only_places = |found: &[KeyValue]| -> Vec<KeyValue> {
            found.iter().filter(|kv| is_place(lock, &kv.key)).cloned().collect()
        };
        let mut direct = only_places(found);
        while let (true, Some(created)) = (direct.is_empty(), last) {
            let range = RequestOp::range(page(lock, created + 1));
            let next = self.txn(Txn { success: vec![range], ..Txn::default() }).await?;
            direct = only_places(next.range(0));
            last = page_end(next.range(0));
        }
        Ok(direct)
    }

    /// Returns who holds the lock, of which this is the first place.
    pub(crate) async fn holding(&self, lock: &str, first: &KeyValue) -> Result<Holding, Failure> {
        let token = match Owner::of(&first.value) {
            Owner::Attempt(token, _) => token,
            Owner::Waiter(..) => Token::found(&first.value),
        };
        let now = self.memory.local.now();
        let own = self.memory.local.own.lock().by_key(lock, &first.key).map(|own| own.until.since(now));
        let expiry = match own {
            Some(left) => Expiry::In(left),
            None if first.lease == 0 => Expiry::Never,
            None => {
                let asked = TimeToLive { id: first.lease, keys: false };
                let life: TimeToLiveResponse =
                    self.client.call("/etcdserverpb.Lease/LeaseTimeToLive", asked).await?;
                Expiry::In(left(&life))
            }
        };
        Ok(Holding::new(token, expiry).in_queue())
    }

    /// Returns the vote of a lock that is not the claim's, of which this is the first place.
    pub(crate) async fn refusal(
        &self,
        lock: &Arc<str>,
        first: &KeyValue,
        is_several: bool,
    ) -> Result<Vote, Failure> {
        if Owner::of(&first.value).is_waiter() {
            return Ok(Vote::NotYourTurn);
        }
        let holding = self.holding(lock, first).await?;
        Ok(if is_several { holding.at(Arc::clone(lock)) } else { holding }.into())
    }
}

/// Returns the time that is left of a lease. A member that has just begun or ceased to lead knows of no end.
fn left(life: &TimeToLiveResponse) -> Duration {
    Duration::from_secs(u64::try_from(life.ttl.min(life.granted_ttl)).unwrap_or(0))
}

fn page(lock: &str, created_from: i64) -> Range {
    let (start, end) = places(lock);
    let limit = i64::try_from(PAGE).unwrap_or(i64::MAX);
    Range { min_create_revision: created_from, ..Range::by_creation(start, end, limit) }
}

/// Returns the revision of the last key of a full page.
fn page_end(found: &[KeyValue]) -> Option<i64> {
    found.last().filter(|_| found.len() >= PAGE).map(|last| last.create_revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_left_of_a_lease_than_was_granted() {
        let of = |ttl| left(&TimeToLiveResponse { ttl, granted_ttl: 30, ..TimeToLiveResponse::default() });
        let seconds = [29, -1, i64::MAX / 1_000_000_000].map(|ttl| of(ttl).as_secs());
        assert_eq!(seconds, [29, 0, 30], "one that runs, one that has ended, and one without a leader");
    }
}
