//! A holder is notified in time when it loses its lease, and a lost lease stays lost.

use std::time::Duration;

use crate::attempts::{Attempt, Attempts, Lease};
use crate::faults::Faults;
use crate::hold::{Ending, Hold};
use crate::stamp::Stamp;
use crate::violation::Violation;

/// Each check concerns a single lease on its own host's clock, so `epsilon` does not apply.
pub(crate) fn check(attempts: &Attempts, faults: &Faults<'_>, end: Stamp, slack: Duration) -> Vec<Violation> {
    let mut found = Vec::new();
    for attempt in attempts.iter() {
        let (Some(lease), Some(hold)) = (&attempt.lease, attempt.hold()) else { continue };
        found.extend(reported_late(attempt, lease, &hold, faults, end, slack));
        found.extend(renewed_late(lease, &hold));
        found.extend(valid_late(lease, &hold));
    }
    found
}

/// The holder of a lost lease is notified by the deadline, or as soon as it runs again.
fn reported_late(
    attempt: &Attempt,
    lease: &Lease,
    hold: &Hold,
    faults: &Faults<'_>,
    end: Stamp,
    slack: Duration,
) -> Option<Violation> {
    if hold.ending == Ending::Released {
        return None;
    }
    let due = faults.put_off(&hold.client, hold.deadline.max(hold.acquired).plus(slack), slack)?;
    let too_late = match lease.reported {
        Some(reported) => reported > due,
        // The client had crashed, or there was still time.
        None => attempt.crashed.is_none_or(|crashed| crashed > due) && end > due,
    };
    too_late.then(|| Violation::LossReportedLate { hold: hold.clone(), due, reported: lease.reported })
}

/// The quorum's last response must arrive before the old deadline (rule I-9), and a loss is final
/// (rule I-10).
fn renewed_late(lease: &Lease, hold: &Hold) -> Vec<Violation> {
    let old = lease.deadlines.iter();
    let renewals = old.zip(lease.deadlines.iter().skip(1));
    renewals
        .filter_map(|(&(_, old), &(at, renewed))| {
            let over = lease.reported.map_or(old, |reported| reported.min(old));
            (at >= over && renewed > old).then(|| Violation::RenewedLate {
                hold: hold.clone(),
                over,
                at,
                renewed,
            })
        })
        .collect()
}

/// After the deadline, or after the holder was notified of the loss, no check reports the lease as valid.
fn valid_late(lease: &Lease, hold: &Hold) -> Vec<Violation> {
    let seen = lease.seen_valid.iter();
    seen.filter_map(|&at| {
        let deadline = lease.deadline_at(at);
        let over = lease.reported.map_or(deadline, |reported| reported.min(deadline));
        // With equal stamps, either may have come first.
        let late = at >= deadline || lease.reported.is_some_and(|reported| at > reported);
        late.then(|| Violation::ValidLate { hold: hold.clone(), over, at })
    })
    .collect()
}
