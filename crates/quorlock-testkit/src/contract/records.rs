//! A plant for stores of records.

use std::io;
use std::time::Duration;

use futures::future::{BoxFuture, ready};
use quorlock::node::Expiry;
use quorlock::node::record::{Held, Record};
use quorlock::protocol::{Token, companion, micros};

use super::Plant;
use crate::store::Value;

/// A store of encoded [`Record`]s, by the key of their lock, that is changed without going through the node.
pub trait RecordStore: Send + Sync {
    /// Returns what is stored.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    fn read(&self, key: &str) -> io::Result<Option<Vec<u8>>>;

    /// Stores this.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    fn write(&self, key: &str, record: &[u8]) -> io::Result<()>;

    /// Returns the time by which records expire, and since 1970.
    fn now(&self) -> [Duration; 2];

    /// As [`Plant::restart`].
    ///
    /// # Errors
    ///
    /// If it cannot be restarted, which is the default.
    fn restart(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// As [`Plant::restore`].
    ///
    /// # Errors
    ///
    /// If that is not possible, which is the default.
    fn restore(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Makes a [`Plant`] of a store of records.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a wrapper")]
pub struct OfRecords<S>(pub S);

impl<S: RecordStore> OfRecords<S> {
    fn plant(&self, key: &str, value: Value, expiry: Expiry) -> io::Result<()> {
        let counter = counter_of(key);
        let Some(mut record) = self.record(counter.unwrap_or(key))? else { return Err(not_a_record()) };
        if let Some(key) = counter {
            record.counter = if let Value::Number(counter) = value { counter.current } else { u64::MAX };
            return self.0.write(key, record.encode().as_bytes());
        }
        let Value::Text(token) = value else { return self.0.write(key, b"a list of items") };
        let [now, _] = self.0.now();
        let ends = if let Expiry::In(left) = expiry { Some(micros(now + left)) } else { None };
        let token = Token::found(&token);
        record.held = Some(Held { token, ends, number: None, wanted: false, mark: None });
        self.0.write(key, record.encode().as_bytes())
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        let key_of_lock = counter_of(key).unwrap_or(key);
        let before = self.record(key_of_lock)?.unwrap_or_default();
        let after = if key_of_lock == key {
            Record { counter: before.counter, ..Record::default() }
        } else {
            Record { counter: 0, ..before }
        };
        self.0.write(key_of_lock, after.encode().as_bytes())
    }

    fn expiry(&self, key: &str) -> io::Result<Option<Expiry>> {
        let counter = counter_of(key);
        let Some(record) = self.record(counter.unwrap_or(key))? else { return Ok(Some(Expiry::Never)) };
        let [now, wall] = self.0.now();
        let left = |ends, now| Expiry::In(Duration::from_micros(ends).saturating_sub(now));
        if counter.is_some() {
            return Ok((record.counter > 0).then(|| left(record.counter_ends(), wall)));
        }
        Ok(record.held.map(|held| held.ends.map_or(Expiry::Never, |ends| left(ends, now))))
    }

    /// Returns the record; `None` if the store has something else.
    fn record(&self, key: &str) -> io::Result<Option<Record>> {
        Ok(self.0.read(key)?.map_or_else(|| Some(Record::default()), |stored| Record::decode(&stored)))
    }
}

/// Returns the key of the lock, given the key of its counter.
fn counter_of(key: &str) -> Option<&str> {
    companion(key).and_then(|(lock, rest)| (rest == "fence:counter").then_some(lock))
}

fn not_a_record() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the store has something else under this key")
}

impl<S: RecordStore> Plant for OfRecords<S> {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(ready(OfRecords::plant(self, key, value, expiry)))
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(ready(OfRecords::remove(self, key)))
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(ready(OfRecords::expiry(self, key)))
    }

    fn restart(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(ready(self.0.restart()))
    }

    fn restore(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(ready(self.0.restore()))
    }
}
