//! Which nodes hold the key of a claim.

use std::fmt;

use crate::KeyState;

/// The state of the key on each node, in one word, since it is kept for every lease and read in
/// every cycle. Two bits per node, of which there are at most 31 (see the builder). A node that was
/// not set is `Without`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyStates(u64);

const BITS: usize = 2;
const MOST: usize = 32;

impl KeyStates {
    /// Collects the states in the order of the nodes.
    pub fn of(nodes: impl IntoIterator<Item = KeyState>) -> KeyStates {
        let word = |word: u64, (node, key_state): (usize, KeyState)| {
            let bits: u64 = match key_state {
                KeyState::Without => 0,
                KeyState::Holds => 1,
                KeyState::InFlight => 2,
                KeyState::Unknown => 3,
            };
            word | bits << (node * BITS)
        };
        KeyStates(nodes.into_iter().take(MOST).enumerate().fold(0, word))
    }

    /// Returns the state on the node with this index.
    #[must_use]
    pub fn get(self, node: usize) -> KeyState {
        if node >= MOST {
            return KeyState::Without;
        }
        match (self.0 >> (node * BITS)) & 0b11 {
            0 => KeyState::Without,
            1 => KeyState::Holds,
            2 => KeyState::InFlight,
            _ => KeyState::Unknown,
        }
    }

    /// Whether no node can hold the key.
    #[must_use]
    pub fn all_without(self) -> bool {
        self.0 == 0
    }

    /// Combines the states with those after a later request.
    #[must_use]
    pub fn then(self, later: KeyStates) -> KeyStates {
        // The common case: nothing was there before.
        if self.all_without() { later } else { self.with(later, KeyState::then) }
    }

    /// Combines the states of each node by `both`, which must map `Without` and `Without` to
    /// itself.
    #[must_use]
    pub fn with(self, other: KeyStates, both: impl Fn(KeyState, KeyState) -> KeyState) -> KeyStates {
        KeyStates::of((0..MOST).map(|node| both(self.get(node), other.get(node))))
    }
}

impl fmt::Debug for KeyStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..MOST).map(|node| self.get(node))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: [KeyState; 4] = [KeyState::Without, KeyState::Holds, KeyState::InFlight, KeyState::Unknown];

    #[test]
    fn each_node_keeps_its_own_standing() {
        let all = KeyStates::of((0..31).map(|node| EACH[node % 4]));
        for node in 0..31 {
            assert_eq!(all.get(node), EACH[node % 4], "node {node}");
        }
        assert_eq!(all.get(31), KeyState::Without, "never set");
        assert_eq!(all.get(99), KeyState::Without);
    }

    /// Earlier state by later one: rule I-40.
    #[test]
    fn i40_an_unknown_state_stays_unknown_after_later_answers() {
        use KeyState::{Holds, InFlight, Unknown, Without};
        for (before, afterwards) in [
            (Without, [Without, Holds, InFlight, Unknown]),
            (Holds, [Holds, Holds, InFlight, Unknown]),
            (InFlight, [Unknown; 4]),
            (Unknown, [Unknown; 4]),
        ] {
            assert_eq!(EACH.map(|later| before.then(later)), afterwards, "{before:?}");
        }
    }

    #[test]
    fn later_requests_count_for_each_node_alone() {
        for before in EACH {
            for later in EACH {
                let both = KeyStates::of([KeyState::Without, before]).then(KeyStates::of([before, later]));
                assert_eq!(both.get(0), before, "nothing was there before");
                assert_eq!(both.get(1), before.then(later));
            }
        }
        assert!(!KeyStates::of([KeyState::Without, KeyState::Holds]).all_without());
    }
}
