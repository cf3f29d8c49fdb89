//! No two clients certainly held one lock at the same time.

use std::time::Duration;

use crate::hold::Hold;
use crate::stamp::Stamp;
use crate::violation::Violation;

/// Compares each hold of one resource with the one that lasts longest of those begun before it:
/// if any of them overlaps, that one does.
pub(crate) fn check(holds: &[Hold], epsilon: Duration) -> Vec<Violation> {
    let mut certain: Vec<(Stamp, Stamp, &Hold)> =
        holds.iter().filter_map(|hold| hold.certain(epsilon).map(|(from, to)| (from, to, hold))).collect();
    certain.sort_by_key(|&(from, to, _)| (from, to));

    let mut found = Vec::new();
    let mut longest: Option<(Stamp, &Hold)> = None;
    for (from, to, hold) in certain {
        if let Some((end, earlier)) = longest
            && from < end
        {
            found.push(Violation::Overlap {
                earlier: earlier.clone(),
                later: hold.clone(),
                by: end.min(to).since(from),
            });
        }
        if longest.is_none_or(|(end, _)| end < to) {
            longest = Some((to, hold));
        }
    }
    found
}
