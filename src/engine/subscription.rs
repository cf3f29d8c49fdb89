//! A contender's subscription to changes of its keys.

use std::sync::Arc;

use tokio::sync::Notify;

use super::queue::{HintState, WaitQueues};
use crate::runtime::Mutex;
use quorlock_protocol::machine::NodeSet;
use quorlock_protocol::{Keys, WaiterId, turn_key};

/// Receives the hints for one key, through its queue; or for several, through queues of their own,
/// since other callers may contend for each key as well.
pub(crate) struct Subscription {
    queues: Arc<WaitQueues>,
    keys: Keys,
    /// Notified for each of several keys.
    bell: Option<Arc<Notify>>,
    /// The keys by which nodes notify us of our turn, while we are in their queues.
    turn_keys: Mutex<Vec<Arc<str>>>,
}

impl Subscription {
    /// Subscribes. Must be called before the nodes are asked.
    pub(crate) fn open(queues: &Arc<WaitQueues>, keys: &Keys) -> Subscription {
        let keys = keys.clone();
        if !keys.are_several() {
            return Subscription { queues: queues.clone(), keys, bell: None, turn_keys: Mutex::default() };
        }
        let (queues, bell) = (queues.branch(keys.iter().cloned()), Arc::<Notify>::default());
        for key in keys.iter() {
            queues.watch(key);
            queues.ring(key, &bell);
        }
        Subscription { queues, keys, bell: Some(bell), turn_keys: Mutex::default() }
    }

    /// Drops the hints so far: the nodes are about to be asked.
    pub(crate) fn clear_hints(&self) {
        self.keys.iter().for_each(|key| self.queues.clear_hints(key));
    }

    /// Subscribes to the turns of this waiter for `key`. Returns the nodes that have announced one since the
    /// last call.
    pub(crate) fn turns(&self, key: &Arc<str>, waiter: WaiterId) -> NodeSet {
        let turn_key = turn_key(key, waiter);
        let mut turn_keys = self.turn_keys.lock();
        if !turn_keys.iter().any(|known| **known == *turn_key) {
            let turn_key = turn_key.into();
            self.queues.listen_for_turns(&turn_key, key);
            turn_keys.push(turn_key);
        }
        self.queues.take_turns(key)
    }

    /// Whether a node has announced a turn since the last call of [`turns`](Subscription::turns).
    pub(crate) fn has_turn(&self) -> bool {
        self.keys.iter().any(|key| self.queues.has_turn(key))
    }

    /// Returns the hints for the contended keys; changes of the others do not matter.
    pub(crate) fn hints(&self, in_the_way: &[Arc<str>]) -> HintState {
        let hints = |key: &Arc<str>| self.queues.hints(key);
        let first = hints(in_the_way.first().unwrap_or_else(|| self.keys.first()));
        in_the_way.iter().skip(1).map(hints).fold(first, HintState::and)
    }

    /// Returns what is notified when a node hints at a change of any of the keys.
    pub(crate) fn bell(&self) -> Arc<Notify> {
        self.bell.clone().or_else(|| self.queues.bell(self.keys.first())).unwrap_or_default()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.turn_keys.lock().iter().for_each(|turn_key| self.queues.forget_turns(turn_key));
    }
}
