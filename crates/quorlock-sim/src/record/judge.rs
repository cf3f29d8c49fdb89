//! Checks while the simulation runs, and of the whole record at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock_history::{Check, Expectations, Report, Stamp, Violation, check};
use quorlock_testkit::BuiltinServer;

use super::{Finding, Recorder, Rule, number_of};
use crate::plan::Twist;
use crate::world::{Time, nanos};

/// How long the keys of an attempt that has ended may remain on a node that responds.
const GRACE: Duration = Duration::from_millis(2_500);
/// For how long a key must be seen to be an orphan: a request that a middlebox repeats may put a waiter that has left back
/// into a queue, and an offer to it lasts for 1.2 s.
const STAYS: Duration = Duration::from_millis(1_300);
/// The additional time for a node that has just come back: clients reconnect within five seconds.
const RETURN: Duration = Duration::from_secs(7);

impl Recorder {
    pub(crate) fn find(&self, rule: Rule, text: String) {
        self.find_at(self.stamp(), rule, text);
    }

    fn find_at(&self, at: Stamp, rule: Rule, text: String) {
        let is_judged = matches!(rule, Rule::Fencing | Rule::Liveness | Rule::Panic);
        if self.plan.twist == Twist::OnlyFencing && !is_judged {
            return;
        }
        let at = Duration::from_nanos(at.nanos());
        self.world.note("FINDING", [0; 3], || text.clone());
        self.state.lock().findings.push(Finding { at, rule, text });
    }

    /// Returns the violation that happened first.
    pub(crate) fn finding(&self) -> Option<Finding> {
        self.state.lock().findings.iter().min_by_key(|finding| finding.at).cloned()
    }

    /// Looks for keys that belong to no live attempt. `calm` returns since when there has been no
    /// fault between a client and a node, if there is none; `life` the current life of a client.
    pub(crate) fn look(&self, calm: impl Fn(usize, usize) -> Option<Time>, life: impl Fn(usize) -> u32) {
        let now = self.world.now();
        let servers = self.servers.lock().clone();
        let mut left = BTreeMap::new();
        for (node, server) in servers.iter().enumerate() {
            for resource in self.plan.keys() {
                let key = self.plan.key(resource);
                let readers = server.readers(&key);
                let tokens = server.holder(&key).into_iter().chain(readers);
                // The marker of shared locks has no number.
                for number in tokens.filter_map(|token| number_of(&token)) {
                    if let Some(over) = self.is_over(now, node, number, &calm, &life) {
                        left.insert((node, number), over);
                    }
                }
            }
        }
        let mut state = self.state.lock();
        let before = std::mem::take(&mut state.left_behind);
        let since = |key| before.get(key).copied().unwrap_or(now);
        state.left_behind = left.keys().map(|key| (*key, since(key))).collect();
        let stays = state.left_behind.iter().find(|(_, since)| now > **since + nanos(STAYS));
        let orphan = stays.map(|((node, number), _)| (*node, *number, left[&(*node, *number)]));
        drop(state);
        if let Some((node, number, over)) = orphan {
            let since = Duration::from_nanos(now - over);
            let text = format!("op{number} ended {since:?} ago, but its key is still on node {node}");
            self.find(Rule::Orphan, text);
        }
    }

    /// Returns when this operation ended, if its key should have gone from the node since.
    fn is_over(
        &self,
        now: Time,
        node: usize,
        number: usize,
        calm: impl Fn(usize, usize) -> Option<Time>,
        life: impl Fn(usize) -> u32,
    ) -> Option<Time> {
        let state = self.state.lock();
        let operation = state.operations.get(number)?;
        let (over, calm) = (operation.over?, calm(operation.client, node)?);
        let grace = if calm + nanos(RETURN) > over { GRACE + RETURN } else { GRACE };
        let is_due = now > over.max(calm) + nanos(grace);
        (operation.life == life(operation.client) && is_due).then_some(over)
    }

    /// Checks the whole history, with the true time: exclusion, permits, fencing tokens, and whether some order of all
    /// acquisitions and releases is that of one mutex.
    pub(crate) fn judge(&self) {
        let history = std::mem::take(&mut self.state.lock().history);
        // A late response may report a leader whose lease ended long ago.
        let late = self.plan.max_ttl * 3 + Duration::from_secs(60);
        let report = check(&history, &Expectations::new().max_ttl(self.plan.max_ttl).grace(late));
        for (at, rule, text) in findings(&report) {
            // Two attempts that began together may return in the other order, if the keys of the first ended early.
            if self.plan.twist != Twist::OnlyFencing || report.of(Check::Register).next().is_some() {
                self.find_at(at.unwrap_or_else(|| self.stamp()), rule, text);
            }
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

/// Returns the first violation of each check, and the first lock that could not be checked.
fn findings(report: &Report) -> Vec<(Option<Stamp>, Rule, String)> {
    // Out-of-order fencing tokens also break the mutex.
    let judged = [
        (Check::Register, Rule::Fencing),
        (Check::Permits, Rule::Permits),
        (Check::Observers, Rule::Observing),
        (Check::Exclusion, Rule::Exclusion),
        (Check::Mutex, Rule::Exclusion),
        (Check::Record, Rule::Exclusion),
    ];
    let first = |(judged, rule)| {
        let violation = report.of(judged).next()?;
        let for_tokens = matches!(violation, Violation::NoOrder { for_tokens: true, .. });
        Some((violation.at(), if for_tokens { Rule::Fencing } else { rule }, violation.to_string()))
    };
    // A search ends early where an order exists, and runs out of steps where none does.
    let undecided = report.gave_up.first().map(|resource| {
        (
            None,
            Rule::Exclusion,
            format!("no order of one mutex was found for `{resource}`: the search gave up"),
        )
    });
    judged.into_iter().filter_map(first).chain(undecided).collect()
}

#[cfg(test)]
mod tests {
    use quorlock_history::{History, Stamp, What};

    use super::*;

    #[test]
    fn a_lock_that_could_not_be_checked_is_a_finding() {
        let mut history = History::new();
        for (attempt, began) in [("a", 0_u64), ("b", 20)] {
            let at = |millis| Stamp::from_nanos((began + millis) * 1_000_000);
            let acquired = What::Acquired { attempt: attempt.into(), deadline: at(9), fencing_token: None };
            let (client, resource) = (attempt.into(), "orders/42".into());
            history.record(at(0), What::Invoked { client, resource, attempt: attempt.into() });
            history.record(at(1), acquired);
            history.record(at(2), What::Releasing { attempt: attempt.into() });
            history.record(at(3), What::Released { attempt: attempt.into() });
        }
        assert_eq!(findings(&check(&history, &Expectations::new())), []);
        let found = findings(&check(&history, &Expectations::new().search_steps(3)));
        let [(None, Rule::Exclusion, text)] = &found[..] else { panic!("{found:?}") };
        assert!(text.contains("`orders/42`"), "{text}");
    }
}
