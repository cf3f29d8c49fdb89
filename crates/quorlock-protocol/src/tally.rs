use std::fmt;

use super::Quorum;

/// What the answers to one round add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    clippy::exhaustive_enums,
    reason = "complete: a round is carried, or it is not, for one of two reasons"
)]
pub enum Verdict {
    /// A quorum granted.
    Won,
    /// Enough nodes answered, but others hold too many of them.
    Contended,
    /// Too few nodes answered to grant, whatever they would have said.
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
/// A vote is a positive answer from a distinct server process, given to this round's token
/// (rule I-2): whoever records a vote has made sure of both. An answer that did not come is
/// *unknown*: it neither grants nor denies.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    quorum: Quorum,
    granted: usize,
    denied: usize,
    unknown: usize,
}

impl Tally {
    /// Nobody has answered yet.
    #[must_use]
    #[inline]
    pub fn new(quorum: Quorum) -> Tally {
        Tally { quorum, granted: 0, denied: 0, unknown: 0 }
    }

    /// One more node does as asked, and its vote counts.
    #[inline]
    pub fn grant(&mut self) {
        self.granted += 1;
        self.check();
    }

    /// One more node refuses: it holds somebody else's token, or none.
    #[inline]
    pub fn deny(&mut self) {
        self.denied += 1;
        self.check();
    }

    /// One more node cannot be counted either way: no answer in time, an error, or a vote that
    /// does not count.
    #[inline]
    pub fn unknown(&mut self) {
        self.unknown += 1;
        self.check();
    }

    /// Nodes that granted.
    #[must_use]
    #[inline]
    pub fn granted(&self) -> usize {
        self.granted
    }

    /// Nodes that refused.
    #[must_use]
    #[inline]
    pub fn denied(&self) -> usize {
        self.denied
    }

    /// Nodes still to answer.
    #[must_use]
    #[inline]
    pub fn pending(&self) -> usize {
        self.quorum.nodes() - self.granted - self.denied - self.unknown
    }

    /// The verdict, as soon as no answer still to come can change it.
    ///
    /// Exact for even numbers of nodes, where a tie refuses. `Contended` wants so many answers
    /// that without the others' locks a quorum would have been there; until that is certain, one
    /// way or the other, the round stays undecided, so that "held by others" is never said of an
    /// outage.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let needed = self.quorum.needed();
        if self.granted >= needed {
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

    fn check(&self) {
        debug_assert!(
            self.granted + self.denied + self.unknown <= self.quorum.nodes(),
            "a node was counted twice"
        );
    }
}
