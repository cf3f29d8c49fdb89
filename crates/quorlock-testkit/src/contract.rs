//! The contract that every node keeps, in memory or real.

use std::io;

use futures::future::BoxFuture;
use quorlock::Expiry;

use crate::memory::MemoryNode;
use crate::store::Value;

/// Puts somebody else's data into a server, past the node under test.
pub trait Plant: Send + Sync {
    /// Stores `value` under `key`, which is free.
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>>;
}

impl Plant for MemoryNode {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        self.set_data(key, value, expiry);
        Box::pin(std::future::ready(Ok(())))
    }
}
