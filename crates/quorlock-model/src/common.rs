//! What the models have in common.

use quorlock_protocol::{Quorum, Tally, Verdict};

/// Which events are separate steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Detail {
    /// Only those that can make a difference; see the table of each model.
    Reduced,
    /// All of them, to check that the reductions hide no violation.
    Literal,
}

/// What happens to the answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It arrives while the attempt waits for it.
    Heard,
    /// It is lost, late, or does not count.
    Unheard,
}

/// Whether this many grants are a quorum.
pub(crate) fn is_won(quorum: Quorum, grants: usize) -> bool {
    let mut tally = Tally::new(quorum);
    (0..grants).for_each(|_| tally.grant());
    tally.verdict() == Some(Verdict::Won)
}

/// Whether these votes, a bit for each of `nodes` nodes, are those of a majority.
pub(crate) fn is_majority(nodes: usize, votes: u8) -> bool {
    is_won(Quorum::majority(nodes), (0..nodes).filter(|node| votes & (1 << node) != 0).count())
}
