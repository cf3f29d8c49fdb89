//! Lists the names of locks, over a connection of its own.

use std::sync::Arc;

use quorlock::node::places::{self, Owner, is_listed};
use quorlock::node::{ListedKeys, NodeError};

use crate::error::Failure;
use crate::layout::lock_of;
use crate::session::Session;
use crate::wire::{Range, RangeResponse, after};

/// The keys of one page, of which there are fewer where other programs keep large values.
const PAGE: i64 = 500;

pub(crate) struct Listing {
    session: Arc<Session>,
    /// The first key of the next page; `None` after the last one.
    next: Option<Vec<u8>>,
    /// How many keys that has at most.
    size: i64,
    /// The lock of which the last page had places, with what they say.
    open: Option<Seen>,
}

/// The places of one lock, which are listed together.
struct Seen {
    lock: Arc<str>,
    places: usize,
    /// The revision at which the first was created, and whether it is of a waiter.
    first: i64,
    is_waiter: bool,
}

impl Seen {
    /// Whether the lock is held, or waited for.
    fn is(&self, which: ListedKeys) -> bool {
        is_listed(which, self.places, self.is_waiter)
    }
}

impl places::Listing for Listing {
    type Voter = Session;

    /// The locks are listed in the order of their names.
    fn new(session: Arc<Session>, prefix: &str) -> Listing {
        // Zero begins the first key of all.
        let next = if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() };
        Listing { session, next: Some(next), size: PAGE, open: None }
    }

    async fn page(&mut self, prefix: &str, which: ListedKeys) -> Result<Option<Vec<Arc<str>>>, NodeError> {
        let Some(start) = self.next.take() else { return Ok(None) };
        let range_end = if prefix.is_empty() { vec![0] } else { after(prefix.as_bytes()) };
        let found: RangeResponse = loop {
            let range =
                Range { range_end: range_end.clone(), limit: self.size, ..Range::of(start.as_slice()) };
            match self.session.client.call("/etcdserverpb.KV/Range", range).await {
                Err(failure) if failure.is_too_large() && self.size > 1 => self.size /= 2,
                found => break found.map_err(Failure::before_anything_changed)?,
            }
        };
        let mut listed = Vec::new();
        for kv in &found.kvs {
            let Some(lock) = lock_of(&kv.key).filter(|lock| lock.starts_with(prefix)) else { continue };
            let is_waiter = Owner::of(&kv.value).is_waiter();
            match &mut self.open {
                Some(seen) if *seen.lock == *lock => {
                    seen.places += 1;
                    if kv.create_revision < seen.first {
                        (seen.first, seen.is_waiter) = (kv.create_revision, is_waiter);
                    }
                }
                open => {
                    let (lock, first) = (Arc::from(lock), kv.create_revision);
                    let before = open.replace(Seen { lock, places: 1, first, is_waiter });
                    listed.extend(before.filter(|seen| seen.is(which)).map(|seen| seen.lock));
                }
            }
        }
        if found.more {
            self.next = found.kvs.last().map(|last| [&*last.key, &[0]].concat());
        } else {
            listed.extend(self.open.take().filter(|seen| seen.is(which)).map(|seen| seen.lock));
        }
        Ok(Some(listed))
    }
}
