//! Lists the names of locks, over a session of its own.

use std::sync::Arc;

use futures::future::join_all;
use quorlock::node::places::{self, Owner, is_listed};
use quorlock::node::{ListedKeys, NodeError};

use crate::error::Failure;
use crate::layout::{places, sequence};
use crate::session::Session;
use crate::wire::Call;

/// How many nodes are asked for together.
const TOGETHER: usize = 200;

pub(crate) struct Listing {
    session: Arc<Session>,
    /// Nodes that are still to be looked at.
    dirs: Vec<String>,
}

impl places::Listing for Listing {
    type Voter = Session;

    fn new(session: Arc<Session>, _: &str) -> Listing {
        // A member may be behind its leader.
        drop(session.client.send(&Call::Sync { path: session.memory.layout.base_or_root() }));
        let dirs = vec![session.memory.layout.base().to_owned()];
        Listing { session, dirs }
    }

    async fn page(&mut self, prefix: &str, which: ListedKeys) -> Result<Option<Vec<Arc<str>>>, NodeError> {
        if self.dirs.is_empty() {
            self.session.close().await;
            return Ok(None);
        }
        self.look(prefix, which).await.map(Some).map_err(Failure::before_anything_changed)
    }
}

impl Listing {
    /// Looks at some nodes, and returns those of them that are locks.
    async fn look(&mut self, prefix: &str, which: ListedKeys) -> Result<Vec<Arc<str>>, Failure> {
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
            if is_listed(which, places, is_waiter) {
                listed.push(Arc::from(name));
            }
        }
        Ok(listed)
    }
}
