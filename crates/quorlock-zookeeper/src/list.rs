//! Lists the names of locks, over a session of its own.

use std::sync::Arc;

use futures::future::join_all;
use quorlock::node::places::{Owner, open_any};
use quorlock::node::{KeyPages, ListedKeys, NodeError, Seams};

use crate::address::ZooKeeperAddress;
use crate::error::Failure;
use crate::layout::{places, sequence};
use crate::memory::Memory;
use crate::session::Session;
use crate::wire::Call;

/// How many nodes are asked for together.
const TOGETHER: usize = 200;

struct Listing {
    session: Arc<Session>,
    /// Nodes that are still to be looked at.
    dirs: Vec<String>,
}

/// Lists the locks whose names begin with `prefix`.
pub(crate) fn keys(address: ZooKeeperAddress, seams: Seams, prefix: Arc<str>, which: ListedKeys) -> KeyPages {
    KeyPages::unfold(None::<Listing>, move |listing| {
        let (address, seams, prefix) = (address.clone(), seams.clone(), Arc::clone(&prefix));
        async move {
            let mut listing = if let Some(listing) = listing {
                listing
            } else {
                let session = open(&address, seams).await?;
                // A member may be behind its leader.
                drop(session.client.send(&Call::Sync { path: session.memory.layout.base_or_root() }));
                let dirs = vec![session.memory.layout.base().to_owned()];
                Listing { session, dirs }
            };
            if listing.dirs.is_empty() {
                listing.session.close().await;
                return Ok(None);
            }
            let listed = listing.page(&prefix, which).await.map_err(Failure::before_anything_changed)?;
            Ok(Some((listed, Some(listing))))
        }
    })
}

impl Listing {
    /// Looks at some nodes, and returns those of them that are locks.
    async fn page(&mut self, prefix: &str, which: ListedKeys) -> Result<Vec<Arc<str>>, Failure> {
        let session = &self.session;
        let dirs = self.dirs.split_off(self.dirs.len().saturating_sub(TOGETHER));
        let path = |dir: &str| if dir.is_empty() { "/".to_owned() } else { dir.to_owned() };
        let asked: Vec<_> = dirs
            .iter()
            .map(|dir| session.client.send(&Call::GetChildren { path: path(dir) }).found())
            .collect();
        let mut candidates = Vec::new();
        for (dir, answer) in dirs.into_iter().zip(join_all(asked).await) {
            // It may have gone since.
            let Some(answer) = answer? else { continue };
            let (names, _) = answer.children()?;
            let name = session.memory.layout.lock(&dir);
            let is_ours = name.as_deref() == Some("quorlock");
            for child in names.iter().filter(|name| !is_ours && sequence(name).is_none()) {
                let below = format!("{dir}/{child}");
                let Some(name) = session.memory.layout.lock(&below) else { continue };
                if below != "/zookeeper" && (name.starts_with(prefix) || prefix.starts_with(&name)) {
                    self.dirs.push(below);
                }
            }
            let places = places(&dir, names);
            if let (Some(name), Some(first)) = (name.filter(|name| name.starts_with(prefix)), places.first())
            {
                let data = Call::GetData { path: first.path.to_string(), watch: false };
                candidates.push((name, places.len(), session.client.send(&data)));
            }
        }
        let mut listed = Vec::new();
        for (name, places, data) in candidates {
            let Some(answer) = data.found().await? else { continue };
            let is_waiter = Owner::of(answer.data()?.0).is_waiter();
            let is = match which {
                ListedKeys::Locks => !is_waiter,
                ListedKeys::Queues => places > 1 || is_waiter,
            };
            if is {
                listed.push(Arc::from(name));
            }
        }
        Ok(listed)
    }
}

pub(crate) async fn open(address: &ZooKeeperAddress, seams: Seams) -> Result<Arc<Session>, NodeError> {
    let (session, _) = open_any(&Arc::new(Memory::new(address.clone(), seams)), 0).await?;
    Ok(session)
}
