//! The auxiliary keys of a lock.

use std::borrow::Cow;
use std::fmt;

use super::slot::{Slot, hash_tag};

/// Returns the key in which a node stores the fencing counter of the lock at `key`.
#[must_use]
#[inline]
pub fn fence_counter(key: &str) -> String {
    fence_counter_key(key).to_string()
}

/// The only member of that key, which is a sorted set; its score is the number.
pub const FENCE_MEMBER: &str = "n";

/// Like [`fence_counter`], not formatted yet.
#[must_use]
#[inline]
pub fn fence_counter_key(key: &str) -> Sibling<'_> {
    Sibling::new("fence", key, "counter")
}

/// Returns the key in which a promoted server stores since when it has been master, for locks whose
/// keys begin with `prefix`.
#[must_use]
#[inline]
pub fn gate(prefix: &str) -> String {
    Sibling::new("gate", prefix, "reign").to_string()
}

/// Returns the key in which a node stores the largest `max_ttl` of the clients that use this
/// [`gate`].
#[must_use]
#[inline]
pub fn max_ttl_note(gate: &str) -> String {
    format!("{}max-ttl", gate.strip_suffix("reign").unwrap_or(gate))
}

/// Returns the key in which a node stores the number of permits of the semaphore at `key`.
#[must_use]
#[inline]
pub fn semaphore_limit(key: &str) -> String {
    Sibling::new("semaphore", key, "limit").to_string()
}

/// Returns whether the library stores `key` beside its locks, and not as one.
#[must_use]
pub fn is_auxiliary_key(key: &str) -> bool {
    const KINDS: [&str; 6] = ["fence", "gate", "semaphore", "shared", "tomb", "want"];
    let kind = key.strip_prefix("quorlock:").and_then(|rest| rest.split_once(':'));
    kind.is_some_and(|(kind, rest)| KINDS.contains(&kind) && rest.starts_with(['{', ':']))
}

/// Returns the key of the lock of which `key` is the queue: the sorted set whose name is that of the
/// [`want_mark`](crate::want_mark) followed by `:order`.
#[must_use]
pub fn lock_of_queue(key: &str) -> Option<&str> {
    let named = key.strip_prefix("quorlock:want:")?.strip_suffix(":mark:order")?;
    match named.strip_prefix(':') {
        Some(key) => Some(key),
        None => match named.strip_prefix('{')?.split_once('}')? {
            (key, "") => Some(key),
            (_number, key) => key.strip_prefix(':'),
        },
    }
}

/// An auxiliary key of a lock, in the same hash slot of a Redis Cluster: it repeats the lock's hash
/// tag, or makes the whole key the tag. If the key has a `}` but no tag, a number that hashes to
/// its slot is the tag.
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

    /// Returns its parts, to be written without allocating a string.
    #[must_use]
    pub fn pieces(&self) -> [&str; 8] {
        let (open, number, between, close) = match &self.number {
            Some(number) => (":{", &**number, "}:", ":"),
            // The second colon distinguishes the siblings of `{a}` from those of `a`.
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

/// Returns the key in which a node stores the readers of the lock at `key`: one member each, with
/// its own expiry (rule S-2).
#[must_use]
#[inline]
pub fn readers_key(key: &str) -> String {
    readers_sibling(key).to_string()
}

/// Like [`readers_key`], not formatted yet.
#[must_use]
#[inline]
pub fn readers_sibling(key: &str) -> Sibling<'_> {
    Sibling::new("shared", key, "readers")
}

/// Returns the key in which a node stores the writers that wait for the readers of the lock at
/// `key` (rule S-5).
#[must_use]
#[inline]
pub fn intents_key(key: &str) -> String {
    intents_sibling(key).to_string()
}

/// Like [`intents_key`], not formatted yet.
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

    #[test]
    fn auxiliary_keys_are_told_from_locks() {
        for key in ["a", "{a}b", "a}b"] {
            let claim = Claim::new(key.into(), Token::new(7, ""));
            let auxiliary = [readers_key(key), intents_key(key), fence_counter(key), semaphore_limit(key)];
            let more = [gate(key), max_ttl_note(&gate(key)), claim.tombstone(), claim.want_mark()];
            for auxiliary in auxiliary.iter().chain(&more).chain([&turn_key(key, WaiterId::new(7))]) {
                assert!(is_auxiliary_key(auxiliary), "{auxiliary}");
            }
            assert!(!is_auxiliary_key(key));
        }
        assert!(!is_auxiliary_key("quorlock:orders:{a}"), "no kind of ours");
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
        fn the_key_of_a_queue_names_its_lock(key in "[a{}:\\PC]{1,8}") {
            let queue = format!("{}:order", want_mark(&key));
            prop_assert_eq!(lock_of_queue(&queue), Some(&*key), "{}", &queue);
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
