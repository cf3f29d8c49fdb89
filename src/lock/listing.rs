//! Lists the names of locks, as the nodes store them.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll, Stream, once, try_unfold};

use quorlock_protocol::is_auxiliary_key;

use crate::engine::context::EngineContext;
use crate::node::{KeyPages, ListedKeys, NodeError, NodeErrorKind};

/// A page of the names that one node [lists](crate::Coordinator::list).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedPage {
    /// The node.
    pub node: Arc<str>,
    /// Names, some of them perhaps listed before; or why the node lists no more.
    pub names: Result<Vec<Arc<str>>, NodeError>,
}

/// The pause after each page, in which a node serves other clients: with a hundred keys to a page, the listing took some
/// six per cent of the time of a slow Redis server, and takes 45 s for a million keys.
const PAUSE: Duration = Duration::from_millis(3);

/// The number of pages after which a node is listing for so long that the next one lists beside it: it may never end.
const LONG: usize = 2_000;

/// How much a node may list, with [`EACH`] for each name: a million names of 35 bytes.
const MOST: usize = 64 << 20;
/// What a name takes beside its text.
const EACH: usize = 32;

/// What comes from a node.
enum Event {
    Page(usize, ListedPage),
    End(usize),
}

/// The names of locks, page by page: what [`Coordinator::list`](crate::Coordinator::list) returns.
#[must_use = "a listing asks the nodes for nothing until a page is awaited"]
pub struct Listing {
    /// Those that list; the others may have to.
    running: SelectAll<BoxStream<'static, Event>>,
    waiting: VecDeque<BoxStream<'static, Event>>,
    /// How many may list at the same time, besides those that have listed for long.
    at_a_time: usize,
    /// How many pages each node has listed.
    pages: Vec<usize>,
    /// How many more must list everything.
    wanted: usize,
    failed: BTreeSet<usize>,
}

/// Lists the names at as many nodes as intersect every quorum, and at no more at a time than a quorum can do without: a round does not wait for a node that is busy with the listing.
pub(crate) fn list(engine: &EngineContext, prefix: &str, which: ListedKeys) -> Listing {
    let key_prefix = Arc::clone(&engine.key_prefix);
    let keys: Arc<str> = format!("{key_prefix}{prefix}").into();
    let each = engine.nodes.iter().enumerate().map(|(index, node)| {
        let (name, key_prefix) = (Arc::from(node.name()), Arc::clone(&key_prefix));
        let clock = Arc::clone(&engine.nodes.clock);
        let pages = bounded(node.list_keys(Arc::clone(&keys), which)).then(move |page| {
            let names = page.map(|keys| names(keys, &key_prefix));
            let page = Event::Page(index, ListedPage { node: Arc::clone(&name), names });
            // The node is asked for the next page only then.
            let rested = clock.sleep_until(clock.now() + PAUSE);
            async move {
                rested.await;
                page
            }
        });
        pages.chain(once(async move { Event::End(index) })).boxed()
    });
    let (nodes, needed) = (engine.nodes.quorum.nodes(), engine.nodes.quorum.needed());
    Listing {
        running: SelectAll::new(),
        waiting: each.collect(),
        at_a_time: (nodes - needed).max(1),
        pages: vec![0; nodes],
        wanted: nodes - needed + 1,
        failed: BTreeSet::new(),
    }
}

/// Drops what is stored beside locks, and ends the pages of a node that lists more than a program can keep.
fn bounded(pages: KeyPages) -> impl Stream<Item = Result<Vec<Arc<str>>, NodeError>> {
    try_unfold((pages, MOST), |(mut pages, room)| async move {
        let Some(mut keys) = pages.next().await.transpose()? else { return Ok(None) };
        keys.retain(|key| !is_auxiliary_key(key));
        let size = keys.iter().map(|key| key.len() + EACH).sum();
        let left = room.checked_sub(size).ok_or_else(|| {
            let reason = format!(
                "it has listed names of locks that take {} MB, and not ended; list those of a longer prefix, unless it has not as \
                 many, and is broken",
                MOST >> 20
            );
            NodeError::Failed { kind: NodeErrorKind::Other, reason: reason.into() }
        })?;
        Ok(Some((keys, (pages, left))))
    })
}

impl Listing {
    /// Returns the next page of a node, or `None` once enough nodes have listed everything or failed. A node fails that
    /// lists more than 64 MB.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no page; call again. Dropping the listing ends it.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn next_page(&mut self) -> Option<ListedPage> {
        loop {
            if self.wanted == 0 {
                return None;
            }
            let long = self.pages.iter().filter(|pages| **pages >= LONG).count();
            while self.running.len() < self.at_a_time.min(self.wanted) + long
                && let Some(next) = self.waiting.pop_front()
            {
                self.running.push(next);
            }
            let Some(event) = self.running.next().await else {
                if self.waiting.is_empty() {
                    return None;
                }
                continue;
            };
            match event {
                Event::Page(index, page) => {
                    if page.names.is_err() {
                        self.failed.insert(index);
                    }
                    if let Some(pages) = self.pages.get_mut(index) {
                        *pages += 1;
                    }
                    return Some(page);
                }
                Event::End(index) => {
                    if let Some(pages) = self.pages.get_mut(index) {
                        *pages = 0;
                    }
                    self.wanted -= usize::from(!self.failed.contains(&index));
                }
            }
        }
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing")
            .field("wanted", &self.wanted)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// Returns the names of the locks with these keys.
fn names(keys: Vec<Arc<str>>, key_prefix: &str) -> Vec<Arc<str>> {
    if key_prefix.is_empty() {
        return keys;
    }
    keys.iter().filter_map(|key| key.strip_prefix(key_prefix)).map(Arc::from).collect()
}
