//! Caches rows that this client has read or written last, so that it can write without reading first. Pure.
//!
//! No answer comes from the cache alone: a row is written only if its `nonce` is the cached one, and the
//! answer is what that write has confirmed. Requests that change no row are decided on rows that were read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::record::{Record, Records};
use quorlock::protocol::Moment;

/// The cache of one connection.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    rows: BTreeMap<Arc<str>, Remembered>,
    /// A time of the server in microseconds since 1970, and when we sent the query for it. That is before the
    /// server read its clock, so the extrapolated time is never behind the server.
    clock: Option<(u64, Moment)>,
}

#[derive(Debug)]
struct Remembered {
    record: Record,
    nonce: Option<u64>,
    at: Moment,
}

/// How long rows and clock are cached. In this time the two clocks drift apart by less than a tenth of the
/// millisecond by which keys may expire early.
const KEPT: Duration = Duration::from_secs(2);
/// The maximum number of cached rows.
const MOST: usize = 1024;

impl Memory {
    /// Returns the rows of these keys, if all are cached and none might expire before the server's clock says
    /// so: the extrapolated time may be ahead of the server by a round trip.
    pub(crate) fn rows(&self, keys: &[Arc<str>], now: Moment) -> Option<Records> {
        let (server, asked) = self.clock.filter(|(_, asked)| now.since(*asked) < KEPT)?;
        let passed = u64::try_from(now.since(asked).as_micros()).ok()?;
        let mut rows = Records::at(server.saturating_add(passed));
        for key in keys {
            let Remembered { record, nonce, at } = self.rows.get(key)?;
            let lives =
                record.held.as_ref().is_none_or(|held| held.ends.is_none_or(|ends| ends > rows.now()));
            // A row that does not exist cannot be written only if the data are still the same.
            if nonce.is_none() || now.since(*at) >= KEPT || !lives || has_entries(record) {
                return None;
            }
            rows.add(Arc::clone(key), *nonce, Ok(record.clone()));
        }
        Some(rows)
    }

    /// Caches rows that were read by a query sent at `asked`.
    pub(crate) fn read(&mut self, rows: &Records, asked: Moment) {
        self.clock = Some((rows.now(), asked));
        self.keep(rows, None, asked);
    }

    /// Caches rows that were written with this nonce.
    pub(crate) fn written(&mut self, rows: &Records, nonce: u64, now: Moment) {
        self.keep(rows, Some(nonce), now);
    }

    pub(crate) fn forget(&mut self, keys: &[Arc<str>]) {
        for key in keys {
            self.rows.remove(key);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Memory::default();
    }

    fn keep(&mut self, rows: &Records, written: Option<u64>, at: Moment) {
        for (key, record, nonce) in rows.all(written) {
            self.rows.insert(Arc::clone(key), Remembered { record: record.clone(), nonce, at });
        }
        if self.rows.len() > MOST {
            self.rows.retain(|_, remembered| at.since(remembered.at) < KEPT);
        }
        if self.rows.len() > MOST {
            self.rows.clear();
        }
    }
}

fn has_entries(record: &Record) -> bool {
    !(record.readers.is_empty() && record.intents.is_empty() && record.tombstones.is_empty())
}

#[cfg(test)]
mod tests {
    use quorlock::node::record::{Entry, Held};
    use quorlock::protocol::Token;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::since_origin(Duration::from_millis(millis))
    }

    /// Returns a cache with a row that was read when the server's clock was `now`, by a query sent at the
    /// first moment.
    fn remembered(row: Record, now: u64) -> (Memory, [Arc<str>; 1]) {
        let keys = ["a".into()];
        let mut rows = Records::at(now);
        rows.add(Arc::clone(&keys[0]), Some(7), Ok(row));
        let mut memory = Memory::default();
        memory.read(&rows, at(0));
        (memory, keys)
    }

    fn held(ends: u64) -> Record {
        let held =
            Held { token: Token::found(b"a"), ends: Some(ends), number: None, wanted: false, mark: None };
        Record { held: Some(held), ..Record::default() }
    }

    #[test]
    fn the_servers_clock_is_extrapolated_from_its_query() {
        let (memory, keys) = remembered(Record::default(), 1_000_000);
        assert_eq!(memory.rows(&keys, at(5)).unwrap().now(), 1_005_000);
        assert!(memory.rows(&keys, at(1_999)).is_some());
        assert!(memory.rows(&keys, at(2_000)).is_none(), "by then it is read again");
        assert!(memory.rows(&["b".into()], at(5)).is_none(), "it was never read");
    }

    #[test]
    fn a_lock_that_may_have_ended_is_read_again() {
        let (memory, keys) = remembered(held(1_005_000), 1_000_000);
        assert!(memory.rows(&keys, at(4)).is_some());
        assert!(memory.rows(&keys, at(5)).is_none());
    }

    #[test]
    fn a_row_with_readers_or_tombstones_is_read_again() {
        let mut row = Record::default();
        row.tombstones.insert(b"a".to_vec(), Entry { ends: 9_000_000, mark: None });
        let (memory, keys) = remembered(row, 1_000_000);
        assert!(memory.rows(&keys, at(1)).is_none());
    }

    #[test]
    fn the_number_of_cached_rows_is_bounded() {
        let mut memory = Memory::default();
        for number in 0..=MOST {
            let mut rows = Records::at(0);
            rows.add(number.to_string().into(), None, Ok(Record::default()));
            memory.read(&rows, at(0));
            assert!(memory.rows.len() <= MOST);
        }
    }
}
