//! The responses to one round: for errors and logs, and for what a refused waiter does next.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::duration;
use crate::node::{Expiry, Holding, NodeError};
use crate::{FencingToken, Quorum, Tally, Token, Verdict, printable};

/// How each node voted in one round, how long it took, and the result.
#[derive(Clone, PartialEq, Debug)]
pub struct VoteReport {
    quorum: Quorum,
    votes: Vec<NodeVote>,
}

/// One node's part in a [`VoteReport`].
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct NodeVote {
    /// The node's name: its address without the password.
    pub node: Arc<str>,
    /// Its vote, and whether that counts.
    pub outcome: VoteOutcome,
    /// The time from the request to the response.
    pub took: Duration,
    /// The node's counter of fencing tokens for this lock, if it reported that.
    pub fencing_token: Option<FencingToken>,
}

impl NodeVote {
    #[doc(hidden)]
    #[must_use]
    pub fn new(
        node: Arc<str>,
        outcome: VoteOutcome,
        took: Duration,
        fencing_token: Option<FencingToken>,
    ) -> NodeVote {
        NodeVote { node, outcome, took, fencing_token }
    }

    /// Whether the node cannot grant until the configuration is fixed.
    pub(crate) fn misconfigured(&self) -> bool {
        match &self.outcome {
            VoteOutcome::Failed(error) => error.is_permanent(),
            VoteOutcome::Held(holding) => holding.expiry == Expiry::Never,
            VoteOutcome::Duplicate { .. } => true,
            VoteOutcome::Granted
            | VoteOutcome::Restored
            | VoteOutcome::NotYourTurn
            | VoteOutcome::FenceAhead
            | VoteOutcome::Free
            | VoteOutcome::Quarantined { .. }
            | VoteOutcome::Pending
            | VoteOutcome::Skipped => false,
        }
    }
}

/// The outcome of asking one node.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum VoteOutcome {
    /// It did as asked, and its vote counts.
    Granted,
    /// It had lost the key, and a renewal has stored it again.
    Restored,
    /// The key holds another token.
    Held(Holding),
    /// Others go first: waiters in the node's queue, or a writer that waits for readers.
    NotYourTurn,
    /// Its fencing counter is beyond the token to be confirmed.
    FenceAhead,
    /// The key is free.
    Free,
    /// It granted, but restarted or was first used too recently for its vote to count.
    Quarantined {
        /// The remaining time.
        left: Duration,
        /// Why it is taken for so young.
        cause: QuarantineCause,
    },
    /// It is the same server process as another node, whose vote was counted.
    Duplicate {
        /// The name of that other node.
        of: Arc<str>,
    },
    /// It had not responded when the round was decided.
    Pending,
    /// It did not vote.
    Failed(NodeError),
    /// It was not asked, since it is known not to hold the key.
    Skipped,
}

/// Why a node is too young to vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum QuarantineCause {
    /// It restarted, was promoted or was first used too recently.
    Recent,
    /// Its clock was ahead when it started and was set back since: it cannot tell for how long it has run. It counts as old
    /// as clients have known it.
    ClockSetBack,
}

impl VoteReport {
    #[doc(hidden)]
    #[must_use]
    pub fn new(quorum: Quorum, votes: Vec<NodeVote>) -> VoteReport {
        debug_assert_eq!(quorum.nodes(), votes.len(), "each node has one vote");
        VoteReport { quorum, votes }
    }

    /// Names the key, of several, that the report is about.
    #[doc(hidden)]
    #[must_use]
    pub fn of(mut self, key: &Arc<str>) -> VoteReport {
        for vote in &mut self.votes {
            if let VoteOutcome::Held(holding) = &mut vote.outcome {
                holding.key = Some(key.clone());
            }
        }
        self
    }

    /// Merges the report with that of a second request, for what the first one did not do.
    #[doc(hidden)]
    #[must_use]
    pub fn and(self, second: VoteReport) -> VoteReport {
        let done = |vote: &NodeVote| vote.outcome == VoteOutcome::Granted;
        let votes = self.votes.into_iter().zip(second.votes);
        let votes = votes.map(|(first, second)| if done(&first) { first } else { second });
        VoteReport { quorum: self.quorum, votes: votes.collect() }
    }

