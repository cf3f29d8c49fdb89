//! Keys and counters on the nodes: no key of an attempt that has ended, none without an attempt,
//! none that lives too long, and no counter that decreased.

use std::collections::HashMap;
use std::time::Duration;

use crate::attempts::{Attempt, Attempts};
use crate::expectations::Expectations;
use crate::faults::Faults;
use crate::history::{Event, What};
use crate::names::{Node, Resource};
use crate::stamp::Stamp;
use crate::violation::{KeySeen, Violation};

pub(crate) fn check(
    events: &[&Event],
    attempts: &Attempts,
    faults: &Faults<'_>,
    expect: &Expectations,
    epsilon: Duration,
) -> Vec<Violation> {
    let keys = events.iter().filter_map(|event| key(event));
    let rules = Rules { attempts, faults, expect, epsilon };
    let mut found: Vec<Violation> = keys.flat_map(|key| rules.judge(&key)).collect();
    found.extend(counters(events));
    found
}

fn key(event: &Event) -> Option<KeySeen> {
    let What::Key { node, resource, attempt, remaining } = &event.what else { return None };
    Some(KeySeen {
        at: event.at,
        node: node.clone(),
        resource: resource.clone(),
        attempt: attempt.clone(),
        remaining: *remaining,
    })
}

struct Rules<'history> {
    attempts: &'history Attempts,
    faults: &'history Faults<'history>,
    expect: &'history Expectations,
    epsilon: Duration,
}

impl Rules<'_> {
    fn judge(&self, key: &KeySeen) -> Vec<Violation> {
        let max_ttl = self.expect.max_ttl;
        let too_long = key.remaining > max_ttl;
        let too_long = too_long.then(|| Violation::KeyTooLong { key: key.clone(), max_ttl });
        // An attempt for another resource does not own this key.
        let attempt = self.attempts.get(&key.attempt).filter(|attempt| attempt.is_of(&key.resource));
        let misplaced = match attempt {
            None => Some(Violation::Stranger { key: key.clone() }),
            Some(attempt) => self
                .gone_by(attempt, key)
                .filter(|&gone_by| key.at > gone_by)
                .map(|gone_by| Violation::Orphan { key: key.clone(), gone_by }),
        };
        too_long.into_iter().chain(misplaced).collect()
    }

    /// When the key has to be gone; `None` if nothing requires it yet.
    fn gone_by(&self, attempt: &Attempt, key: &KeySeen) -> Option<Stamp> {
        let grace = self.expect.grace.saturating_add(self.epsilon * 2);
        let over = attempt.over();
        let clean = over.map(|over| over.plus(grace));
        if let Some(crashed) = attempt.crashed
            && clean.is_none_or(|clean| crashed < clean)
        {
            // No process is left to clean up, so the key expires.
            return Some(crashed.plus(self.expect.max_ttl).plus(grace));
        }
        let healed = self.faults.healed_of(&key.node, key.at)?;
        Some(clean?.max(healed.plus(grace)))
    }
}

/// Finds counters that decreased on a node that is not known to have lost data in between.
fn counters(events: &[&Event]) -> Vec<Violation> {
    let mut seen: HashMap<(&Node, &Resource), (Stamp, u64)> = HashMap::new();
    let mut found = Vec::new();
    for event in events {
        if let What::Forgot { node } = &event.what {
            seen.retain(|(of, _), _| *of != node);
        } else if let What::Counter { node, resource, value } = &event.what {
            let before = seen.insert((node, resource), (event.at, *value));
            if let Some((since, before)) = before
                && *value < before
            {
                found.push(Violation::CounterFell {
                    node: node.clone(),
                    resource: resource.clone(),
                    since,
                    before,
                    at: event.at,
                    after: *value,
                });
            }
        }
    }
    found
}
