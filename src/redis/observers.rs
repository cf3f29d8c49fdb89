//! The observers of a node, which are notified of the state of its connection.

use std::sync::Arc;

use crate::node::observers::notify;
use crate::node::{ConnectionState, StatusListener};
use crate::runtime::Mutex;

/// The observers of a server or of a cluster. The panic of one does not affect the others (rule I-31).
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
            notify(&*observer, contact);
        }
        all.push(observer);
    }

    /// Notifies all observers of the state, which is read under the lock.
    pub(super) fn notify(&self, contact: impl FnOnce() -> Option<ConnectionState>) {
        let all = self.all.lock();
        if let Some(contact) = contact() {
            all.iter().for_each(|observer| notify(&**observer, contact.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeError;

    #[derive(Debug)]
    struct Panics;

    impl StatusListener for Panics {
        fn on_status(&self, _: ConnectionState) {
            panic!("a panic that the test wants");
        }
    }

    #[derive(Debug, Default)]
    struct Seen(Mutex<usize>);

    impl StatusListener for Seen {
        fn on_status(&self, _: ConnectionState) {
            *self.0.lock() += 1;
        }
    }

    #[test]
    fn a_panic_of_an_observer_does_not_affect_others() {
        let (observers, seen) = (Observers::default(), Arc::new(Seen::default()));
        let lost = || Some(ConnectionState::Lost(NodeError::NotAsked));
        observers.add(Arc::new(Panics), lost);
        observers.add(Arc::clone(&seen) as Arc<dyn StatusListener>, || None);
        observers.notify(lost);
        assert_eq!(*seen.0.lock(), 1);
    }
}
