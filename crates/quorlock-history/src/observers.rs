//! A leader reported to an observer leads, or did so recently: the report was true on the nodes
//! when they were asked.

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
    // After a node forgets a key, other clients may draw tokens before the key is stored again. A repeated request draws
    // one for the same holder, who does not hear of it.
    let mut drawn_anew = false;
    for event in events {
        drawn_anew |= matches!(event.what, What::Forgot { .. } | What::Repeated);
        let What::Observed { client, resource, leader, fencing_token, asked } = &event.what else { continue };
        let at = event.at;
        let attempt = attempts.get(leader).filter(|attempt| attempt.resource == *resource);
        // The first byte was sent after `invoked`, and the response arrived before `at`.
        let began = attempt.is_some_and(|attempt| attempt.invoked <= at.plus(epsilon * 2));
        let gone_by = attempt.and_then(|attempt| gone_by(attempt, expect, epsilon));
        if !began || gone_by.is_some_and(|gone_by| *asked > gone_by) {
            let gone_by = gone_by.filter(|_| began);
            let (client, resource, leader) = (client.clone(), resource.clone(), leader.clone());
            found.push(Violation::Misled { client, resource, at, leader, gone_by });
        // While the leader acquires, a quorum may hold the same number and another node a larger
        // one that will count.
        } else if let Some(observed) = *fencing_token
            && !drawn_anew
            && let Some(hold) = attempt.and_then(Attempt::hold)
            && hold
                .fencing_token
                .is_some_and(|token| observed != token && (observed > token || *asked > hold.acquired))
            && at < hold.end
        {
            found.push(Violation::OtherToken { client: client.clone(), at, observed, leader: hold });
        }
    }
    found
}

/// When the nodes have certainly forgotten the leader: no key outlives the longest TTL, and no
/// client renews a lease that it knows to have ended.
fn gone_by(attempt: &Attempt, expect: &Expectations, epsilon: Duration) -> Option<Stamp> {
    let over = attempt.over().into_iter().chain(attempt.crashed).min()?;
    Some(over.plus(expect.max_ttl).plus(expect.grace).plus(epsilon * 2))
}
