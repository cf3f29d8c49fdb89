//! The auxiliary keys of a lock.

use std::borrow::Cow;
use std::fmt;

use super::slot::Slot;

/// Returns the key in which a node stores the fencing counter of the lock at `key`, which begins with `prefix`: see
/// [`fence_counter_key`].
#[must_use]
pub fn fence_counter(prefix: &str, key: &str) -> String {
    fence_counter_key(prefix, key).to_string()
}

/// The key of the secret behind the inboxes of a process, after its prefix.
pub(crate) const SECRET_KEY: &str = "quorlock:inbox:secret";

/// The only member of that key, which is a sorted set; its score is the number.
pub const FENCE_MEMBER: &str = "n";

/// Returns the key in which a node stores the fencing counter of the lock at `key`, not formatted yet. All locks of a
/// hash slot whose keys begin with `prefix` share it, so that there are at most 16384 counters; and it is in their slot.
///
/// A prefix with a hash tag has all its locks in one slot: then a checksum of the whole key chooses one of as many.
#[must_use]
#[inline]
pub fn fence_counter_key<'a>(prefix: &'a str, key: &str) -> Sibling<'a> {
    let mut sibling = Sibling::in_slot("fence", prefix, "counter", Slot::of(key));
    if sibling.tag.is_none() {
        sibling.suffix = format!("counter:{}", Slot::of_whole(key)).into();
    }
    sibling
}

/// Returns the key in which a promoted server stores since when it has been master, for locks whose
/// keys begin with `prefix`.
#[must_use]
#[inline]
pub fn gate(prefix: &str) -> String {
    Sibling::new("gate", prefix, "reign").to_string()
}

/// Like [`gate`], for the server of a cluster that has this slot; nothing if all these locks are in another slot, because
/// the prefix has a hash tag.
#[must_use]
pub fn gate_in(prefix: &str, slot: Slot) -> Option<String> {
    let gate = Sibling::in_slot("gate", prefix, "reign", slot).to_string();
    (Slot::of(&gate) == slot).then_some(gate)
}

/// Returns the key in which a node stores the largest `max_ttl` of the clients that use this
/// [`gate`].
#[must_use]
#[inline]
pub fn max_ttl_note(gate: &str) -> String {
    format!("{}max-ttl", gate.strip_suffix("reign").unwrap_or(gate))
}

/// Returns the key in which a node stores the [lists of nodes](list_of_nodes) of the clients that use this
/// [`gate`].
#[must_use]
#[inline]
pub fn lists_note(gate: &str) -> String {
    format!("{}lists", gate.strip_suffix("reign").unwrap_or(gate))
}

/// Returns the list of the nodes with these identities, whatever their order: the first eight hexadecimal digits of
/// the SHA-1 of each, in order, with spaces between them.
#[must_use]
pub fn list_of_nodes(ids: Vec<&str>) -> String {
    let short = |id: &str| sha1_smol::Sha1::from(id).digest().to_string().get(..8).map(str::to_owned);
    let mut short: Vec<String> = ids.into_iter().filter_map(short).collect();
    short.sort_unstable();
    short.join(" ")
}

/// Returns the key in which a node stores the number of permits of the semaphore at `key`.
#[must_use]
#[inline]
pub fn semaphore_limit(key: &str) -> String {
    Sibling::new("semaphore", key, "limit").to_string()
}

/// Returns the key in which a node stores the [log](crate::LoggedHold) of the lock at `key`.
#[must_use]
#[inline]
pub fn log_key(key: &str) -> String {
    log_sibling(key).to_string()
}

/// Like [`log_key`], not formatted yet.
#[must_use]
#[inline]
pub fn log_sibling(key: &str) -> Sibling<'_> {
    Sibling::new("log", key, "holds")
}

/// Returns whether the library stores `key` beside its locks, and not as one.
#[must_use]
pub fn is_auxiliary_key(key: &str) -> bool {
    key.ends_with(SECRET_KEY) || companion(key).is_some()
}

/// Returns the key of the lock of which `key` is the queue: the sorted set whose name is that of the
/// [`want_mark`](crate::want_mark) followed by `:order`.
#[must_use]
pub fn lock_of_queue(key: &str) -> Option<&str> {
    companion(key).and_then(|(lock, rest)| (rest == "want:mark:order").then_some(lock))
}

