//! When a refused waiter asks again.

use std::time::Duration;

use crate::{EXPIRY_JITTER, HEARTBEAT, fraction};

/// The result of a refused attempt.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// How many nodes granted.
    pub granted: usize,
    /// How many nodes are a quorum.
    pub needed: usize,
    /// Whether one holder has a quorum, or others come first.
    pub held: bool,
    /// Whether a single node was asked, and refused.
    pub by_one: bool,
}

impl Refusal {
    /// Creates a refusal with `granted` of the `needed` votes.
    #[must_use]
    #[inline]
    pub fn new(granted: usize, needed: usize) -> Refusal {
        Refusal { granted, needed, held: false, by_one: false }
    }

    /// Returns how many nodes have to hint at a change before a quorum can be possible.
    #[must_use]
    #[inline]
    pub fn hints_wanted(self) -> usize {
        if self.by_one { 1 } else { self.needed.saturating_sub(self.granted).max(1) }
    }

    /// Returns when to ask again at the latest, if the nodes counted in `hearing` send hints.
    /// `ends` has the remaining time of the contended key on each node.
    ///
    /// If a holder has a quorum, or the only node asked has refused, that is when enough of the
    /// keys have expired, and no longer than a heartbeat. Returns `None` if waiting for hints is
    /// pointless, because votes were split or too few nodes send hints; then the caller takes a
    /// short random pause ([`Backoff`](crate::Backoff)).
    #[must_use]
    pub fn pause(
        self,
        hearing: usize,
        ends: &mut [Duration],
        mut random: impl FnMut() -> u64,
    ) -> Option<Duration> {
        let wanted = self.hints_wanted();
        if !(self.held || self.by_one) || hearing < wanted {
            return None;
        }
        ends.sort_unstable();
        let expiry = ends.get(wanted - 1).map_or(HEARTBEAT, |left| {
            left.saturating_add(Duration::from_millis(1) + fraction(EXPIRY_JITTER, random()))
        });
        Some(expiry.min(HEARTBEAT / 2 + fraction(HEARTBEAT, random())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn held(granted: usize) -> Refusal {
        Refusal { held: true, ..Refusal::new(granted, 3) }
    }

    #[test]
    fn no_node_hints_at_a_split_vote_or_an_outage() {
        assert_eq!(Refusal::new(2, 3).pause(5, &mut [], || 0), None);
        assert_eq!(held(0).pause(2, &mut [LONG; 5], || 0), None, "too few nodes send hints");
    }

    #[test]
    fn it_waits_for_the_hints_that_allow_a_quorum() {
        let hints = [0, 1, 2, 3].map(|granted| held(granted).hints_wanted());
        assert_eq!(hints, [3, 2, 1, 1]);
        assert_eq!(Refusal { by_one: true, ..Refusal::new(0, 3) }.hints_wanted(), 1);
    }

    #[test]
    fn it_waits_until_enough_keys_expire_or_for_a_heartbeat() {
        let seconds = |seconds: &[u64]| seconds.iter().map(|s| Duration::from_millis(*s)).collect::<Vec<_>>();
        let millis =
            |granted, ends: &[u64]| held(granted).pause(5, &mut seconds(ends), || 0).unwrap().as_millis();
        assert_eq!(millis(0, &[700, 100, 300, 500]), 501, "three of them");
        assert_eq!(millis(2, &[700, 100, 300]), 101, "one of them");
        assert_eq!(millis(0, &[700, 100]), 1_000, "two of three are not enough");
        assert_eq!(held(0).pause(5, &mut [LONG; 5], || u64::MAX), Some(HEARTBEAT * 3 / 2));
    }
}
