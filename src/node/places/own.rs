//! The places of this process: whose turn it is, and what is to be deleted.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Moment, Token, WaiterId};

/// A place of this process, under the key `K`, with what else the node knows of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OwnPlace<K, S> {
    /// Where it is stored.
    pub key: K,
    /// What it is for.
    pub role: Role<K>,
    /// The place is deleted then, unless this is put off.
    pub until: Moment,
    /// What the node knows of it.
    pub stored: S,
}

/// What a place is for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a place holds, or waits")]
pub enum Role<K> {
    /// It holds the lock.
    Holder(Token),
    /// It waits.
    Waiter(Waiting<K>),
}

/// The state of a waiter's place.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Waiting<K> {
    /// Whose place it is.
    pub waiter: WaiterId,
    /// The places before it, as far as they are known.
    pub before: Vec<K>,
    /// How long its turn lasts.
    pub turn: Duration,
    /// When its turn ends, if it is its turn.
    pub turn_ends: Option<Moment>,
}

impl<K> Waiting<K> {
    /// Creates the state of a new place.
    #[must_use]
    pub fn new(waiter: WaiterId, turn: Duration) -> Waiting<K> {
        Waiting { waiter, before: Vec::new(), turn, turn_ends: None }
    }
}

impl<K, S> OwnPlace<K, S> {
    /// Creates the record of a place.
    pub fn new(key: K, role: Role<K>, until: Moment, stored: S) -> OwnPlace<K, S> {
        OwnPlace { key, role, until, stored }
    }

    fn is_holder(&self, token: &Token) -> bool {
        matches!(&self.role, Role::Holder(own) if own == token)
    }

    fn is_of(&self, waiter: WaiterId) -> bool {
        matches!(&self.role, Role::Waiter(waiting) if waiting.waiter == waiter)
    }

    /// When it ends.
    fn ends(&self) -> Moment {
        match &self.role {
            Role::Holder(_) => self.until,
            Role::Waiter(waiting) => waiting.turn_ends.map_or(self.until, |ends| ends.min(self.until)),
        }
    }
}

/// All places of this process.
#[derive(Debug)]
pub struct OwnPlaces<K, S> {
    by_lock: HashMap<Arc<str>, Vec<OwnPlace<K, S>>>,
    /// When to look at which, no later than it ends.
    due: BTreeSet<(Moment, Arc<str>, K)>,
}

impl<K, S> Default for OwnPlaces<K, S> {
    fn default() -> OwnPlaces<K, S> {
        OwnPlaces { by_lock: HashMap::new(), due: BTreeSet::new() }
    }
}

impl<K: Ord + Clone + fmt::Debug, S> OwnPlaces<K, S> {
    fn of(&self, lock: &str) -> &[OwnPlace<K, S>] {
        self.by_lock.get(lock).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the place of an attempt that holds the lock.
    #[must_use]
    pub fn holder(&self, lock: &str, token: &Token) -> Option<&OwnPlace<K, S>> {
        self.of(lock).iter().find(|own| own.is_holder(token))
    }

    /// Returns the place of a waiter.
    #[must_use]
    pub fn waiter(&self, lock: &str, waiter: WaiterId) -> Option<&OwnPlace<K, S>> {
        self.of(lock).iter().find(|own| own.is_of(waiter))
    }

    /// Returns the place with this key, whatever its role.
    #[must_use]
    pub fn by_key<Q: Eq + ?Sized>(&self, lock: &str, key: &Q) -> Option<&OwnPlace<K, S>>
    where
        K: Borrow<Q>,
    {
        self.of(lock).iter().find(|own| own.key.borrow() == key)
    }

    /// Records a place, or replaces the record of its key. Returns whether it ends before all others.
    pub fn put(&mut self, lock: &Arc<str>, own: OwnPlace<K, S>) -> bool {
        let (ends, key) = (own.ends(), own.key.clone());
        let all = self.by_lock.entry(Arc::clone(lock)).or_default();
        match all.iter_mut().find(|known| known.key == own.key) {
            Some(known) => *known = own,
            None => all.push(own),
        }
        self.due.insert((ends, Arc::clone(lock), key));
        self.due.first().is_some_and(|(first, ..)| *first == ends)
    }

    /// Changes a record. Returns whether it ends before all others.
    pub fn change<Q: Eq + ?Sized>(
        &mut self,
        lock: &str,
        key: &Q,
        change: impl FnOnce(&mut OwnPlace<K, S>),
    ) -> bool
    where
        K: Borrow<Q>,
    {
        let Some(name) = self.by_lock.get_key_value(lock).map(|(name, _)| Arc::clone(name)) else {
            return false;
        };
        let own =
            self.by_lock.get_mut(lock).and_then(|all| all.iter_mut().find(|own| own.key.borrow() == key));
        let Some(own) = own else { return false };
        let before = own.ends();
        change(own);
        let (ends, key) = (own.ends(), own.key.clone());
        if ends >= before {
            // It is looked at when it would have ended, and again then.
            return false;
        }
        self.due.insert((ends, name, key));
        self.due.first().is_some_and(|(first, ..)| *first == ends)
    }

    /// Removes a record.
    pub fn remove<Q: Eq + ?Sized>(&mut self, lock: &str, key: &Q) -> Option<OwnPlace<K, S>>
    where
        K: Borrow<Q>,
    {
        let all = self.by_lock.get_mut(lock)?;
        let at = all.iter().position(|own| own.key.borrow() == key)?;
        let own = all.swap_remove(at);
        if all.is_empty() {
            self.by_lock.remove(lock);
        }
        Some(own)
    }

    /// Returns the keys of all places.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.by_lock.values().flatten().map(|own| &own.key)
    }

