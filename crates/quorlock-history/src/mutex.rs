//! The acquisitions and releases of a resource are those of a mutex, in some order that is consistent with
//! their times. This checks exclusion and the order of tokens a second time, by another algorithm.
//!
//! An attempt that returned no lease has no effect. Neither does one that never returned: it may
//! have taken the mutex, but if any order explains the rest, so does the same order without it.

use std::time::Duration;

use crate::hold::Hold;
use crate::search::{GaveUp, Operation, Step, search};
use crate::stamp::Stamp;
use crate::violation::Violation;

pub(crate) fn check(holds: &[Hold], epsilon: Duration, steps: u64) -> Result<Option<Violation>, GaveUp> {
    let both = |(index, hold)| both(index, hold, epsilon);
    let mut operations: Vec<Operation> = holds.iter().enumerate().flat_map(both).collect();
    let downgrades = holds.iter().enumerate().filter_map(|(index, hold)| downgrade(index, hold, epsilon));
    operations.extend(downgrades);
    operations.sort_by_key(|operation| operation.call);

    let Some(stuck) = search(&operations, steps)? else { return Ok(None) };
    let (hold, placed) = (holds.get(stuck.operation.hold).cloned(), stuck.placed);
    for operation in &mut operations {
        operation.step = operation.step.without_token();
    }
    let for_tokens = search(&operations, steps)?.is_none();
    Ok(hold.map(|hold| Violation::NoOrder { hold, placed, operations: operations.len(), for_tokens }))
}

/// A hold is two operations. Its end frees the mutex immediately or later, whatever ended it. When
/// the release returned does not matter: only the next acquisition depends on it.
fn both(index: usize, hold: &Hold, epsilon: Duration) -> [Operation; 2] {
    [
        Operation {
            call: hold.invoked.minus(epsilon),
            returned: hold.acquired.plus(epsilon),
            step: if hold.began_shared() {
                Step::Share { fencing_token: hold.fencing_token }
            } else {
                Step::Acquire { fencing_token: hold.fencing_token }
            },
            hold: index,
        },
        Operation { call: hold.end.minus(epsilon), returned: Stamp::NEVER, step: Step::Release, hold: index },
    ]
}

/// A downgrade took effect immediately or later, before the release. One that came after the
/// release had no effect.
fn downgrade(index: usize, hold: &Hold, epsilon: Duration) -> Option<Operation> {
    let shared = hold.shared.filter(|shared| !hold.began_shared() && *shared < hold.end)?;
    let call = shared.minus(epsilon).min(hold.end.minus(epsilon));
    Some(Operation { call, returned: Stamp::NEVER, step: Step::Downgrade, hold: index })
}