    /// Returns one vote per node, in the order of the configuration.
    #[must_use]
    pub fn votes(&self) -> &[NodeVote] {
        &self.votes
    }

    /// Returns how many of how many nodes were needed.
    #[must_use]
    pub fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// Returns how many nodes granted.
    #[must_use]
    pub fn granted(&self) -> usize {
        self.tally().granted()
    }

    /// Returns the verdict, on the assumption that missing responses never arrive.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.tally().verdict().unwrap_or(Verdict::Unavailable)
    }

    /// Returns the holder reported by the most nodes, with the latest expiry among them.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        let mut held: BTreeMap<&[u8], Vec<(&Holding, Option<FencingToken>)>> = BTreeMap::new();
        for vote in &self.votes {
            if let VoteOutcome::Held(holding) = &vote.outcome {
                held.entry(holding.token.as_bytes()).or_default().push((holding, vote.fencing_token));
            }
        }
        let at = held.into_values().max_by_key(Vec::len)?;
        let (first, _) = at.first()?;
        // Nodes report the number they drew for the holder, not what others have raised their
        // counters to since. A quorum of them carries the number of a holder that has the lock (rule
        // F-3), so a number on a quorum is its own. Another node may have drawn a larger one for it,
        // which came after its verdict and does not count. Where the holder draws none, since its lock
        // is unfenced, retained or shared, they report their counter, which is of an earlier holder.
        let draws = first.token.number().is_some() || first.depth.is_some();
        let numbers = at.iter().filter_map(|(_, number)| *number).filter(|_| draws);
        let carried = |number: &FencingToken| {
            at.iter().filter(|(_, other)| *other == Some(*number)).count() >= self.quorum.needed()
        };
        let latest = at.iter().map(|(holding, _)| holding.expiry).max()?;
        Some(Holder {
            token: first.token.clone(),
            key: first.key.clone(),
            depth: first.depth,
            fencing_token: numbers.filter(carried).max(),
            nodes: at.len(),
            remaining: latest,
            readers: at.iter().flat_map(|(holding, _)| &holding.readers).fold(
                Vec::new(),
                |mut all: Vec<Token>, reader| {
                    if !all.contains(reader) {
                        all.push(reader.clone());
                    }
                    all
                },
            ),
        })
    }

    /// Whether no quorum can grant until the configuration is fixed: permissions, addresses,
    /// topology, or foreign data under the lock's key.
    #[must_use]
    pub fn misconfigured(&self) -> bool {
        self.blocks_quorum(NodeVote::misconfigured)
    }

    /// Whether a quorum may be able to grant within `time`: not if too many nodes are quarantined
    /// for longer or misconfigured.
    #[doc(hidden)]
    #[must_use]
    pub fn may_win_within(&self, time: Duration) -> bool {
        let quarantined =
            |vote: &NodeVote| matches!(vote.outcome, VoteOutcome::Quarantined { left, .. } if left > time);
        !self.blocks_quorum(|vote| vote.misconfigured() || quarantined(vote))
    }

    /// For how long no quorum can grant, because too many nodes are quarantined.
    #[doc(hidden)]
    #[must_use]
    pub fn quarantined_for(&self) -> Duration {
        let quarantined = |vote: &NodeVote| {
            if let VoteOutcome::Quarantined { left, .. } = vote.outcome { Some(left) } else { None }
        };
        let mut lefts: Vec<Duration> = self.votes.iter().filter_map(quarantined).collect();
        lefts.sort_unstable();
        let blocking = self.quorum.blocking();
        lefts.len().checked_sub(blocking).and_then(|first| lefts.get(first)).copied().unwrap_or_default()
    }

    /// Whether the votes are split: no client has a quorum, not even if it has all nodes whose
    /// state is unknown. Nodes that have not responded yet are assumed free.
    #[doc(hidden)]
    #[must_use]
    pub fn is_split(&self) -> bool {
        let unknown = |vote: &&NodeVote| {
            let late = matches!(vote.outcome, VoteOutcome::Failed(NodeError::Unanswered { .. }));
            !late
                && matches!(
                    vote.outcome,
                    VoteOutcome::Failed(_) | VoteOutcome::Quarantined { .. } | VoteOutcome::Duplicate { .. }
                )
        };
        let ahead = self.votes.iter().filter(|vote| vote.outcome == VoteOutcome::NotYourTurn).count();
        let most = self.holder().map_or(0, |holder| holder.nodes) + ahead;
        let others_have_some = most > 0 && self.verdict() == Verdict::Contended;
        others_have_some && most + self.votes.iter().filter(unknown).count() < self.quorum.needed()
    }

    /// Whether too many nodes hold a token for a new client to have a quorum now.
    #[doc(hidden)]
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.blocks_quorum(|vote| matches!(vote.outcome, VoteOutcome::Held(_)))
    }

    /// Whether the nodes outside of `out` are too few for a quorum.
    fn blocks_quorum(&self, out: impl Fn(&NodeVote) -> bool) -> bool {
        self.votes.iter().filter(|vote| out(vote)).count() >= self.quorum.blocking()
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::new(self.quorum);
        for vote in &self.votes {
            vote.outcome.count(&mut tally);
        }
        tally
    }
}

