//! No two holds of a lock certainly overlapped, of whatever clients, unless both shared it.

use std::time::Duration;

use crate::hold::{Hold, Part};
use crate::violation::Violation;

/// Compares each part of a hold with the longest-lasting parts that began before it: if any earlier
/// part overlaps, one of these does. Shared parts are compared with exclusive ones only.
pub(crate) fn check(holds: &[Hold], epsilon: Duration) -> Vec<Violation> {
    let mut parts: Vec<Part<'_>> = holds.iter().flat_map(|hold| hold.parts(epsilon)).collect();
    parts.sort_by_key(|part| (part.from, part.to));

    let mut found = Vec::new();
    let (mut alone, mut together): (Option<Part<'_>>, Option<Part<'_>>) = (None, None);
    for part in parts {
        let others = if part.shared { [&alone, &None] } else { [&alone, &together] };
        for earlier in others.into_iter().flatten().filter(|earlier| part.from < earlier.to) {
            found.push(Violation::Overlap {
                earlier: earlier.hold.clone(),
                later: part.hold.clone(),
                by: earlier.to.min(part.to).since(part.from),
            });
        }
        let longest = if part.shared { &mut together } else { &mut alone };
        if longest.as_ref().is_none_or(|longest| longest.to < part.to) {
            *longest = Some(part);
        }
    }
    found
}
