//! What a contest hears of its keys.

use std::sync::Arc;

use tokio::sync::Notify;

use super::queue::{Heard, Lines};
use quorlock_protocol::Keys;

/// Hears of one key, in its line; or of several, in lines of its own, since others may contend for
/// each of these as well.
pub(crate) struct Ears {
    lines: Arc<Lines>,
    keys: Keys,
    /// Rings for each of several keys.
    bell: Option<Arc<Notify>>,
}

impl Ears {
    /// From now on hints are kept: to be had before the nodes are asked.
    pub(crate) fn open(lines: &Arc<Lines>, keys: &Keys) -> Ears {
        let keys = keys.clone();
        if !keys.are_several() {
            return Ears { lines: lines.clone(), keys, bell: None };
        }
        let (lines, bell) = (lines.branch(), Arc::<Notify>::default());
        for key in keys.iter() {
            lines.watch(key);
            lines.ring(key, &bell);
        }
        Ears { lines, keys, bell: Some(bell) }
    }

    /// Forgets the hints so far: the nodes are about to be asked.
    pub(crate) fn ask_anew(&self) {
        self.keys.iter().for_each(|key| self.lines.ask_anew(key));
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
