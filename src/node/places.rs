//! Places, for nodes on stores that serve waiters in [order of arrival](super::Grants::FirstCome).
//!
//! Such a store keeps a place for each client that wants a lock, in the order in which they came. The first place holds the
//! lock, unless it is that of a waiter of this library: then it is the waiter's turn. [`Owner`] is what the data of a place
//! say, and [`OwnPlaces`] are the places of this process, which it deletes when their time is over: the session or lease
//! that they live on is for the case that the process dies.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{FencingToken, Moment, Token, WaiterId};

use super::QueuedWaiter;

/// Begins the data of a waiter's place.
const WAITS: &[u8] = b"\0waits ";

/// What the data of a place say of its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(
    clippy::exhaustive_enums,
    reason = "complete: what is no waiter of ours holds the lock if it is first"
)]
pub enum Owner {
    /// An attempt of ours, or another program: if it is first, it holds the lock. With the number that was drawn for it, if
    /// its token does not name that.
    Attempt(Token, Option<FencingToken>),
    /// A waiter of ours: if it is first, it is its turn, but it holds nothing yet. With the time since 1970 at which it began
    /// to wait, by its own clock, and its context.
    Waiter(WaiterId, Duration, String),
}

impl Owner {
    /// Reads the data of a place. Other programs may store anything.
    #[must_use]
    pub fn of(data: &[u8]) -> Owner {
        if let Some(rest) = data.strip_prefix(WAITS)
            && let Some((waiter, since, context)) = str::from_utf8(rest).ok().and_then(words)
        {
            return Owner::Waiter(waiter, since, context.to_owned());
        }
        if let Some(end) = data.iter().rposition(|byte| *byte == 0)
            && let Some((token, number)) = data.split_at_checked(end)
            && let Some(number) = number.get(1..).and_then(|digits| str::from_utf8(digits).ok()?.parse().ok())
            && Token::found(token).is_ours()
        {
            return Owner::Attempt(Token::found(token), Some(number));
        }
        Owner::Attempt(Token::found(data), None)
    }

    /// Returns the data of an attempt's place: its token, and the number that was drawn for it where that is another one
    /// than the token names.
    #[must_use]
    pub fn attempt(token: &Token, number: Option<FencingToken>) -> Vec<u8> {
        let mut data = token.as_bytes().to_vec();
        if let Some(number) = number.filter(|number| token.number() != Some(*number)) {
            data.extend_from_slice(format!("\0{number}").as_bytes());
        }
        data
    }

    /// Returns the data of a waiter's place.
    #[must_use]
    pub fn waiter(waiter: WaiterId, since: Duration, context: &str) -> Vec<u8> {
        [WAITS, format!("{waiter} {} {context}", since.as_millis()).as_bytes()].concat()
    }

    /// Returns whether it holds nothing, even if it is first.
    #[must_use]
    pub fn is_waiter(&self) -> bool {
        matches!(self, Owner::Waiter(..))
    }

    /// Returns the entry of a list of waiters. `id` names the place of another program.
    #[must_use]
    pub fn listed(self, id: WaiterId, wall: Duration) -> QueuedWaiter {
        match self {
            Owner::Waiter(waiter, since, context) => {
                QueuedWaiter::new(waiter, wall.saturating_sub(since), context)
            }
            Owner::Attempt(token, _) => {
                let context = token.context().unwrap_or_else(|| "another program".to_owned());
                QueuedWaiter::new(id, Duration::ZERO, context)
            }
        }
    }
}

fn words(text: &str) -> Option<(WaiterId, Duration, &str)> {
    let (waiter, rest) = text.split_once(' ')?;
    let (since, context) = rest.split_once(' ')?;
    Some((WaiterId::parse(waiter.as_bytes())?, Duration::from_millis(since.parse().ok()?), context))
}

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

    /// Records that a place has gone, of whatever program. Returns the waiters of this process that are to ask: whose place
    /// it was, or whose turn it is.
    pub fn gone<Q: Eq + ?Sized>(&mut self, lock: &Arc<str>, key: &Q, now: Moment) -> Vec<WaiterId>
    where
        K: Borrow<Q>,
    {
        let mut asked = Vec::new();
        let lost = self.by_key(lock, key).and_then(|own| match &own.role {
            Role::Waiter(waiting) => Some(waiting.waiter),
            Role::Holder(_) => None,
        });
        if let Some(waiter) = lost {
            self.remove(lock, key);
            asked.push(waiter);
        }
        let Some(all) = self.by_lock.get_mut(lock) else { return asked };
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
        asked
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
    fn data_are_read_as_they_were_written() {
        let number = FencingToken::new(7).unwrap();
        let token = Token::numbered(5, FencingToken::new(6).unwrap(), "db-7:41");
        for drawn in [None, Some(number)] {
            assert_eq!(Owner::of(&Owner::attempt(&token, drawn)), Owner::Attempt(token.clone(), drawn));
        }
        assert_eq!(Owner::attempt(&token, token.number()), token.as_bytes(), "the token names it");
        let since = Duration::from_millis(1_700_000_000_123);
        let named = Owner::Waiter(WaiterId::new(9), since, "db-7:41 nightly".to_owned());
        assert_eq!(Owner::of(&Owner::waiter(WaiterId::new(9), since, "db-7:41 nightly")), named);
        for foreign in [&b""[..], b"42", b"\xff\x00 no text", b"a\x0042", b"\0waits x"] {
            assert_eq!(Owner::of(foreign), Owner::Attempt(Token::found(foreign), None));
        }
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
        assert!(owned.gone(&lock, &"a/9", seconds(1)).is_empty());
        assert!(owned.gone(&lock, &"a/1", seconds(1)).is_empty());
        assert_eq!(owned.gone(&lock, &"a/2", seconds(5)), [WaiterId::new(3)]);
        assert!(owned.gone(&lock, &"a/2", seconds(5)).is_empty(), "it knows");
        assert!(owned.take_ended(seconds(6)).is_empty());
        assert_eq!(owned.take_ended(seconds(7)).len(), 1);
    }

    #[test]
    fn a_waiter_whose_place_has_gone_asks_again() {
        let (lock, mut owned) = (Arc::from("a"), OwnPlaces::default());
        owned.put(&lock, own("a/3", waiting(3, &["a/1"]), 60));
        assert_eq!(owned.gone(&lock, &"a/3", seconds(1)), [WaiterId::new(3)]);
        assert!(owned.waiter("a", WaiterId::new(3)).is_none());
    }
}
