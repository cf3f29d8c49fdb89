//! `CLIENT KILL ID`: the connected clients, and closing their connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quorlock::runtime::Mutex;
use tokio::sync::Notify;

/// The connections of a server, by number.
#[derive(Default)]
pub(super) struct Clients {
    connected: Mutex<BTreeMap<i64, Arc<Life>>>,
}

/// Whether a connection is still open.
#[derive(Default)]
pub(super) struct Life {
    over: AtomicBool,
    end: Notify,
}

impl Clients {
    pub(super) fn enter(&self, client: i64) -> Arc<Life> {
        self.connected.lock().entry(client).or_default().clone()
    }

    pub(super) fn leave(&self, client: i64) {
        self.connected.lock().remove(&client);
    }

    /// Kills the connection: no further command of it is executed. Returns whether there was one.
    pub(super) fn kill(&self, client: i64) -> bool {
        let killed = self.connected.lock().remove(&client);
        if let Some(life) = &killed {
            life.over.store(true, Ordering::Release);
            life.end.notify_one();
        }
        killed.is_some()
    }
}

impl Life {
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(super) async fn ended(&self) {
        self.end.notified().await;
    }
}
