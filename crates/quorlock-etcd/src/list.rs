//! Lists the names of locks, over a connection of its own.

use std::sync::Arc;

use quorlock::node::places::{Owner, open_any};
use quorlock::node::{KeyPages, ListedKeys, NodeError, Seams};

use crate::address::EtcdAddress;
use crate::error::Failure;
use crate::layout::lock_of;
use crate::session::{Memory, Session};
use crate::wire::{Range, RangeResponse};

/// The keys of one page.
const PAGE: i64 = 500;

struct Listing {
    session: Arc<Session>,
    /// The first key of the next page; `None` after the last one.
    next: Option<Vec<u8>>,
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
        match which {
            ListedKeys::Locks => !self.is_waiter,
            ListedKeys::Queues => self.places > 1 || self.is_waiter,
        }
    }
}

/// Lists the locks whose names begin with `prefix`, in their order.
pub(crate) fn keys(address: EtcdAddress, seams: Seams, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
    KeyPages::unfold(None::<Listing>, move |listing| {
        let (address, seams, prefix) = (address.clone(), seams.clone(), Arc::clone(&prefix));
        async move {
            let mut listing = if let Some(listing) = listing {
                listing
            } else {
                let session = open(&address, seams).await?;
                // Zero begins the first key of all.
                let next = if prefix.is_empty() { vec![0] } else { prefix.as_bytes().to_vec() };
                Listing { session, next: Some(next), open: None }
            };
            let Some(start) = listing.next.take() else { return Ok(None) };
            let range_end = if prefix.is_empty() { vec![0] } else { end_of(prefix.as_bytes()) };
            let range = Range { range_end, limit: PAGE, ..Range::of(start) };
            let found: RangeResponse = listing
                .session
                .client
                .call("/etcdserverpb.KV/Range", range)
                .await
                .map_err(Failure::before_anything_changed)?;
            let mut listed = Vec::new();
            for kv in &found.kvs {
                let Some(lock) = lock_of(&kv.key).filter(|lock| lock.starts_with(&*prefix)) else { continue };
                let is_waiter = Owner::of(&kv.value).is_waiter();
                match &mut listing.open {
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
                listing.next = found.kvs.last().map(|last| [&*last.key, &[0]].concat());
            } else {
                listed.extend(listing.open.take().filter(|seen| seen.is(which)).map(|seen| seen.lock));
            }
            Ok(Some((listed, Some(listing))))
        }
    })
}

/// The end of all keys that begin with `prefix`.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    crate::wire::after(prefix)
}

pub(crate) async fn open(address: &EtcdAddress, seams: Seams) -> Result<Arc<Session>, NodeError> {
    let (session, _) = open_any(&Arc::new(Memory::new(address.clone(), seams)), 0).await?;
    Ok(session)
}
