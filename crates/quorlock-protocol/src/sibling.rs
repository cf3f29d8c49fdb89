//! The keys beside the key of a lock.

use std::borrow::Cow;
use std::fmt;

use super::slot::{Slot, hash_tag};

/// The key in which a node keeps the counter of the fencing tokens for the lock at `key`.
#[must_use]
#[inline]
pub fn fence_counter(key: &str) -> String {
    fence_counter_key(key).to_string()
}

/// The only member of that key, which is a sorted set; its score is the number.
pub const FENCE_MEMBER: &str = "n";

/// The same as [`fence_counter`], not written out yet.
#[must_use]
#[inline]
pub fn fence_counter_key(key: &str) -> Sibling<'_> {
    Sibling::new("fence", key, "counter")
}

/// The key in which a server that was promoted keeps since when it is the master that it is, for
/// locks whose keys begin with `prefix`.
#[must_use]
#[inline]
pub fn gate(prefix: &str) -> String {
    Sibling::new("gate", prefix, "reign").to_string()
}

/// The key in which a node keeps the largest `max_ttl` of the clients that use the [`gate`] at that key.
#[must_use]
#[inline]
pub fn max_ttl_note(gate: &str) -> String {
    format!("{}max-ttl", gate.strip_suffix("reign").unwrap_or(gate))
}

/// The key in which a node keeps how many permits the semaphore at `key` has.
#[must_use]
#[inline]
pub fn semaphore_limit(key: &str) -> String {
    Sibling::new("semaphore", key, "limit").to_string()
}

/// A key of our own beside the key of a lock, in the same hash slot of a Redis Cluster: it
/// repeats the lock's hash tag, or makes the lock's whole key the tag. For a key with a `}` and no
/// tag it has a number as its tag, which puts it there.
pub struct Sibling<'a> {
    kind: &'static str,
    key: &'a str,
    suffix: Cow<'a, str>,
    number: Option<String>,
}

impl<'a> Sibling<'a> {
    pub(super) fn new(kind: &'static str, key: &'a str, suffix: impl Into<Cow<'a, str>>) -> Sibling<'a> {
        let untagged = hash_tag(key).is_none() && key.contains('}');
        let number = untagged.then(|| Slot::of(key).tag().to_string());
        Sibling { kind, key, suffix: suffix.into(), number }
    }

    /// What it is made of, to be written somewhere without a string of its own.
    #[must_use]
    pub fn pieces(&self) -> [&str; 8] {
        let (open, number, between, close) = match &self.number {
            Some(number) => (":{", &**number, "}:", ":"),
            // The second colon keeps the siblings of `{a}` apart from those of `a`.
            None if self.key.contains('}') => ("::", "", "", ":"),
            None => (":{", "", "", "}:"),
        };
        ["quorlock:", self.kind, open, number, between, self.key, close, &self.suffix]
    }
}

impl fmt::Display for Sibling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces().into_iter().try_for_each(|piece| f.write_str(piece))
    }
}

/// The key in which a node keeps those who share the lock at `key`: one member for each, with an
/// end of its own (rule S-2).
#[must_use]
#[inline]
pub fn readers_key(key: &str) -> String {
    readers_sibling(key).to_string()
}

/// The same as [`readers_key`], not written out yet.
#[must_use]
#[inline]
pub fn readers_sibling(key: &str) -> Sibling<'_> {
    Sibling::new("shared", key, "readers")
}

/// The key in which a node keeps the writers that wait for those who share the lock at `key` (rule
/// S-5).
#[must_use]
#[inline]
pub fn intents_key(key: &str) -> String {
    intents_sibling(key).to_string()
}

/// The same as [`intents_key`], not written out yet.
#[must_use]
#[inline]
pub fn intents_sibling(key: &str) -> Sibling<'_> {
    Sibling::new("shared", key, "writers")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Claim, Token, WaiterId, turn_key, want_mark};

    #[test]
    fn siblings_share_the_hash_tag_of_their_key() {
        for (key, tag) in [("orders/42", "orders/42"), ("{user1}.cart", "user1"), ("a{b}c{d}", "b")] {
            let tomb = Claim::new(key.into(), Token::new(7, "")).tombstone();
            assert_eq!(hash_tag(&tomb), Some(tag), "{key} and {tomb} must share a slot");
        }
    }

    #[test]
    fn siblings_of_one_lock_are_different_keys() {
        let mut keys = vec![readers_key("a"), intents_key("a"), fence_counter("a")];
        keys.dedup();
        assert_eq!(keys.len(), 3, "{keys:?}");
    }

    proptest! {
        #[test]
        fn all_siblings_of_any_key_are_in_its_slot(key in "[a{}:\\PC]{1,8}") {
            let claim = Claim::new(key.as_str().into(), Token::new(7, ""));
            let shared = [readers_key(&key), intents_key(&key)];
            let others = [claim.tombstone(), claim.want_mark(), claim.fence_counter(), turn_key(&key, WaiterId::new(7))];
            for sibling in others.into_iter().chain(shared) {
                prop_assert_eq!(Slot::of(&sibling), Slot::of(&key), "{} and {}", &key, &sibling);
            }
        }

        #[test]
        fn two_locks_share_no_sibling(one in "[a{}:]{1,6}", two in "[a{}:]{1,6}") {
            prop_assume!(one != two);
            for (one, two) in [(one.clone(), two), (one.clone(), format!("{{{one}}}"))] {
                prop_assert_ne!(fence_counter(&one), fence_counter(&two));
                prop_assert_ne!(want_mark(&one), want_mark(&two));
            }
        }
    }
}
