//! The observers of a node that runs on one thread.

use std::sync::Arc;

use super::{ConnectionState, StatusListener};

/// The [observers](super::Node::observe) of a node, and the state of its connection of which they were last
/// notified.
#[derive(Debug, Default)]
pub struct Observers {
    all: Vec<Arc<dyn StatusListener>>,
    state: Option<ConnectionState>,
}

impl Observers {
    /// Notifies `observer` of the present state, if there is one, and of all later ones.
    pub fn add(&mut self, observer: Arc<dyn StatusListener>) {
        if let Some(state) = &self.state {
            observer.on_status(state.clone());
        }
        self.all.push(observer);
    }

    /// Notifies all observers of `state`, unless it is the last one. A connection to the same history of the
    /// data is the same state.
    pub fn notify(&mut self, state: ConnectionState) {
        let same = match (&self.state, &state) {
            (Some(ConnectionState::Connected(before)), ConnectionState::Connected(now)) => {
                before.id == now.id
            }
            (before, now) => before.as_ref() == Some(now),
        };
        if !same {
            self.all.iter().for_each(|observer| observer.on_status(state.clone()));
            self.state = Some(state);
        }
    }
}
