//! The requests of a lock, written by hand over the same client.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::Seams;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::{Mutex, oneshot};

use crate::address::ZooKeeperAddress;
use crate::client::{Change, Client, Event, Wanted};
use crate::layout::{Layout, places, with_parents};
use crate::wire::{Call, Create};

/// A session.
#[derive(Clone)]
pub(crate) struct Hand {
    client: Client,
    layout: Layout,
    events: Arc<Mutex<Receiver<Event>>>,
}

impl Hand {
    pub(crate) async fn connect(url: &str) -> Hand {
        let address = ZooKeeperAddress::parse(url).unwrap();
        let wanted = Wanted { old: None, timeout: Duration::from_secs(30) };
        let (sender, events) = channel(1024);
        let (seams, limit) = (Seams::default(), Duration::from_secs(5));
        let member = &address.members()[0];
        let (client, _) = Client::connect(&address, member, &seams, (wanted, limit), sender).await.unwrap();
        Hand { client, layout: Layout::below(address.path()), events: Arc::new(Mutex::new(events)) }
    }

    async fn make(&self, dir: &str) {
        for path in with_parents(dir) {
            drop(self.client.send(&Call::CreateContainer { path }).done().await);
        }
    }

    /// Takes a free lock, and gives it back.
    pub(crate) async fn cycle(&self, name: &str) {
        let path = self.enter(name).await;
        assert!(!path.is_empty());
        self.delete(&path).await;
    }

    /// Puts a place at the end of the queue, and lists all of them. Returns its path.
    pub(crate) async fn enter(&self, name: &str) -> String {
        let dir = self.layout.dir(name);
        loop {
            let (path, how) = (format!("{dir}/_c_by-hand-lock-"), Create::EphemeralSequential);
            let created = self.client.send(&Call::Create { path, data: b"by hand".to_vec(), how });
            let children = self.client.send(&Call::GetChildren { path: dir.clone() });
            let Ok(created) = created.done().await else {
                self.make(&dir).await;
                continue;
            };
            let path = created.created().unwrap().0.to_owned();
            let children = children.done().await.unwrap();
            let (names, _) = children.children().unwrap();
            assert!(places(&dir, names).iter().any(|place| *place.path == *path));
            return path;
        }
    }

    /// Writes into its place that it holds the lock now, and looks whether it does.
    pub(crate) async fn take(&self, name: &str, path: &str) -> bool {
        let dir = self.layout.dir(name);
        let (data, version) = (b"by hand".to_vec(), -1);
        let written = self.client.send(&Call::SetData { path: path.to_owned(), data, version });
        let children = self.client.send(&Call::GetChildren { path: dir.clone() }).done().await.unwrap();
        let (names, _) = children.children().unwrap();
        written.done().await.unwrap();
        places(&dir, names).first().is_some_and(|place| *place.path == *path)
    }

    /// Waits until the place has gone. `watches` is notified when it is watched.
    pub(crate) async fn wait_for_deletion(&self, path: &str, watches: oneshot::Sender<()>) {
        let found =
            self.client.send(&Call::GetData { path: path.to_owned(), watch: true }).found().await.unwrap();
        let _ = watches.send(());
        let mut events = self.events.lock().await;
        while found.is_some() {
            let event = events.recv().await.unwrap();
            if event.change == Change::Deleted && event.path == path {
                return;
            }
        }
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.client.send(&Call::Delete { path: path.to_owned() }).done().await.unwrap();
    }
}
