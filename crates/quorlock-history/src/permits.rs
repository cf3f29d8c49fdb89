//! A semaphore never certainly had more holders than permits, nor holders that disagreed about the
//! number of permits.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::hold::{Hold, Permit};
use crate::violation::Violation;

/// Sweeps over the holds by their beginning, with the set of those still active.
pub(crate) fn check(holds: &[Hold], epsilon: Duration) -> Vec<Violation> {
    let certain = |hold| Hold::certain(hold, epsilon).map(|(from, to)| (from, to, hold));
    let mut certain: Vec<_> = holds.iter().filter(|hold| hold.permit.is_some()).filter_map(certain).collect();
    certain.sort_by_key(|&(from, to, _)| (from, to));

    let mut found = Vec::new();
    let mut inside: Vec<_> = Vec::new();
    for (from, to, hold) in certain {
        inside.retain(|&(until, _)| from < until);
        let Some(Permit { of, .. }) = hold.permit else { continue };
        let other = inside.iter().find(|(_, other): &&(_, &Hold)| other.permit.is_some_and(|p| p.of != of));
        if let Some((_, earlier)) = other {
            found.push(Violation::LimitsDiffer { earlier: (*earlier).clone(), later: hold.clone() });
        }
        inside.push((to, hold));
        if inside.len() > of {
            found.push(Violation::Overfull { later: hold.clone(), holders: inside.len() });
        }
    }
    found
}

/// Groups the holds of a resource that exclude each other: by permit, or all of them if there are
/// none. Permits without a number are skipped.
pub(crate) fn apart(holds: &[Hold]) -> Vec<Vec<Hold>> {
    let mut apart: BTreeMap<Option<usize>, Vec<Hold>> = BTreeMap::new();
    for hold in holds {
        match hold.permit {
            None => apart.entry(None).or_default().push(hold.clone()),
            Some(Permit { number: Some(number), .. }) => {
                apart.entry(Some(number)).or_default().push(hold.clone());
            }
            Some(Permit { number: None, .. }) => {}
        }
    }
    apart.into_values().collect()
}
