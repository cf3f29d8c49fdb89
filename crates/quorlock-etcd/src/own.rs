//! The keys that this process has stored: holders, and places of its waiters.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::{Moment, Token, WaiterId};

/// A key of this process.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// The revision at which the key was created, which orders the places.
    pub(crate) created: i64,
    pub(crate) role: Role,
    /// The key is deleted then, unless this is put off: its lease may live on for others.
    pub(crate) until: Moment,
    /// The TTL of its lease, in seconds.
    pub(crate) class: u64,
    /// From when the TTL of the lease counted when it was stored, and when that was answered.
    pub(crate) from: Moment,
    pub(crate) put: Moment,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Holder(Token),
    Place(Place),
}

/// The place of a waiter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) waiter: WaiterId,
    /// The places before it, as far as they are known.
    pub(crate) before: Vec<Vec<u8>>,
    /// How long its turn lasts, and when it ends.
    pub(crate) turn: Duration,
    pub(crate) turn_ends: Option<Moment>,
}

impl Own {
    pub(crate) fn is_holder(&self, token: &Token) -> bool {
        matches!(&self.role, Role::Holder(own) if own == token)
    }

    fn is_place_of(&self, waiter: WaiterId) -> bool {
        matches!(&self.role, Role::Place(place) if place.waiter == waiter)
    }

    /// When it ends.
    fn ends(&self) -> Moment {
        match &self.role {
            Role::Holder(_) => self.until,
            Role::Place(place) => place.turn_ends.map_or(self.until, |ends| ends.min(self.until)),
        }
    }
}

/// All keys of this process.
#[derive(Default)]
pub(crate) struct Owned {
    by_lock: HashMap<Arc<str>, Vec<Own>>,
    /// When to look at which, no later than it ends.
    due: BTreeSet<(Moment, Arc<str>, Vec<u8>)>,
}

