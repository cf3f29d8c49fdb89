//! `CLIENT KILL ID`: the connected clients, and closing their connections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
        self.connected().entry(client).or_default().clone()
    }

    pub(super) fn leave(&self, client: i64) {
        self.connected().remove(&client);
    }

    /// Kills the connection: no further command of it is executed. Returns whether there was one.
    pub(super) fn kill(&self, client: i64) -> bool {
        let killed = self.connected().remove(&client);
        if let Some(life) = &killed {
            life.over.store(true, Ordering::Release);
            life.end.notify_one();
        }
        killed.is_some()
    }

    fn connected(&self) -> MutexGuard<'_, BTreeMap<i64, Arc<Life>>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
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
