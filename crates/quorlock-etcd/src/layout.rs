//! Where locks are stored, in the layout of etcd's own lock clients. Pure.
//!
//! A lock is a folder: each client that wants it has a key there, which lives on a lease, and the key that was created first
//! is the holder's. `etcdctl lock NAME` and Go's `concurrency.Mutex` call theirs `NAME/LEASE`, the lease in hexadecimal
//! digits; no client parses that. Ours have sixteen more digits, so that attempts of one process differ.

use std::collections::BTreeSet;
use std::time::Duration;

use quorlock::node::QueuedWaiter;
use quorlock::node::places::{Owner, RESERVED};
use quorlock::protocol::{Claim, Token, WaiterId, fence_counter};

use crate::wire::KeyValue;

/// The name of the history, the cluster in which it was written, and for how long it was kept from voting.
pub(crate) const HISTORY: &str = "quorlock/history";
/// Exists while the history is too young to vote.
pub(crate) const YOUNG: &str = "quorlock/young";
/// The largest `max_ttl` of the clients, in milliseconds.
pub(crate) const MAX_TTL: &str = "quorlock/max-ttl";

/// The range of keys in which the places of a lock are: those whose last part begins with a hexadecimal digit.
pub(crate) fn places(key: &str) -> (Vec<u8>, Vec<u8>) {
    (format!("{key}/0").into_bytes(), format!("{key}/g").into_bytes())
}

/// Whether a key is a place of the lock, and not one of a lock below it: the rest is digits.
pub(crate) fn is_place(lock: &str, key: &[u8]) -> bool {
    let rest = key.strip_prefix(lock.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
    rest.is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_hexdigit))
}

/// Returns the lock of a place.
pub(crate) fn lock_of(key: &[u8]) -> Option<&str> {
    let at = key.iter().rposition(|byte| *byte == b'/')?;
    let lock = str::from_utf8(key.get(..at)?).ok()?;
    (!lock.is_empty() && !key.starts_with(RESERVED.as_bytes()) && is_place(lock, key)).then_some(lock)
}

/// Returns the key of an attempt or of a waiter, which sixteen digits tell from others.
pub(crate) fn place(lock: &str, lease: i64, digits: &[u8]) -> Vec<u8> {
    let mut key = format!("{lock}/{lease:x}").into_bytes();
    key.extend(digits.iter().map(|byte| if byte.is_ascii_hexdigit() { *byte } else { b'0' }));
    key
}

/// Returns the sixteen digits of an attempt.
pub(crate) fn digits_of(token: &Token) -> &[u8] {
    let random = token.random_part();
    random.get(..16).unwrap_or(random)
}

/// Returns the key of the fencing counter of a lock, which all locks of its hash slot below the prefix share.
pub(crate) fn counter(prefix: &str, lock: &str) -> Vec<u8> {
    format!("quorlock/fence/{}", fence_counter(prefix, lock)).into_bytes()
}

/// Returns the keys of the counters of a claim.
pub(crate) fn counters(claim: &Claim) -> BTreeSet<Vec<u8>> {
    claim.keys().map(|lock| counter(claim.key_prefix(), lock)).collect()
}

/// Returns the key that stops late requests of a cancelled attempt.
pub(crate) fn tombstone(token: &Token) -> Vec<u8> {
    [b"quorlock/tomb/", token.random_part()].concat()
}

/// Returns the entry of a list for the place of a waiter, of whatever program.
pub(crate) fn listed(place: &KeyValue, wall: Duration) -> QueuedWaiter {
    Owner::of(&place.value).listed(WaiterId::new(place.create_revision.unsigned_abs()), wall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_direct_children_with_digits() {
        let place = place("jobs/nightly", 0x694d_8b2a, b"0123456789abcdef");
        assert_eq!(place, b"jobs/nightly/694d8b2a0123456789abcdef");
        let (start, end) = places("jobs/nightly");
        assert!(start <= place && place < end);
        assert!(is_place("jobs/nightly", &place) && is_place("jobs/nightly", b"jobs/nightly/694d8b2a"));
        for other in
            ["jobs/nightly", "jobs/nightly/", "jobs/nightly/below/1a", "jobs/nightly2/1a", "jobs/nightly/g"]
        {
            assert!(!is_place("jobs/nightly", other.as_bytes()), "{other}");
        }
        assert_eq!(lock_of(&place), Some("jobs/nightly"));
        assert_eq!(lock_of(b"a/b/c"), Some("a/b"));
        for none in ["a", "a/", "/1a", "quorlock/fence/7", "a/x"] {
            assert_eq!(lock_of(none.as_bytes()), None, "{none}");
        }
    }
}
