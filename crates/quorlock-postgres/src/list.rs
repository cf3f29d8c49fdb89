//! Lists the keys of locks, over a connection of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use quorlock::node::{KeyPages, ListedKeys, Node, NodeError, NodeErrorKind};
use quorlock::runtime::within;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::connect::open;
use crate::error::{failed, of_statement};
use crate::settings::Settings;

/// The keys of one page.
const PAGE: usize = 250;

/// An open connection, and the last key that was listed.
struct Listing {
    client: Client,
    carrier: JoinHandle<()>,
    last: Vec<u8>,
    is_over: bool,
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

/// Lists the keys that begin with `prefix`, in their order.
pub(crate) fn keys(
    node: impl Node + Clone,
    settings: Settings,
    prefix: Arc<str>,
    which: ListedKeys,
) -> KeyPages {
    KeyPages::unfold(None::<Listing>, move |listing| {
        let (node, settings, prefix) = (node.clone(), settings.clone(), Arc::clone(&prefix));
        async move {
            let listing = match listing {
                Some(listing) if listing.is_over => return Ok(None),
                Some(listing) => Some(listing),
                None => {
                    // The first connection creates the schema.
                    node.ready().await?;
                    None
                }
            };
            let (clock, limit) = (settings.seams.clock(), settings.limit());
            let next = within(&**clock, limit, page(&settings, listing, &prefix, which)).await;
            next.unwrap_or(Err(NodeError::Unanswered { waited: limit })).map(Some)
        }
    })
}

/// Returns the next page, over the connection of the last one.
async fn page(
    settings: &Settings,
    listing: Option<Listing>,
    prefix: &str,
    which: ListedKeys,
) -> Result<(Vec<Arc<str>>, Option<Listing>), NodeError> {
    if settings.url.shedlock.is_some() {
        let cure = "the table of ShedLock is not listed; query its rows";
        return Err(failed(NodeErrorKind::Unsupported, cure));
    }
    let mut listing = if let Some(listing) = listing {
        listing
    } else {
        let opened = open(&settings.url, &settings.seams, &AtomicBool::new(false)).await?;
        // It ends with an error if the connection is lost, which the next statement reports.
        let carrier = tokio::spawn(async move { drop(opened.carrier.await) });
        // Names without a schema are those of the server.
        opened.client.batch_execute("SET search_path = pg_catalog").await.map_err(of_statement)?;
        Listing { client: opened.client, carrier, last: Vec::new(), is_over: false }
    };
    let asked = listing.client.query(&statement(which), &[&prefix.as_bytes(), &listing.last]).await;
    let rows = asked.map_err(of_statement)?;
    let found = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<Vec<u8>>, _>>();
    let mut found = found.map_err(of_statement)?;
    // After the last key with the prefix come others.
    found.retain(|key| key.starts_with(prefix.as_bytes()));
    listing.is_over = found.len() < PAGE;
    listing.last = found.last().cloned().unwrap_or_default();
    let keys = found.into_iter().filter_map(|key| String::from_utf8(key).ok()).map(Arc::from);
    Ok((keys.collect(), Some(listing)))
}

/// Selects a page from the first key that is not before the prefix and comes after the last page.
fn statement(which: ListedKeys) -> String {
    let stored = match which {
        ListedKeys::Locks => "key FROM quorlock.locks WHERE token IS NOT NULL AND",
        ListedKeys::Queues => "DISTINCT key FROM quorlock.waiters WHERE",
    };
    format!("SELECT {stored} key >= $1 AND key > $2 ORDER BY key LIMIT {PAGE}")
}
