use std::time::Duration;

use crate::history::{Event, What};
use crate::names::{Client, Fault, Node};
use crate::stamp::Stamp;

/// From when to when something was disturbed.
struct Window<'history> {
    fault: &'history Fault,
    from: Stamp,
    healed: Option<Stamp>,
    nodes: &'history [Node],
    clients: &'history [Client],
}

/// All disturbances of a history, in the order in which they began.
pub(crate) struct Faults<'history> {
    windows: Vec<Window<'history>>,
}

impl<'history> Faults<'history> {
    /// Pairs beginnings with heals, from events in order of time.
    pub(crate) fn of(events: &[&'history Event]) -> Faults<'history> {
        let mut windows: Vec<Window<'_>> = Vec::new();
        for event in events {
            if let What::FaultBegan { fault, nodes, clients } = &event.what {
                windows.push(Window { fault, from: event.at, healed: None, nodes, clients });
            } else if let What::FaultHealed { fault } = &event.what {
                let open = |window: &&mut Window<'_>| window.fault == fault && window.healed.is_none();
                windows.iter_mut().filter(open).for_each(|window| window.healed = Some(event.at));
            }
        }
        Faults { windows }
    }

    /// When the last of them healed; `None` if one never did.
    pub(crate) fn last_heal(&self) -> Option<Stamp> {
        self.windows.iter().try_fold(Stamp::default(), |last, window| Some(last.max(window.healed?)))
    }

    /// When all faults of the node that began before `at` have healed: `None` if one never did, the
    /// origin if there was none.
    pub(crate) fn healed_of(&self, node: &Node, at: Stamp) -> Option<Stamp> {
        let mut before =
            self.windows.iter().filter(|window| window.from <= at && window.nodes.contains(node));
        before.try_fold(Stamp::default(), |last, window| Some(last.max(window.healed?)))
    }

    /// `due`, put off while the client could not run, with `slack` after each time that it could
    /// not. `None` if it never ran again.
    pub(crate) fn put_off(&self, client: &Client, due: Stamp, slack: Duration) -> Option<Stamp> {
        let mut stopped = self.windows.iter().filter(|window| window.clients.contains(client));
        stopped.try_fold(due, |due, window| {
            if due < window.from {
                return Some(due);
            }
            window.healed.map(|healed| due.max(healed.plus(slack)))
        })
    }
}
