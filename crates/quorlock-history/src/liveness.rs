//! Once all faults that hinder it have healed, every client that wants a lock gets one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::attempts::{Attempt, Attempts};
use crate::faults::Faults;
use crate::names::Client;
use crate::stamp::Stamp;
use crate::violation::Violation;

/// Checks that each client that wanted a lock after the last heal of what hindered it got one within
/// `bound` of the heal or of its first attempt thereafter, whichever is later. Clients that crashed, or
/// still had time when the history ended, are skipped; a fault of another client excuses none.
pub(crate) fn check(attempts: &Attempts, faults: &Faults<'_>, end: Stamp, bound: Duration) -> Vec<Violation> {
    let mut clients: BTreeMap<&Client, Vec<&Attempt>> = BTreeMap::new();
    for attempt in attempts.iter() {
        clients.entry(&attempt.client).or_default().push(attempt);
    }

    let mut found = Vec::new();
    for (client, mut wanted) in clients {
        let Some(last_heal) = faults.last_heal(client) else { continue };
        wanted.retain(|attempt| wants_after(attempt, last_heal));
        if wanted.is_empty() {
            continue;
        }
        let first = wanted.iter().map(|attempt| attempt.invoked).min().unwrap_or_default();
        let since = first.max(last_heal);
        let due = since.plus(bound);
        let acquired = wanted.iter().filter_map(|attempt| attempt.lease.as_ref()).map(|lease| lease.acquired);
        let crashed = wanted.iter().any(|attempt| attempt.crashed.is_some_and(|at| at <= due));
        if end > due && !crashed && acquired.min().is_none_or(|acquired| acquired > due) {
            found.push(Violation::Starved {
                client: client.clone(),
                since,
                bound,
                attempts: wanted.iter().filter(|attempt| attempt.invoked <= due).count(),
            });
        }
    }
    found
}

/// Whether the attempt was in progress at `heal`, or began after it.
fn wants_after(attempt: &Attempt, heal: Stamp) -> bool {
    let acquired = attempt.lease.as_ref().map(|lease| lease.acquired);
    acquired.or(attempt.not_acquired).or(attempt.crashed).is_none_or(|returned| returned >= heal)
}