/// Returns the lock beside which `key` is stored, and the rest of its name, as in `fence:counter`.
#[must_use]
pub fn companion(key: &str) -> Option<(&str, &str)> {
    const KINDS: [&str; 7] = ["fence:", "gate:", "log:", "semaphore:", "shared:", "tomb:", "want:"];
    // Not simply the last: the tombstone of a reader ends with the marker of shared locks.
    let parts =
        key.rmatch_indices(OURS).filter_map(|(at, _)| Some((key.get(..at)?, key.get(at + OURS.len()..)?)));
    let (named, rest) =
        parts.into_iter().find(|(_, rest)| KINDS.iter().any(|kind| rest.starts_with(kind)))?;
    let lock = named.strip_suffix(':').or_else(|| {
        let open = named.strip_suffix('}')?.trim_end_matches(|digit: char| digit.is_ascii_digit());
        open.strip_suffix(['{', ':'])
    })?;
    Some((lock, rest))
}

/// Returns whether what is stored beside the lock at `key` can be in its hash slot. Not if the key contains `{}` before
/// any hash tag: then each key that begins with it is hashed as a whole.
#[must_use]
pub fn keeps_companions(key: &str) -> bool {
    !key.split_once('{').is_some_and(|(_, rest)| rest.starts_with('}'))
}

/// What tells them from locks.
const OURS: &str = ":quorlock:";

/// An auxiliary key of a lock. It begins with the lock's key, so a user with the right to all keys with a prefix has it to
/// those beside them as well, and to no others; and it is in the same hash slot of a Redis Cluster, since it repeats
/// the lock's hash tag, or has a number that hashes to the slot as its tag.
///
/// Only [some keys](keeps_companions) have no sibling in their slot: a cluster refuses their requests.
pub struct Sibling<'a> {
    kind: &'static str,
    key: &'a str,
    suffix: Cow<'a, str>,
    tag: Option<Tag>,
}

/// The tag that is added behind a key that has none.
struct Tag {
    open: &'static str,
    number: String,
}

impl Tag {
    /// Returns what puts a key that begins with `key` into `slot`; nothing if its own tag decides.
    fn of(key: &str, slot: Slot) -> Option<Tag> {
        match key.split_once('{') {
            None => Some(Tag { open: "{", number: slot.tag().to_string() }),
            // A number that closes the brace.
            Some((_, rest)) if !rest.contains('}') => {
                Some(Tag { open: ":", number: slot.number_behind(&format!("{rest}:")).to_string() })
            }
            Some(_) => None,
        }
    }
}

