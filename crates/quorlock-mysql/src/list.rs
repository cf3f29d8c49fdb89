//! Lists the keys of locks, over a connection of its own.

use std::sync::Arc;

use quorlock::node::{KeyPages, ListedKeys, NodeError, NodeErrorKind, Seams};

use crate::address::Database;
use crate::connection::Connection;
use crate::handshake::connect;
use crate::shedlock::Predecessor;
use crate::table::{LOCKS, bytes, literal};

/// The keys of one page.
const PAGE: usize = 250;

/// An open connection, and the last key that was listed.
struct Listing {
    connection: Connection,
    last: Vec<u8>,
    is_over: bool,
}

/// Lists the keys that begin with `prefix`, in their order.
pub(crate) fn keys(database: Database, seams: Seams, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
    KeyPages::unfold(None::<Listing>, move |listing| {
        let (database, seams, prefix) = (database.clone(), seams.clone(), Arc::clone(&prefix));
        async move {
            if database.shedlock().is_some() {
                let reason = "the table of ShedLock is not listed; query its rows".into();
                return Err(NodeError::Failed { kind: NodeErrorKind::Unsupported, reason });
            }
            let mut listing = match listing {
                Some(listing) if listing.is_over => {
                    listing.connection.close().await;
                    return Ok(None);
                }
                Some(listing) => listing,
                None => {
                    let ready = connect(&database, &seams, &mut Predecessor::default()).await?;
                    Listing { connection: ready.connection, last: Vec::new(), is_over: false }
                }
            };
            let statement = statement(prefix.as_bytes(), &listing.last, which);
            let sets =
                listing.connection.run(statement).await.map_err(crate::error::Failure::into_node_error)?;
            let rows = sets.into_iter().next().unwrap_or_default();
            // After the last key with the prefix come others.
            let keys = rows.iter().filter_map(|row| bytes(row, 0));
            let found: Vec<&[u8]> = keys.filter(|key| key.starts_with(prefix.as_bytes())).collect();
            listing.is_over = found.len() < PAGE;
            listing.last = found.last().map(|key| key.to_vec()).unwrap_or_default();
            let keys = found.into_iter().filter_map(|key| str::from_utf8(key).ok()).map(Arc::from);
            Ok(Some((keys.collect(), Some(listing))))
        }
    })
}

/// Selects a page from the first key that is not before the prefix and comes after the last page.
fn statement(prefix: &[u8], last: &[u8], which: ListedKeys) -> String {
    let stored = match which {
        ListedKeys::Locks => "token IS NOT NULL",
        ListedKeys::Queues => "waiters IS NOT NULL",
    };
    format!(
        "SELECT name FROM {LOCKS} WHERE {stored} AND name >= {} AND name > {} ORDER BY name LIMIT {PAGE}",
        literal(prefix),
        literal(last)
    )
}