/// The holder of a lock, as reported by the nodes.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The token; displayed as the holder's context.
    pub token: Token,
    /// The fencing token, if a quorum of nodes reports one: then it is that of a holder which has
    /// acquired the lock. While the holder is still acquiring, it may be smaller than the final one. It
    /// is larger if nodes have lost their keys and other clients have since drawn numbers there.
    pub fencing_token: Option<FencingToken>,
    /// On how many nodes the token is stored.
    pub nodes: usize,
    /// The longest remaining TTL among them, before whose end the holder may renew; [`Expiry::Never`] if the key has none
    /// on one of them.
    pub remaining: Expiry,
    /// The readers that share the lock, if the nodes were asked for them: see
    /// `quorlock::Lock::inspect`.
    pub readers: Vec<Token>,
    /// The key that is held, if several were asked for.
    pub key: Option<Arc<str>>,
    /// How often it has acquired the lock without releasing it, where the nodes count that: see
    /// [`Holding::depth`].
    pub depth: Option<u64>,
}

impl Holder {
    /// Creates a holder without readers, key and depth.
    #[must_use]
    pub fn new(token: Token, fencing_token: Option<FencingToken>, nodes: usize, remaining: Expiry) -> Holder {
        Holder { token, fencing_token, nodes, remaining, readers: Vec::new(), key: None, depth: None }
    }
}