impl<'a> Sibling<'a> {
    pub(super) fn new(kind: &'static str, key: &'a str, suffix: impl Into<Cow<'a, str>>) -> Sibling<'a> {
        Sibling::in_slot(kind, key, suffix, Slot::of(key))
    }

    fn in_slot(kind: &'static str, key: &'a str, suffix: impl Into<Cow<'a, str>>, slot: Slot) -> Sibling<'a> {
        Sibling { kind, key, suffix: suffix.into(), tag: Tag::of(key, slot) }
    }

    /// Returns its parts, to be written without allocating a string.
    #[must_use]
    pub fn pieces(&self) -> [&str; 8] {
        // The second colon distinguishes the siblings of `a{1}` from those of `a`.
        let [open, number, close] = match &self.tag {
            Some(tag) => [tag.open, &*tag.number, "}"],
            None => [":", "", ""],
        };
        [self.key, open, number, close, OURS, self.kind, ":", &self.suffix]
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
        for key in ["orders/42", "{user1}.cart", "a{b}c{d}", "a{b", "a}b"] {
            let tomb = Claim::new(key.into(), Token::new(7, "")).tombstone();
            assert_eq!(Slot::of(&tomb), Slot::of(key), "{key} and {tomb} must share a slot");
            assert!(tomb.starts_with(key), "a user who may access {key} may access {tomb}");
        }
    }

    #[test]
    fn a_gate_is_in_the_slot_of_its_master_unless_a_hash_tag_decides() {
        let slot = Slot::of("elsewhere");
        for prefix in ["", "locks:", "a}", "a{b", "{"] {
            let gate = gate_in(prefix, slot).unwrap();
            assert!(Slot::of(&gate) == slot && gate.starts_with(prefix), "{gate}");
        }
        assert_eq!(gate_in("{app}:", slot), None, "no lock with this prefix is there");
        assert_eq!(gate_in("{app}:", Slot::of("app")), Some(gate("{app}:")));
    }

    #[test]
    fn locks_of_a_slot_share_a_counter_and_those_of_another_prefix_do_not() {
        let tagged = |tag: &str, name: &str| format!("app:{{{tag}}}{name}");
        let (one, two, other) = (tagged("a", "one"), tagged("a", "two"), tagged("b", "one"));
        assert_eq!(fence_counter("app:", &one), fence_counter("app:", &two));
        assert_ne!(fence_counter("app:", &one), fence_counter("app:", &other));
        assert_ne!(fence_counter("app:", &one), fence_counter("", &one));
        let [one, two] = ["{app}one", "{app}two"].map(|key| fence_counter("{app}", key));
        assert!(one != two && one.starts_with("{app}"), "{one} and {two}");
    }

    #[test]
    fn siblings_of_one_lock_are_different_keys() {
        let mut keys = vec![readers_key("a"), intents_key("a"), fence_counter("", "a")];
        keys.dedup();
        assert_eq!(keys.len(), 3, "{keys:?}");
    }

    #[test]
    fn auxiliary_keys_are_told_from_locks() {
        for key in ["a", "{a}b", "a}b", "a{b", "{}"] {
            let claim = Claim::new(key.into(), Token::new(7, ""));
            let counter = fence_counter("", key);
            let auxiliary = [readers_key(key), intents_key(key), counter, semaphore_limit(key), log_key(key)];
            let more = [
                gate(key),
                max_ttl_note(&gate(key)),
                lists_note(&gate(key)),
                claim.tombstone(),
                claim.want_mark(),
            ];
            for auxiliary in auxiliary.iter().chain(&more).chain([&turn_key(key, WaiterId::new(7))]) {
                assert!(is_auxiliary_key(auxiliary), "{auxiliary}");
            }
            assert!(!is_auxiliary_key(key));
        }
        assert!(!is_auxiliary_key("{a}:quorlock:orders:1"), "no kind of ours");
        assert!(is_auxiliary_key(&crate::InboxId::secret_key("locks:")));
        let readers = Claim::new("a".into(), Token::found(crate::SHARED_MARKER.as_bytes()));
        assert!(is_auxiliary_key(&readers.tombstone()));
    }

    proptest! {
        #[test]
        fn all_siblings_of_any_key_are_in_its_slot(key in "[a{}:\\PC]{1,8}") {
            let claim = Claim::new(key.as_str().into(), Token::new(7, ""));
            let shared = [readers_key(&key), intents_key(&key), log_key(&key)];
            let others = [claim.tombstone(), claim.want_mark(), turn_key(&key, WaiterId::new(7))];
            for sibling in others.into_iter().chain(shared) {
                prop_assert!(sibling.starts_with(&*key), "{} and {}", &key, &sibling);
                prop_assert!(!keeps_companions(&key) || Slot::of(&sibling) == Slot::of(&key), "{} and {}", &key, &sibling);
            }
        }

        #[test]
        fn the_counter_of_any_key_is_in_its_slot(prefix in "[a{}:\\PC]{0,4}", rest in "[a{}:\\PC]{1,4}") {
            let key = format!("{prefix}{rest}");
            let counter = fence_counter(&prefix, &key);
            prop_assert!(counter.starts_with(&*prefix) && is_auxiliary_key(&counter), "{} and {}", &key, &counter);
            prop_assert!(!keeps_companions(&prefix) || Slot::of(&counter) == Slot::of(&key), "{} and {}", &key, &counter);
        }

        #[test]
        fn the_key_of_a_queue_names_its_lock(key in "[a{}:\\PC]{1,8}") {
            let queue = format!("{}:order", want_mark(&key));
            prop_assert_eq!(lock_of_queue(&queue), Some(&*key), "{}", &queue);
        }

        #[test]
        fn two_locks_share_no_sibling(one in "[a{}:]{1,6}", two in "[a{}:]{1,6}") {
            prop_assume!(one != two);
            let tagged = format!("{one}{{{}}}", Slot::of(&one).tag());
            for (one, two) in [(one.clone(), two), (one.clone(), tagged)] {
                prop_assert_ne!(want_mark(&one), want_mark(&two));
            }
        }
    }
}
