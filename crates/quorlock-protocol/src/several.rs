//! Several locks that are claimed together, all or none.

use std::fmt;
use std::iter;
use std::sync::Arc;

use super::claim::tombstone_sibling;
use super::printable::printable;
use super::sibling::{Sibling, fence_counter_key};
use super::{Claim, Token};

/// The most resources of a lock. All of them are in each request, which blocks a server: 64 take
/// some hundred microseconds.
pub const MOST_RESOURCES: usize = 64;

impl Claim {
    /// Claims these keys with the same token as well: all of them or none (rule M-1). They must
    /// differ from each other and from the [first](Claim::key), and all clients must name them in
    /// the same order.
    #[must_use]
    pub fn and(mut self, others: Arc<[Arc<str>]>) -> Claim {
        let is_new = |(index, key): (usize, &Arc<str>)| {
            *key != self.key && others.iter().take(index).all(|other| other != key)
        };
        debug_assert!(others.iter().enumerate().all(is_new), "a claim has the same key twice");
        self.others = (!others.is_empty()).then_some(others);
        self
    }

    /// Returns all its keys, of which [`key`](Claim::key) is the first.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> + Clone {
        iter::once(&self.key).chain(self.others.iter().flat_map(|others| others.iter()))
    }

    /// Returns whether it has more than one key.
    #[must_use]
    pub fn is_several(&self) -> bool {
        self.others.is_some()
    }

    /// Returns the claims of its individual locks, with the same token.
    pub fn each(&self) -> impl Iterator<Item = Claim> {
        self.keys().map(|key| Claim::new(key.clone(), self.token().clone()).below(self.key_prefix().len()))
    }

    /// Returns the auxiliary keys of each of its locks: tombstone, mark and counter.
    pub fn siblings(&self) -> impl Iterator<Item = [Sibling<'_>; 3]> {
        self.keys().map(|key| {
            let counter = fence_counter_key(self.key_prefix(), key);
            [tombstone_sibling(key, self.token()), Sibling::new("want", key, "mark"), counter]
        })
    }
}

/// The keys of a lock: one, or several in byte order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    first: Arc<str>,
    /// A thin pointer: every waiter has keys, and nearly always one.
    together: Option<Arc<Together>>,
}

/// The parts that several keys need.
#[derive(PartialEq, Eq, Debug)]
struct Together {
    others: Arc<[Arc<str>]>,
    /// The name of their wait queue in a process.
    line: Arc<str>,
}

impl Keys {
    /// Returns a single key.
    #[must_use]
    pub fn one(key: Arc<str>) -> Keys {
        Keys { first: key, together: None }
    }

    /// Sorts and deduplicates the keys; `None` if there are none.
    #[must_use]
    pub fn several(mut keys: Vec<Arc<str>>) -> Option<Keys> {
        keys.sort_unstable();
        keys.dedup();
        let (first, others) = keys.split_first()?;
        if others.is_empty() {
            return Some(Keys::one(first.clone()));
        }
        // With their lengths, so that no two sets have the same name.
        let named: Vec<String> = keys.iter().map(|key| format!("{}:{key}", key.len())).collect();
        let together = Together { others: others.into(), line: named.concat().into() };
        Some(Keys { first: first.clone(), together: Some(together.into()) })
    }

    /// Returns the first in order.
    #[must_use]
    pub fn first(&self) -> &Arc<str> {
        &self.first
    }

    /// Returns the name of their wait queue in a process: the key itself, if it is the only one.
    #[must_use]
    pub fn queue_key(&self) -> &Arc<str> {
        self.together.as_ref().map_or(&self.first, |together| &together.line)
    }

    /// Returns whether there is more than one.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.together.is_some()
    }

    /// Returns each of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> + Clone {
        iter::once(&self.first).chain(self.together.iter().flat_map(|together| together.others.iter()))
    }

    /// Claims all of them with `token`.
    #[must_use]
    pub fn claim(&self, token: Token) -> Claim {
        let claim = Claim::new(self.first.clone(), token);
        match &self.together {
            Some(together) => claim.and(together.others.clone()),
            None => claim,
        }
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().map(|key| printable(key).to_string()).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Keys {
        Keys::several(names.iter().map(|name| Arc::from(*name)).collect()).unwrap()
    }

    #[test]
    fn the_order_and_number_of_keys_do_not_matter() {
        assert_eq!(keys(&["b", "a", "b"]), keys(&["a", "b"]));
        assert_eq!(keys(&["a", "a"]), Keys::one("a".into()));
        assert_eq!(Keys::several(Vec::new()), None);
    }

    #[test]
    fn no_two_sets_have_the_same_queue() {
        assert_ne!(keys(&["a", "b"]).queue_key(), keys(&["a1:b"]).queue_key());
        assert_ne!(keys(&["a", "b,c"]).queue_key(), keys(&["a", "b", "c"]).queue_key());
    }

    #[test]
    fn a_claim_of_several_is_one_of_each() {
        let claim = keys(&["b", "a"]).claim(Token::new(7, ""));
        assert_eq!(claim.keys().map(|key| &**key).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            claim.each().collect::<Vec<_>>(),
            ["a", "b"].map(|key| Claim::new(key.into(), Token::new(7, "")))
        );
        assert!(claim.is_several() && !keys(&["a"]).claim(Token::new(7, "")).is_several());
    }
}