/// Describes a holder: the token's context, or the readers.
#[doc(hidden)]
#[must_use]
pub fn holders(token: &Token, readers: &[Token]) -> String {
    if readers.is_empty() {
        return token.to_string();
    }
    let shown = readers.iter().take(SHOWN_READERS).map(Token::to_string).collect::<Vec<_>>().join(", ");
    let more = match readers.len().saturating_sub(SHOWN_READERS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let count = if readers.len() == 1 { "1 reader".to_owned() } else { format!("{} readers", readers.len()) };
    format!("{count}: {shown}{more}")
}

/// Like [`holders`], with the depth of another program's holder: ours is counted in the holder's process.
fn described(token: &Token, readers: &[Token], depth: Option<u64>) -> String {
    let depth = match depth.filter(|_| !token.is_ours()) {
        None => String::new(),
        Some(0) => ", first in the queue of a fair lock".to_owned(),
        Some(depth) => format!(", depth {depth}"),
    };
    format!("{}{depth}", holders(token, readers))
}

/// How many readers a message names.
const SHOWN_READERS: usize = 3;

/// Describes how a lock is taken: it is held or [retained](Token::is_retained).
#[doc(hidden)]
#[must_use]
pub fn taken(token: &Token, readers: &[Token]) -> String {
    let how = if token.is_retained() { "stays taken:" } else { "held by" };
    format!("{how} {}", holders(token, readers))
}

impl Holding {
    /// Describes the holder as in [`Holder::describe`], as known by one node.
    #[must_use]
    pub fn describe(&self) -> String {
        described(&self.token, &self.readers, self.depth)
    }
}

impl Holder {
    /// Describes the holder: the context of the token, or the number of readers and some of their
    /// contexts. For a client of another program, also how often it has acquired the lock, if that is counted.
    #[must_use]
    pub fn describe(&self) -> String {
        described(&self.token, &self.readers, self.depth)
    }
}

impl VoteOutcome {
    /// Counts the vote. A grant counts if it comes from a distinct process that is old enough
    /// (rules I-2 and I-12). A node that had to store the key again did not hold it.
    #[doc(hidden)]
    pub fn count(&self, tally: &mut Tally) {
        match self {
            VoteOutcome::Granted | VoteOutcome::Skipped => tally.grant(),
            VoteOutcome::Held(_)
            | VoteOutcome::NotYourTurn
            | VoteOutcome::FenceAhead
            | VoteOutcome::Free
            | VoteOutcome::Restored => tally.deny(),
            VoteOutcome::Quarantined { .. } | VoteOutcome::Duplicate { .. } | VoteOutcome::Failed(_) => {
                tally.unknown();
            }
            VoteOutcome::Pending => {}
        }
    }
}

impl fmt::Display for VoteOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VoteOutcome::Granted => f.write_str("granted"),
            VoteOutcome::Restored => f.write_str("had lost the key"),
            VoteOutcome::Held(Holding { expiry: Expiry::Never, is_place: true, token, .. }) => {
                write!(
                    f,
                    "held by {token}, in a place that never expires, since no session or lease keeps it: "
                )?;
                f.write_str("release it with `quorlock release --force`, or delete it")
            }
            VoteOutcome::Held(Holding { expiry: Expiry::Never, .. }) => {
                f.write_str("the key has no expiry: it is data and not a lock, or a lock without a timeout, as redis-py's: ")?;
                f.write_str("give that a timeout, or delete the key, or use another name or prefix")
            }
            VoteOutcome::Held(holding) => {
                if let Some(key) = &holding.key {
                    write!(f, "`{}` is ", printable(key))?;
                }
                f.write_str(&taken(&holding.token, &holding.readers))
            }
            VoteOutcome::NotYourTurn => f.write_str("others go first"),
            VoteOutcome::FenceAhead => f.write_str("has drawn this fencing token or a larger one"),
            VoteOutcome::Free => f.write_str("free"),
            VoteOutcome::Quarantined { left, cause } => {
                f.write_str(match cause {
                    QuarantineCause::Recent => "restarted or first used too recently to vote",
                    QuarantineCause::ClockSetBack => {
                        "its clock was ahead when it started and was set back since, so that it is only as old as clients \
                         have known it, too young to vote"
                    }
                })?;
                write!(f, ": {} to go (restart guard)", duration::format(*left))
            }
            VoteOutcome::Duplicate { of } => write!(f, "the same server as {of}, which counts once"),
            VoteOutcome::Pending => f.write_str("had not answered yet"),
            VoteOutcome::Failed(error) => write!(f, "{error:#}"),
            VoteOutcome::Skipped => f.write_str("does not hold the key"),
        }
    }
}

/// `1 of 5 granted, 3 needed (2 held by db-7:4121: a, b; unreachable: connection refused: c, d)`
impl fmt::Display for VoteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} granted, {} needed", self.granted(), self.quorum.nodes(), self.quorum.needed())?;
        let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
        let is_decided = self.tally().verdict().is_some();
        for vote in &self.votes {
            if matches!(vote.outcome, VoteOutcome::Granted | VoteOutcome::Skipped) {
                continue;
            }
            let reason = if is_decided && vote.outcome == VoteOutcome::Pending {
                // Its response could not have changed the verdict: nothing is wrong with the node.
                "not waited for".to_owned()
            } else {
                vote.outcome.to_string()
            };
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, nodes)) => nodes.push(&vote.node),
                None => reasons.push((reason, vec![&vote.node])),
            }
        }
        for (position, (reason, nodes)) in reasons.iter().enumerate() {
            let opening = if position == 0 { " (" } else { "; " };
            write!(f, "{opening}{}: {reason}", nodes.join(", "))?;
        }
        if reasons.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

#[cfg(test)]
mod tests;
