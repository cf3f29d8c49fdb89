//! Whoever is told to lead leads, or did just now: what an observer hears was true at the nodes when they
//! were asked.

use std::time::Duration;

use crate::attempts::{Attempt, Attempts};
use crate::expectations::Expectations;
use crate::history::{Event, What};
use crate::stamp::Stamp;
use crate::violation::Violation;

pub(crate) fn check(
    events: &[&Event],
    attempts: &Attempts,
    expect: &Expectations,
    epsilon: Duration,
) -> Vec<Violation> {
    let mut found = Vec::new();
    // Where a node forgets a key, others draw before it is stored there anew.
    let mut forgot = false;
    for event in events {
        forgot |= matches!(event.what, What::Forgot { .. });
        let What::Observed { client, resource, leader, fencing_token, asked } = &event.what else { continue };
        let at = event.at;
        let attempt = attempts.get(leader).filter(|attempt| attempt.resource == *resource);
        // The first byte was sent after it was invoked, and the answer came before it was told.
        let began = attempt.is_some_and(|attempt| attempt.invoked <= at.plus(epsilon * 2));
        let gone_by = attempt.and_then(|attempt| gone_by(attempt, expect, epsilon));
        if !began || gone_by.is_some_and(|gone_by| *asked > gone_by) {
            let gone_by = gone_by.filter(|_| began);
            let (client, resource, leader) = (client.clone(), resource.clone(), leader.clone());
            found.push(Violation::Misled { client, resource, at, leader, gone_by });
        // While it acquires, a quorum may have drawn the same number, and another node a larger one that
        // counts.
        } else if let Some(told) = *fencing_token
            && !forgot
            && let Some(hold) = attempt.and_then(Attempt::hold)
            && hold
                .fencing_token
                .is_some_and(|token| told != token && (told > token || *asked > hold.acquired))
            && at < hold.end
        {
            found.push(Violation::OtherToken { client: client.clone(), at, told, leader: hold });
        }
    }
    found
}

/// When the nodes have forgotten the leader for certain: no key lives for longer than the longest TTL,
/// and none is renewed by somebody who knows that it is over.
fn gone_by(attempt: &Attempt, expect: &Expectations, epsilon: Duration) -> Option<Stamp> {
    let over = attempt.over().into_iter().chain(attempt.crashed).min()?;
    Some(over.plus(expect.max_ttl).plus(expect.grace).plus(epsilon * 2))
}
