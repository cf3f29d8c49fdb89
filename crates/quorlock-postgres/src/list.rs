//! Lists the keys of locks, over a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{Stream, try_unfold};
use quorlock::node::{ListedKeys, NodeError, NodeErrorKind};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::connect::open;
use crate::error::{failed, of_statement};
use crate::handshake::Settings;

/// The keys of one page, and the pause after it.
const PAGE: usize = 250;
const PAUSE: Duration = Duration::from_millis(2);

const LOCKS: &str = "SELECT key FROM quorlock.locks WHERE token IS NOT NULL AND key >= $1 AND key > $2 \
     AND ($3::bytea IS NULL OR key < $3) ORDER BY key LIMIT 250";
const QUEUES: &str = "SELECT DISTINCT key FROM quorlock.waiters WHERE key >= $1 AND key > $2 \
     AND ($3::bytea IS NULL OR key < $3) ORDER BY key LIMIT 250";

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
    settings: Settings,
    prefix: Arc<str>,
    which: ListedKeys,
) -> impl Stream<Item = Result<Vec<Arc<str>>, NodeError>> + Send {
    try_unfold(None::<Listing>, move |listing| {
        let (settings, prefix) = (settings.clone(), Arc::clone(&prefix));
        async move {
            if settings.url.shedlock.is_some() {
                let cure = "the table of ShedLock is not listed; query its rows";
                return Err(failed(NodeErrorKind::Unsupported, cure));
            }
            let clock = settings.seams.clock();
            let mut listing = match listing {
                Some(listing) if listing.is_over => return Ok(None),
                Some(listing) => {
                    clock.sleep_until(clock.now() + PAUSE).await;
                    listing
                }
                None => {
                    let opened = open(&settings.url, &settings.seams).await?;
                    // It ends with an error if the connection is lost, which the next statement reports.
                    let carrier = tokio::spawn(async move { drop(opened.carrier.await) });
                    Listing { client: opened.client, carrier, last: Vec::new(), is_over: false }
                }
            };
            let statement = match which {
                ListedKeys::Locks => LOCKS,
                ListedKeys::Queues => QUEUES,
            };
            let end = after_all_with(prefix.as_bytes());
            let asked = listing.client.query(statement, &[&prefix.as_bytes(), &listing.last, &end]).await;
            let rows = asked.map_err(of_statement)?;
            let found: Vec<Vec<u8>> = rows.iter().map(|row| row.get(0)).collect();
            listing.is_over = found.len() < PAGE;
            listing.last = found.last().cloned().unwrap_or_default();
            let keys = found.into_iter().filter_map(|key| String::from_utf8(key).ok()).map(Arc::from);
            Ok(Some((keys.collect(), Some(listing))))
        }
    })
}

/// Returns the first key after all that begin with `prefix`; `None` if there is none.
fn after_all_with(prefix: &[u8]) -> Option<Vec<u8>> {
    let (last, rest) = prefix.split_last()?;
    // No text ends in the largest byte.
    Some([rest, &[last.saturating_add(1)]].concat())
}
