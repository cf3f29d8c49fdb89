//! Who leads according to the nodes, and what observers are shown.

use quorlock::Token;
use quorlock_history::{Stamp, What};

use super::{Recorder, Rule, name, number_of};
use crate::plan::Subject;
use crate::world::Time;

/// The leader that an observer saw.
pub(crate) struct Seen {
    pub(crate) token: Token,
    pub(crate) fencing_token: Option<u64>,
}

impl Recorder {
    /// Records the current leader on every node.
    pub(crate) fn look_who_leads(&self) {
        if self.plan.subject != Subject::Elections {
            return;
        }
        let now = self.world.now();
        let servers = self.servers.lock();
        let mut state = self.state.lock();
        for (node, server) in servers.iter().enumerate() {
            // Requests of several connections may arrive in one event, so that a token appeared and
            // disappeared.
            for (key, token) in server.take_replaced() {
                if self.plan.keys().into_iter().any(|resource| self.plan.key(resource).as_bytes() == key) {
                    state.stored.entry(token).or_default().insert(node, now);
                }
            }
            for resource in self.plan.keys() {
                if let Some(token) = server.holder(&self.plan.key(resource)) {
                    state.stored.entry(token).or_default().insert(node, now);
                }
            }
        }
    }

    /// An observer saw this leader, or none, from nodes that were asked after `asked`.
    pub(crate) fn observed(&self, observer: [usize; 2], asked: Time, leader: Option<&Seen>) {
        let [client, resource] = observer;
        let number = self.glanced(observer, asked, leader);
        self.state.lock().last_leader.insert((client, resource), number);
    }

    /// Like [`Recorder::observed`], for a single query. Returns the leading operation.
    pub(crate) fn glanced(&self, observer: [usize; 2], asked: Time, leader: Option<&Seen>) -> Option<usize> {
        let [client, resource] = observer;
        let mut state = self.state.lock();
        state.counts.observed += 1;
        let mut number = None;
        let mut found = None;
        if let Some(Seen { token, fencing_token }) = leader {
            let hold = state.holds.iter().rev().find(|hold| hold.token == token.as_bytes());
            // If it is not known to have acquired yet, there is nothing to compare.
            let fencing_token = fencing_token.filter(|_| hold.is_some());
            number = hold.map(|hold| hold.operation).or_else(|| number_of(token.as_bytes()));
            let seen = state.stored.get(token.as_bytes()).into_iter().flatten();
            let nodes = seen.filter(|(_, last)| **last >= asked).count();
            if nodes < self.plan.quorum() {
                found = Some(format!(
                    "client {client} observed the leader {token}, but only {nodes} of {} nodes had it stored while it asked",
                    self.plan.nodes
                ));
            }
            let what = What::Observed {
                client: name("client", client).as_str().into(),
                resource: self.plan.key(resource).as_str().into(),
                leader: number
                    .map_or_else(|| token.to_string(), |number| format!("op{number}"))
                    .as_str()
                    .into(),
                fencing_token,
                asked: Stamp::from_nanos(asked),
            };
            state.history.record(self.stamp(), what);
        }
        drop(state);
        self.note("observe", [client, resource, number.unwrap_or(usize::MAX)], || {
            let leader = leader.map_or("no one".to_owned(), |leader| leader.token.to_string());
            format!("client {client} sees that {leader} leads e{resource}")
        });
        if let Some(text) = found {
            self.find(Rule::Observing, text);
        }
        number
    }

    /// Whether all observers of an election last saw this operation, or no leader.
    pub(crate) fn all_have_seen(&self, resource: usize, leader: Option<usize>) -> bool {
        let state = self.state.lock();
        (0..self.plan.clients).all(|client| state.last_leader.get(&(client, resource)) == Some(&leader))
    }
}
