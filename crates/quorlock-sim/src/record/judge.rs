//! Checks of the record: some while the simulation runs, the whole at the end.

use std::time::Duration;

use quorlock_history::{Check, Expectations, Violation, check};
use quorlock_testkit::BuiltinServer;

use super::{Finding, Recorder, Rule, number_of};
use crate::oracle::{Happening, Oracle as _};
use crate::world::{Time, nanos};

/// How long the keys of an attempt that has ended may remain on a node that responds.
const GRACE: Duration = Duration::from_millis(2_500);
/// The additional time for a node that has just come back: clients reconnect within five seconds.
const RETURN: Duration = Duration::from_secs(7);

impl Recorder {
    pub(crate) fn find(&self, rule: Rule, text: String) {
        let at = Duration::from_nanos(self.world.now());
        self.world.note("FINDING", [0; 3], || text.clone());
        self.state.lock().findings.push(Finding { at, rule, text });
    }

    pub(crate) fn finding(&self) -> Option<Finding> {
        self.state.lock().findings.first().cloned()
    }

    /// Looks for keys that belong to no live attempt. `calm` returns since when there has been no
    /// fault between a client and a node, if there is none; `life` the current life of a client.
    pub(crate) fn look(&self, calm: impl Fn(usize, usize) -> Option<Time>, life: impl Fn(usize) -> u32) {
        let now = self.world.now();
        let servers = self.servers.lock().clone();
        for (node, server) in servers.iter().enumerate() {
            for resource in self.plan.keys() {
                let key = self.plan.key(resource);
                let readers = server.readers(&key);
                for token in server.holder(&key).into_iter().chain(readers) {
                    // The marker of shared locks has no number.
                    self.look_at(now, node, number_of(&token), &calm, &life);
                }
            }
        }
    }

    fn look_at(
        &self,
        now: Time,
        node: usize,
        number: Option<usize>,
        calm: impl Fn(usize, usize) -> Option<Time>,
        life: impl Fn(usize) -> u32,
    ) {
        let state = self.state.lock();
        let known = number.and_then(|number| Some((number, state.operations.get(number)?)));
        let Some((number, operation)) = known else { return };
        let (Some(over), Some(calm)) = (operation.over, calm(operation.client, node)) else { return };
        if operation.life != life(operation.client) {
            return;
        }
        let grace = if calm + nanos(RETURN) > over { GRACE + RETURN } else { GRACE };
        if now > over.max(calm) + nanos(grace) {
            drop(state);
            let since = Duration::from_nanos(now - over);
            let text = format!("op{number} ended {since:?} ago, but its key is still on node {node}");
            self.find(Rule::Orphan, text);
        }
    }

    /// Checks the whole history by another algorithm: whether some order of all acquisitions and
    /// releases is that of one mutex.
    pub(crate) fn judge(&self) {
        let history = std::mem::take(&mut self.state.lock().history);
        // A late response may report a leader whose lease ended long ago.
        let late = self.plan.max_ttl * 3 + Duration::from_secs(60);
        let report = check(&history, &Expectations::new().max_ttl(self.plan.max_ttl).grace(late));
        // First, because out-of-order fencing tokens also break the mutex.
        if let Some(violation) = report.of(Check::Register).next() {
            self.find(Rule::Fencing, violation.to_string());
        }
        for (judged, rule) in [(Check::Permits, Rule::Permits), (Check::Observers, Rule::Observing)] {
            if let Some(violation) = report.of(judged).next() {
                self.find(rule, violation.to_string());
            }
        }
        for judged in [Check::Exclusion, Check::Mutex, Check::Record] {
            if let Some(violation) = report.of(judged).next() {
                let for_tokens = matches!(violation, Violation::NoOrder { for_tokens: true, .. });
                let rule = if for_tokens { Rule::Fencing } else { Rule::Exclusion };
                self.find(rule, violation.to_string());
            }
        }
    }

    pub(super) fn see(&self, happening: &Happening) {
        let now = self.world.now();
        let mut state = self.state.lock();
        let exclusion = state.exclusion.see(now, happening).map(|text| (Rule::Exclusion, text));
        let permits = state.permits.see(now, happening).map(|text| (Rule::Permits, text));
        drop(state);
        for (rule, text) in exclusion.into_iter().chain(permits) {
            self.find(rule, text);
        }
    }

    /// Returns how many nodes have the token on all its resources, or lost it so recently that a
    /// holder may still rely on it.
    pub(super) fn backing(&self, resources: &[usize], token: &[u8]) -> usize {
        let now = self.world.now();
        let relied_on = nanos(self.plan.max_ttl) * 2;
        let servers = self.servers.lock();
        let state = self.state.lock();
        let backs = |(node, server): (usize, &BuiltinServer)| {
            let forgot = state.amnesia.get(&node).is_some_and(|at| at + relied_on > now);
            let holds = |resource: &usize| {
                let key = self.plan.key(*resource);
                let shares = || server.readers(&key).iter().any(|reader| reader == token);
                server.holder(&key).as_deref() == Some(token) || shares()
            };
            // Of several resources, all of them.
            forgot || resources.iter().all(holds)
        };
        servers.iter().enumerate().filter(|server| backs(*server)).count()
    }
}
