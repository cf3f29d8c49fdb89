use std::fmt;

use super::Quorum;

/// The result of one round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a round is won, or it is not, for one of two reasons")]
pub enum Verdict {
    /// A quorum granted.
    Won,
    /// Enough nodes answered, but other clients hold too many of them.
    Contended,
    /// Too few nodes answered to grant, whatever their votes.
    Unavailable,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Won => "won",
            Verdict::Contended => "contended",
            Verdict::Unavailable => "unavailable",
        })
    }
}

/// Counts the votes of one round.
///
/// A vote is a positive answer from a distinct server process, given to this round's token (rule
/// I-2); the caller must ensure both. A missing answer is *unknown*: it neither grants nor denies.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    quorum: Quorum,
    granted: usize,
    denied: usize,
    unknown: usize,
}

impl Tally {
    /// Creates a count without answers.
    #[must_use]
    #[inline]
    pub fn new(quorum: Quorum) -> Tally {
        Tally { quorum, granted: 0, denied: 0, unknown: 0 }
    }

    /// Counts a node that did as asked, and whose vote counts.
    #[inline]
    pub fn grant(&mut self) {
        self.granted += 1;
        self.check();
    }

    /// Counts a node that refused: it holds another token, or none.
    #[inline]
    pub fn deny(&mut self) {
        self.denied += 1;
        self.check();
    }

    /// Counts a node without a usable vote: no answer in time, an error, or a vote that does not
    /// count.
    #[inline]
    pub fn unknown(&mut self) {
        self.unknown += 1;
        self.check();
    }

    /// Returns how many nodes granted.
    #[must_use]
    #[inline]
    pub fn granted(&self) -> usize {
        self.granted
    }

    /// Returns how many nodes refused.
    #[must_use]
    #[inline]
    pub fn denied(&self) -> usize {
        self.denied
    }

    /// Returns how many nodes have not answered yet.
    #[must_use]
    #[inline]
    pub fn pending(&self) -> usize {
        self.quorum.nodes() - self.granted - self.denied - self.unknown
    }

    /// Returns the verdict, as soon as no outstanding answer can change it.
    ///
    /// Exact for even numbers of nodes, where a tie refuses. `Contended` requires enough answers
    /// for a quorum if the other clients' locks were absent; until that is certain, one way or the
    /// other, there is no verdict, so that an outage is never reported as contention.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let needed = self.quorum.needed();
        debug_assert!(2 * needed > self.quorum.nodes(), "two quorums without a common node");
        if self.granted >= needed {
            debug_assert!(self.denied < self.quorum.blocking(), "a quorum granted, and too many refused");
            Some(Verdict::Won)
        } else if self.granted + self.pending() >= needed {
            None
        } else if self.granted + self.denied >= needed {
            Some(Verdict::Contended)
        } else if self.granted + self.denied + self.pending() < needed {
            Some(Verdict::Unavailable)
        } else {
            None
        }
    }

    /// Whether nodes that have not answered could complete as many refusals as another client needs grants.
    #[must_use]
    pub(crate) fn may_reach_refusals(&self) -> bool {
        let needed = self.quorum.needed();
        (1..needed).contains(&self.denied) && self.denied + self.pending() >= needed
    }

    fn check(&self) {
        debug_assert!(
            self.granted + self.denied + self.unknown <= self.quorum.nodes(),
            "a node was counted twice"
        );
    }
}
