//! What a contest hears of its keys.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use super::queue::{Heard, Lines};
use crate::quorum::node_set::NodeSet;
use quorlock_protocol::{Keys, WaiterId, turn_key};

/// Hears of one key, in its line; or of several, in lines of its own, since others may contend for
/// each of these as well.
pub(crate) struct Ears {
    lines: Arc<Lines>,
    keys: Keys,
    /// Rings for each of several keys.
    bell: Option<Arc<Notify>>,
    /// By which nodes tell that it is our turn, once we stand in their queues.
    turn_key: OnceLock<Arc<str>>,
}

impl Ears {
    /// From now on hints are kept: to be had before the nodes are asked.
    pub(crate) fn open(lines: &Arc<Lines>, keys: &Keys) -> Ears {
        let keys = keys.clone();
        if !keys.are_several() {
            return Ears { lines: lines.clone(), keys, bell: None, turn_key: OnceLock::new() };
        }
        let (lines, bell) = (lines.branch(), Arc::<Notify>::default());
        for key in keys.iter() {
            lines.watch(key);
            lines.ring(key, &bell);
        }
        Ears { lines, keys, bell: Some(bell), turn_key: OnceLock::new() }
    }

    /// Forgets the hints so far: the nodes are about to be asked.
    pub(crate) fn ask_anew(&self) {
        self.keys.iter().for_each(|key| self.lines.ask_anew(key));
    }

    /// From now on it is heard when nodes tell that it is the turn of this waiter, and which have since the last
    /// call.
    pub(crate) fn turns(&self, waiter: WaiterId) -> NodeSet {
        self.turn_key.get_or_init(|| {
            let turn_key = turn_key(self.keys.first(), waiter).into();
            self.lines.listen_for_turns(&turn_key, self.keys.first());
            turn_key
        });
        self.lines.take_turns(self.keys.first())
    }

    /// What was heard since of those keys that are in the way. Others come and go as they like.
    pub(crate) fn heard(&self, in_the_way: &[Arc<str>]) -> Heard {
        let heard = |key: &Arc<str>| self.lines.hints(key);
        let first = heard(in_the_way.first().unwrap_or_else(|| self.keys.first()));
        in_the_way.iter().skip(1).map(heard).fold(first, Heard::and)
    }

    /// Rings when a node hints at a change of any of them.
    pub(crate) fn bell(&self) -> Arc<Notify> {
        self.bell.clone().or_else(|| self.lines.bell(self.keys.first())).unwrap_or_default()
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        if let Some(turn_key) = self.turn_key.get() {
            self.lines.forget_turns(turn_key);
        }
    }
}
