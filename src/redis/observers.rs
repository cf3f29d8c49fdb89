//! The observers of a node, which are notified of the state of its connection.

use std::sync::Arc;

use crate::node::{ConnectionState, StatusListener};
use crate::runtime::Mutex;

/// The observers of a server or of a cluster.
///
/// They are notified under the lock, so that each observes all changes in order. They do not block.
#[derive(Debug, Default)]
pub(super) struct Observers {
    all: Mutex<Vec<Arc<dyn StatusListener>>>,
}

impl Observers {
    /// Notifies `observer` of the present state, if there is one, and of all later ones.
    pub(super) fn add(
        &self,
        observer: Arc<dyn StatusListener>,
        contact: impl FnOnce() -> Option<ConnectionState>,
    ) {
        let mut all = self.all.lock();
        if let Some(contact) = contact() {
            observer.on_status(contact);
        }
        all.push(observer);
    }

    /// Notifies all observers of the state, which is read under the lock.
    pub(super) fn notify(&self, contact: impl FnOnce() -> Option<ConnectionState>) {
        let all = self.all.lock();
        if let Some(contact) = contact() {
            all.iter().for_each(|observer| observer.on_status(contact.clone()));
        }
    }
}
