//! What a guarded resource relies on: fencing tokens never decrease, belong to one attempt each, which shows its own,
//! follow the order in which attempts succeeded, and never cause a current holder to be refused.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use crate::attempts::{Attempt, Attempts};
use crate::history::{Answer, Event, What};
use crate::hold::Hold;
use crate::names::{Resource, Token};
use crate::stamp::Stamp;
use crate::violation::{Violation, Write};

/// Runs all checks of one resource.
pub(crate) fn check(
    holds: &[Hold],
    writes: &[Write],
    attempts: &Attempts,
    epsilon: Duration,
) -> Vec<Violation> {
    let mut found = accepted_in_order(writes);
    found.extend(one_attempt_each(holds, writes));
    found.extend(of_others(writes, attempts));
    found.extend(in_real_time_order(holds, epsilon));
    found.extend(fenced_wrongly(writes, attempts, epsilon));
    found
}

/// Returns the writes to each resource, in the order in which it decided.
pub(crate) fn writes(events: &[&Event]) -> BTreeMap<Resource, Vec<Write>> {
    let mut writes: BTreeMap<Resource, Vec<Write>> = BTreeMap::new();
    for event in events {
        if let What::Wrote { resource, attempt, fencing_token, answer } = &event.what {
            let write = Write {
                at: event.at,
                attempt: attempt.clone(),
                fencing_token: *fencing_token,
                answer: *answer,
            };
            writes.entry(resource.clone()).or_default().push(write);
        }
    }
    writes
}

fn accepted_in_order(writes: &[Write]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut largest: Option<&Write> = None;
    for write in writes.iter().filter(|write| write.answer == Answer::Accepted) {
        match largest {
            Some(before) if write.fencing_token < before.fencing_token => {
                found.push(Violation::TokenFell { before: before.clone(), after: write.clone() });
            }
            Some(_) | None => largest = Some(write),
        }
    }
    found
}

fn one_attempt_each(holds: &[Hold], writes: &[Write]) -> Vec<Violation> {
    let readers: HashSet<&Token> =
        holds.iter().filter(|hold| hold.began_shared()).map(|hold| &hold.attempt).collect();
    let drawn = holds.iter().filter_map(|hold| Some((hold.fencing_token?, &hold.attempt)));
    let shown = writes.iter().map(|write| (write.fencing_token, &write.attempt));
    let mut owner: HashMap<u64, &Token> = HashMap::new();
    let mut named = HashSet::new();
    let mut found = Vec::new();
    for (fencing_token, attempt) in drawn.chain(shown) {
        let first = *owner.entry(fencing_token).or_insert(attempt);
        let both_read = readers.contains(first) && readers.contains(attempt);
        // An attempt may write repeatedly, and is reported once.
        if first != attempt && !both_read && named.insert((fencing_token, attempt)) {
            found.push(Violation::TokenShared {
                fencing_token,
                first: first.clone(),
                second: attempt.clone(),
            });
        }
    }
    found
}

/// An attempt that began after another had returned has the larger token. Sweeps over the attempts
/// by their beginning, with the largest token returned until then.
fn in_real_time_order(holds: &[Hold], epsilon: Duration) -> Vec<Violation> {
    let by_beginning: Vec<(u64, &Hold)> =
        holds.iter().filter_map(|hold| Some((hold.fencing_token?, hold))).collect();
    let mut by_return = by_beginning.clone();
    by_return.sort_by_key(|(_, hold)| hold.acquired);

    let mut found = Vec::new();
    let mut returned = by_return.into_iter().peekable();
    let mut largest: Option<(u64, &Hold)> = None;
    for (token, hold) in by_beginning {
        let began = hold.invoked.minus(epsilon);
        while let Some((token, earlier)) = returned.next_if(|(_, other)| other.acquired.plus(epsilon) < began)
        {
            if largest.is_none_or(|(largest, _)| largest < token) {
                largest = Some((token, earlier));
            }
        }
        // Equal tokens are reported as shared.
        if let Some((_, earlier)) = largest.filter(|&(largest, _)| token < largest) {
            found.push(Violation::TokenOrder { earlier: earlier.clone(), later: hold.clone() });
        }
    }
    found
}

/// The token of a write is that of its attempt, unless the client crashed before it recorded which that was.
fn of_others(writes: &[Write], attempts: &Attempts) -> Vec<Violation> {
    let of_another = |write: &Write| {
        let attempt = attempts.get(&write.attempt).filter(|attempt| attempt.has_returned())?;
        let own = attempt.lease.as_ref().and_then(|lease| lease.fencing_token);
        (own != Some(write.fencing_token)).then(|| Violation::TokenOfAnother { write: write.clone(), own })
    };
    writes.iter().filter_map(of_another).collect()
}

/// A stale holder is rightly refused; one that certainly holds the lock must not be.
fn fenced_wrongly(writes: &[Write], attempts: &Attempts, epsilon: Duration) -> Vec<Violation> {
    let covers = |(from, to): (Stamp, Stamp), at: Stamp| from <= at.minus(epsilon) && at.plus(epsilon) < to;
    let refused = writes.iter().filter(|write| write.answer == Answer::Refused);
    refused
        .filter_map(|write| {
            let hold = attempts.get(&write.attempt).and_then(Attempt::hold)?;
            covers(hold.certain(epsilon)?, write.at)
                .then(|| Violation::FencedWrongly { hold, write: write.clone() })
        })
        .collect()
}