    /// Removes the records for which this does not hold.
    pub fn retain(&mut self, mut keep: impl FnMut(&OwnPlace<K, S>) -> bool) {
        self.by_lock.retain(|_, all| {
            all.retain(&mut keep);
            !all.is_empty()
        });
    }

    /// Removes and returns the places that have ended, which are to be deleted.
    pub fn take_ended(&mut self, now: Moment) -> Vec<OwnPlace<K, S>> {
        let mut ended = Vec::new();
        while self.due.first().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, lock, key)) = self.due.pop_first() else { break };
            let Some(ends) = self.by_key(&lock, &key).map(OwnPlace::ends) else { continue };
            if ends <= now {
                ended.extend(self.remove(&lock, &key));
            } else {
                self.due.insert((ends, lock, key));
            }
        }
        ended
    }

    /// Returns the moment until which no place ends.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(due, ..)| *due)
    }

    /// Records that a place has gone, of whatever program. Returns the waiters of this process that are to ask, whose place
    /// it was, or whose turn it is; and whether it was the place of a holder of this process, which is to renew.
    pub fn gone<Q: Eq + ?Sized>(&mut self, lock: &Arc<str>, key: &Q, now: Moment) -> (Vec<WaiterId>, bool)
    where
        K: Borrow<Q>,
    {
        let mut asked = Vec::new();
        let lost = self.by_key(lock, key).map(|own| match &own.role {
            Role::Waiter(waiting) => Some(waiting.waiter),
            Role::Holder(_) => None,
        });
        let is_holders = lost == Some(None);
        if let Some(waiter) = lost {
            self.remove(lock, key);
            asked.extend(waiter);
        }
        let Some(all) = self.by_lock.get_mut(lock) else { return (asked, is_holders) };
        for own in all {
            let Role::Waiter(waiting) = &mut own.role else { continue };
            let were = waiting.before.len();
            waiting.before.retain(|before| before.borrow() != key);
            if were > 0 && waiting.before.is_empty() {
                waiting.turn_ends = Some(now + waiting.turn);
                asked.push(waiting.waiter);
                self.due.insert((now + waiting.turn, Arc::clone(lock), own.key.clone()));
            }
        }
        (asked, is_holders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    fn own(key: &'static str, role: Role<&'static str>, until: u64) -> OwnPlace<&'static str, ()> {
        OwnPlace::new(key, role, seconds(until), ())
    }

    fn waiting(waiter: u64, before: &[&'static str]) -> Role<&'static str> {
        let state = Waiting::new(WaiterId::new(waiter), Duration::from_secs(2));
        Role::Waiter(Waiting { before: before.to_vec(), ..state })
    }

    #[test]
    fn a_place_ends_once_and_not_before_it_was_last_prolonged() {
        let (lock, mut owned) = (Arc::from("a"), OwnPlaces::default());
        assert!(owned.put(&lock, own("a/1", Role::Holder(Token::found(b"t")), 10)));
        assert!(!owned.put(&lock, own("a/2", Role::Holder(Token::found(b"u")), 20)));
        owned.change("a", &"a/1", |own| own.until = seconds(30));
        assert!(owned.take_ended(seconds(19)).is_empty());
        let ended: Vec<_> = owned.take_ended(seconds(29)).into_iter().map(|own| own.key).collect();
        assert_eq!(ended, ["a/2"]);
        assert_eq!(owned.next_due(), Some(seconds(30)));
        assert_eq!(owned.take_ended(seconds(30)).len(), 1);
        assert!(owned.next_due().is_none() && owned.of("a").is_empty());
    }

    #[test]
    fn a_waiter_is_first_when_all_before_it_have_gone_and_loses_a_turn_that_it_does_not_take() {
        let (lock, mut owned) = (Arc::from("a"), OwnPlaces::default());
        owned.put(&lock, own("a/3", waiting(3, &["a/1", "a/2"]), 60));
        let none = (Vec::new(), false);
        assert_eq!(owned.gone(&lock, &"a/9", seconds(1)), none);
        assert_eq!(owned.gone(&lock, &"a/1", seconds(1)), none);
        assert_eq!(owned.gone(&lock, &"a/2", seconds(5)), (vec![WaiterId::new(3)], false));
        assert_eq!(owned.gone(&lock, &"a/2", seconds(5)), none, "it knows");
        assert!(owned.take_ended(seconds(6)).is_empty());
        assert_eq!(owned.take_ended(seconds(7)).len(), 1);
    }

    #[test]
    fn a_waiter_whose_place_has_gone_asks_again() {
        let (lock, mut owned) = (Arc::from("a"), OwnPlaces::default());
        owned.put(&lock, own("a/3", waiting(3, &["a/1"]), 60));
        assert_eq!(owned.gone(&lock, &"a/3", seconds(1)), (vec![WaiterId::new(3)], false));
        assert!(owned.waiter("a", WaiterId::new(3)).is_none());
    }

    #[test]
    fn i52_a_holder_whose_place_has_gone_renews_and_looks() {
        let (lock, mut owned) = (Arc::from("a"), OwnPlaces::default());
        let token = Token::found(b"t");
        owned.put(&lock, own("a/1", Role::Holder(token.clone()), 60));
        assert_eq!(owned.gone(&lock, &"a/1", seconds(1)), (Vec::new(), true));
        assert!(owned.holder("a", &token).is_none(), "no list of before says that it is there");
    }
}
