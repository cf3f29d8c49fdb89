//! A plant for stores of records.

use std::io;
use std::time::Duration;

use futures::future::{BoxFuture, ready};
use quorlock::node::Expiry;
use quorlock::node::record::Record;

use super::Plant;
use crate::planting::{self, Stored};
use crate::value::Value;

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

    /// Returns the time by which records expire.
    fn now(&self) -> Duration;

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
        self.write(key, planting::plant(self.stored(key)?, key, value, expiry, self.0.now())?)
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.write(key, Some(planting::remove(self.stored(key)?, key)))
    }

    fn expiry(&self, key: &str) -> io::Result<Option<Expiry>> {
        Ok(planting::expiry(&self.stored(key)?, self.0.now()))
    }

    fn stored(&self, key: &str) -> io::Result<Stored> {
        let stored = self.0.read(key)?;
        Ok(stored.map_or_else(|| Some(Record::default()), |stored| Record::decode(&stored)))
    }

    fn write(&self, key: &str, new: Stored) -> io::Result<()> {
        let text = new.map_or_else(|| "a list of items".to_owned(), |record| record.encode());
        self.0.write(key, text.as_bytes())
    }
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