impl Owned {
    fn of(&self, lock: &str) -> &[Own] {
        self.by_lock.get(lock).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn holder(&self, lock: &str, token: &Token) -> Option<&Own> {
        self.of(lock).iter().find(|own| own.is_holder(token))
    }

    pub(crate) fn place(&self, lock: &str, waiter: WaiterId) -> Option<&Own> {
        self.of(lock).iter().find(|own| own.is_place_of(waiter))
    }

    /// Returns the key's record, whatever its role.
    pub(crate) fn by_key(&self, lock: &str, key: &[u8]) -> Option<&Own> {
        self.of(lock).iter().find(|own| own.key == key)
    }

    /// Stores or replaces the record of a key. Returns whether it ends before everything else.
    pub(crate) fn put(&mut self, lock: &Arc<str>, own: Own) -> bool {
        let (ends, key) = (own.ends(), own.key.clone());
        let all = self.by_lock.entry(Arc::clone(lock)).or_default();
        match all.iter_mut().find(|known| known.key == own.key) {
            Some(known) => *known = own,
            None => all.push(own),
        }
        self.due.insert((ends, Arc::clone(lock), key));
        self.due.first().is_some_and(|(first, ..)| *first == ends)
    }

    /// Changes a record. Returns whether it ends before everything else.
    pub(crate) fn change(&mut self, lock: &str, key: &[u8], change: impl FnOnce(&mut Own)) -> bool {
        let Some(name) = self.by_lock.get_key_value(lock).map(|(name, _)| Arc::clone(name)) else {
            return false;
        };
        let own = self.by_lock.get_mut(lock).and_then(|all| all.iter_mut().find(|own| own.key == key));
        let Some(own) = own else { return false };
        let before = own.ends();
        change(own);
        let ends = own.ends();
        if ends >= before {
            // It is looked at when it would have ended, and again then.
            return false;
        }
        self.due.insert((ends, name, key.to_vec()));
        self.due.first().is_some_and(|(first, ..)| *first == ends)
    }

    pub(crate) fn remove(&mut self, lock: &str, key: &[u8]) -> Option<Own> {
        let all = self.by_lock.get_mut(lock)?;
        let at = all.iter().position(|own| own.key == key)?;
        let own = all.swap_remove(at);
        if all.is_empty() {
            self.by_lock.remove(lock);
        }
        Some(own)
    }

    /// Removes and returns the keys that have ended.
    pub(crate) fn take_ended(&mut self, now: Moment) -> Vec<Own> {
        let mut ended = Vec::new();
        while self.due.first().is_some_and(|(due, ..)| *due <= now) {
            let Some((_, lock, key)) = self.due.pop_first() else { break };
            let Some(ends) = self.by_key(&lock, &key).map(Own::ends) else { continue };
            if ends <= now {
                ended.extend(self.remove(&lock, &key));
            } else {
                self.due.insert((ends, lock, key));
            }
        }
        ended
    }

    pub(crate) fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(due, ..)| *due)
    }

    /// A place has gone. Returns the waiters of this process that are to ask: whose place it was, or whose turn it is.
    pub(crate) fn gone(&mut self, lock: &Arc<str>, key: &[u8], now: Moment) -> Vec<WaiterId> {
        let mut asked = Vec::new();
        let lost = self.by_key(lock, key).and_then(|own| match &own.role {
            Role::Place(place) => Some(place.waiter),
            Role::Holder(_) => None,
        });
        if let Some(waiter) = lost {
            self.remove(lock, key);
            asked.push(waiter);
        }
        let Some(all) = self.by_lock.get_mut(lock) else { return asked };
        for own in all {
            let Role::Place(place) = &mut own.role else { continue };
            let were = place.before.len();
            place.before.retain(|before| before != key);
            if were > 0 && place.before.is_empty() {
                place.turn_ends = Some(now + place.turn);
                asked.push(place.waiter);
                self.due.insert((now + place.turn, Arc::clone(lock), own.key.clone()));
            }
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    fn own(key: &[u8], role: Role, until: u64) -> Own {
        let (value, created) = (b"value".to_vec(), 7);
        Own {
            key: key.to_vec(),
            value,
            created,
            role,
            until: seconds(until),
            class: 10,
            from: seconds(0),
            put: seconds(1),
        }
    }

    fn place(waiter: u64, before: &[&[u8]]) -> Role {
        let before = before.iter().map(|key| key.to_vec()).collect();
        let (waiter, turn) = (WaiterId::new(waiter), Duration::from_secs(2));
        Role::Place(Place { waiter, before, turn, turn_ends: None })
    }

    #[test]
    fn a_key_ends_once_and_not_before_it_was_last_prolonged() {
        let (lock, mut owned) = (Arc::from("a"), Owned::default());
        assert!(owned.put(&lock, own(b"a/1", Role::Holder(Token::found(b"t")), 10)));
        assert!(!owned.put(&lock, own(b"a/2", Role::Holder(Token::found(b"u")), 20)));
        owned.change("a", b"a/1", |own| own.until = seconds(30));
        assert!(owned.take_ended(seconds(19)).is_empty());
        let ended: Vec<_> = owned.take_ended(seconds(29)).into_iter().map(|own| own.key).collect();
        assert_eq!(ended, [b"a/2"]);
        assert_eq!(owned.next_due(), Some(seconds(30)));
        assert_eq!(owned.take_ended(seconds(30)).len(), 1);
        assert!(owned.next_due().is_none() && owned.of("a").is_empty());
    }

    #[test]
    fn a_waiter_is_first_when_all_before_it_have_gone_and_loses_a_turn_that_it_does_not_take() {
        let (lock, mut owned) = (Arc::from("a"), Owned::default());
        owned.put(&lock, own(b"a/3", place(3, &[b"a/1", b"a/2"]), 60));
        assert!(owned.gone(&lock, b"a/9", seconds(1)).is_empty());
        assert!(owned.gone(&lock, b"a/1", seconds(1)).is_empty());
        assert_eq!(owned.gone(&lock, b"a/2", seconds(5)), [WaiterId::new(3)]);
        assert!(owned.gone(&lock, b"a/2", seconds(5)).is_empty(), "it knows");
        assert!(owned.take_ended(seconds(6)).is_empty());
        assert_eq!(owned.take_ended(seconds(7)).len(), 1);
    }

    #[test]
    fn a_waiter_whose_place_has_gone_asks_again() {
        let (lock, mut owned) = (Arc::from("a"), Owned::default());
        owned.put(&lock, own(b"a/3", place(3, &[b"a/1"]), 60));
        assert_eq!(owned.gone(&lock, b"a/3", seconds(1)), [WaiterId::new(3)]);
        assert!(owned.place("a", WaiterId::new(3)).is_none());
    }
}
