//! Lists the names of locks, as the nodes store them.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{BoxStream, select_all};

use crate::engine::context::EngineContext;
use crate::node::{ListedKeys, NodeError};

/// A page of the names that one node [lists](crate::Coordinator::list).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedPage {
    /// The node.
    pub node: Arc<str>,
    /// Names, some of them perhaps listed before; or why the node lists no more.
    pub names: Result<Vec<Arc<str>>, NodeError>,
}

/// Lists the names at all nodes at the same time.
pub(crate) fn list(
    shared: &EngineContext,
    prefix: &str,
    which: ListedKeys,
) -> BoxStream<'static, ListedPage> {
    let key_prefix = Arc::clone(&shared.key_prefix);
    let keys: Arc<str> = format!("{key_prefix}{prefix}").into();
    let each = shared.nodes.iter().map(|node| {
        let (name, key_prefix) = (Arc::from(node.name()), Arc::clone(&key_prefix));
        node.list_keys(Arc::clone(&keys), which).map(move |page| ListedPage {
            node: Arc::clone(&name),
            names: page.map(|keys| names(keys, &key_prefix)),
        })
    });
    Box::pin(select_all(each.collect::<Vec<_>>()))
}

/// Returns the names of the locks with these keys.
fn names(keys: Vec<Arc<str>>, key_prefix: &str) -> Vec<Arc<str>> {
    if key_prefix.is_empty() {
        return keys;
    }
    keys.iter().filter_map(|key| key.strip_prefix(key_prefix)).map(Arc::from).collect()
}
