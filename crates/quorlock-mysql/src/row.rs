//! A row: the state of a key in the table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quorlock::protocol::{FencingToken, SHARED_MARKER, Token, WaiterId, micros};

use crate::queue::Queue;

/// The state of a key. Moments are microseconds since 1970 by the server's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// The holder. While the lock is shared, the token is [`SHARED_MARKER`].
    pub(crate) held: Option<Held>,
    /// The largest fencing token so far, as it was read; 0 for none.
    pub(crate) counter: u64,
    pub(crate) beside: Beside,
    /// The waiters for the lock.
    pub(crate) queue: Queue,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) token: Token,
    /// `None` for never.
    pub(crate) ends: Option<u64>,
    /// The fencing token that was drawn for the holder.
    pub(crate) number: Option<FencingToken>,
    /// Whether a client was refused since.
    pub(crate) wanted: bool,
}

/// Readers, intents and tombstones, each with its expiry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// The tokens of the readers.
    pub(crate) readers: BTreeMap<Vec<u8>, u64>,
    /// Writers that wait for the readers.
    pub(crate) intents: BTreeMap<WaiterId, u64>,
    /// The random parts of tokens whose attempts were cancelled.
    pub(crate) tombstones: BTreeMap<Vec<u8>, u64>,
}

impl Row {
    /// Returns the row without expired parts.
    pub(crate) fn at(mut self, now: u64) -> Row {
        if self.held.as_ref().is_some_and(|held| held.ends.is_some_and(|ends| ends <= now)) {
            self.held = None;
        }
        // Shares expire with the marker (rule S-3).
        if !self.is_shared() {
            self.beside.readers.clear();
        }
        self.beside.readers.retain(|_, ends| *ends > now);
        self.beside.intents.retain(|_, ends| *ends > now);
        self.beside.tombstones.retain(|_, ends| *ends > now);
        if FencingToken::new(self.counter).is_some_and(|counter| micros_of(counter) <= now) {
            self.counter = 0;
        }
        self.queue = self.queue.at(now);
        self
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.token.is_marker())
    }

    /// When everything in the row has expired, so that it may be deleted.
    pub(crate) fn dead_at(&self) -> u64 {
        let Beside { readers, intents, tombstones } = &self.beside;
        let held = self.held.as_ref().map_or(0, |held| held.ends.unwrap_or(u64::MAX));
        let counter = FencingToken::new(self.counter).map_or(u64::MAX, micros_of);
        let beside = readers.values().chain(intents.values()).chain(tombstones.values()).copied();
        let counter = if self.counter == 0 { 0 } else { counter };
        beside.fold(held.max(counter).max(self.queue.dead_at()), u64::max)
    }
}

/// When a counter with this number expires (rule F-9).
fn micros_of(counter: FencingToken) -> u64 {
    if counter == FencingToken::ZERO {
        return u64::MAX;
    }
    micros(counter.counter_ends())
}

impl Held {
    pub(crate) fn marker(ends: u64) -> Held {
        Held { token: Token::found(SHARED_MARKER.as_bytes()), ends: Some(ends), number: None, wanted: false }
    }
}

const READER: &str = "reader";
const INTENT: &str = "writer";
const TOMBSTONE: &str = "cancelled";

impl Beside {
    /// Encodes the lines of the column `beside`: the kind of entry, its name, and its expiry.
    pub(crate) fn encode(&self) -> String {
        let mut lines = String::new();
        for (kind, names) in [(READER, &self.readers), (TOMBSTONE, &self.tombstones)] {
            for (name, ends) in names {
                let _ = writeln!(lines, "{kind} {} {ends}", hex(name));
            }
        }
        for (waiter, ends) in &self.intents {
            let _ = writeln!(lines, "{INTENT} {waiter} {ends}");
        }
        lines
    }

    /// Decodes the same. `None` if the text is something else.
    pub(crate) fn decode(text: &[u8]) -> Option<Beside> {
        let mut beside = Beside::default();
        for line in str::from_utf8(text).ok()?.lines() {
            let [kind, name, ends] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
            let ends = ends.parse().ok()?;
            match kind {
                READER => drop(beside.readers.insert(bytes(name)?, ends)),
                TOMBSTONE => drop(beside.tombstones.insert(bytes(name)?, ends)),
                INTENT => drop(beside.intents.insert(WaiterId::parse(name.as_bytes())?, ends)),
                _ => return None,
            }
        }
        Some(beside)
    }
}

/// Encodes bytes in hexadecimal, for SQL and the column `beside`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Decodes hexadecimal digits. `None` if they are something else.
pub(crate) fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs =
        digits.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).ok().filter(|pair| pair.len() == 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_intents_and_tombstones_are_read_as_written() {
        let beside = Beside {
            readers: BTreeMap::from([(b"\0\xff a".to_vec(), 7), (b"b".to_vec(), u64::MAX)]),
            intents: BTreeMap::from([(WaiterId::new(9), 8)]),
            tombstones: BTreeMap::from([(Vec::new(), 3)]),
        };
        assert_eq!(Beside::decode(beside.encode().as_bytes()), Some(beside));
        assert_eq!(Beside::decode(b""), Some(Beside::default()));
        for wrong in ["list of items", "reader 6 7", "reader 66 x", "writer 1 2", "reader 66"] {
            assert_eq!(Beside::decode(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_row_lives_as_long_as_the_last_thing_in_it() {
        let number = FencingToken::new(1_000_000).unwrap();
        let mut row = Row { counter: number.get(), ..Row::default() };
        assert_eq!(row.dead_at(), 301_000_000);
        row.beside.tombstones.insert(b"a".to_vec(), 400_000_000);
        assert_eq!(row.dead_at(), 400_000_000);
        assert_eq!(row.clone().at(301_000_000).counter, 0);
        assert_eq!(row.clone().at(300_999_999).counter, 1_000_000);
        assert_eq!(row.at(400_000_000), Row::default());
        assert_eq!(Row::default().dead_at(), 0);
    }

    #[test]
    fn shares_expire_with_the_marker() {
        let mut row = Row { held: Some(Held::marker(10)), ..Row::default() };
        row.beside.readers.insert(b"a".to_vec(), 20);
        assert_eq!(row.clone().at(9).beside.readers.len(), 1);
        assert!(row.at(10).beside.readers.is_empty());
    }
}
