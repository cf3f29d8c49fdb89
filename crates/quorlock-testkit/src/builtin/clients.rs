//! `CLIENT KILL ID`: who is connected, and the end of that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The connections of a server, by their number.
#[derive(Default)]
pub(super) struct Clients {
    connected: Mutex<BTreeMap<i64, Arc<Life>>>,
}

/// Whether a connection goes on.
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

    /// Ends the connection: nothing that it has sent is carried out any more. Says whether there was one.
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
