use std::time::Duration;

use crate::history::{Event, What};
use crate::names::{Client, Fault, Node};
use crate::stamp::Stamp;

/// The interval during which a fault was active.
struct Window<'history> {
    fault: &'history Fault,
    from: Stamp,
    healed: Option<Stamp>,
    nodes: &'history [Node],
    clients: &'history [Client],
}

/// All faults of a history, in the order in which they began.
pub(crate) struct Faults<'history> {
    windows: Vec<Window<'history>>,
}

impl<'history> Faults<'history> {
    /// Pairs each beginning with its heal, from time-ordered events.
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

    /// When the last fault that hinders `client` healed: one of nodes, one of this client, or one that names
    /// nothing. `None` if one never did.
    pub(crate) fn last_heal(&self, client: &Client) -> Option<Stamp> {
        let is_of_others = |window: &Window<'_>| {
            window.nodes.is_empty() && !window.clients.is_empty() && !window.clients.contains(client)
        };
        let mut hindering = self.windows.iter().filter(|window| !is_of_others(window));
        hindering.try_fold(Stamp::default(), |last, window| Some(last.max(window.healed?)))
    }

    /// When all faults of `node` that began before `at` had healed: `None` if one never did, the
    /// origin if there were none.
    pub(crate) fn healed_of(&self, node: &Node, at: Stamp) -> Option<Stamp> {
        let mut before =
            self.windows.iter().filter(|window| window.from <= at && window.nodes.contains(node));
        before.try_fold(Stamp::default(), |last, window| Some(last.max(window.healed?)))
    }

    /// Returns `due`, postponed past each time in which the client could not run, plus `slack`.
    /// `None` if it never ran again.
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
