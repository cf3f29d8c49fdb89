//! All answers to one round, for errors, logs and people.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::duration;
use crate::node::{Expiry, Holding, NodeError};
use quorlock_protocol::{FencingToken, Quorum, Tally, Token, Verdict};

/// How each node voted in one round, how long it took, and what that adds up to.
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
    /// What it said, and whether it counts.
    pub outcome: VoteOutcome,
    /// From asking to the answer.
    pub took: Duration,
    /// Where the lock's counter of fencing tokens stands there, if it told.
    pub fencing_token: Option<FencingToken>,
}

impl NodeVote {
    /// Whether the node cannot grant until somebody mends something.
    fn misconfigured(&self) -> bool {
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

/// What a node said.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum VoteOutcome {
    /// It did as asked, and its vote counts.
    Granted,
    /// It had lost the key, and a renewal has stored it there again.
    Restored,
    /// The key holds something else.
    Held(Holding),
    /// Others come first: those who wait in the node's queue, or a writer that waits for readers.
    NotYourTurn,
    /// Its counter of fencing tokens has gone beyond the one that was to be confirmed.
    FenceAhead,
    /// The key is free.
    Free,
    /// It granted, but has restarted too recently for its vote to count.
    Quarantined {
        /// For so much longer.
        left: Duration,
    },
    /// It is the same server process as another node, which has been counted already.
    Duplicate {
        /// The name of that other node.
        of: Arc<str>,
    },
    /// It had not answered yet when the round was decided without it.
    Pending,
    /// It gave no vote.
    Failed(NodeError),
    /// It was not asked: it is known not to hold the key.
    Skipped,
}

impl VoteReport {
    pub(crate) fn new(quorum: Quorum, votes: Vec<NodeVote>) -> VoteReport {
        debug_assert_eq!(quorum.nodes(), votes.len(), "each node has one vote");
        VoteReport { quorum, votes }
    }

    /// The same, about this one of several keys.
    pub(crate) fn of(mut self, key: &Arc<str>) -> VoteReport {
        for vote in &mut self.votes {
            if let VoteOutcome::Held(holding) = &mut vote.outcome {
                holding.key = Some(key.clone());
            }
        }
        self
    }

    /// The same after a second request, for what the first one has not done.
    pub(crate) fn and(self, second: VoteReport) -> VoteReport {
        let done = |vote: &NodeVote| vote.outcome == VoteOutcome::Granted;
        let votes = self.votes.into_iter().zip(second.votes);
        let votes = votes.map(|(first, second)| if done(&first) { first } else { second });
        VoteReport { quorum: self.quorum, votes: votes.collect() }
    }

    /// One vote for each node, in the order of the configuration.
    #[must_use]
    pub fn votes(&self) -> &[NodeVote] {
        &self.votes
    }

    /// How many of how many nodes were needed.
    #[must_use]
    pub fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// How many nodes granted.
    #[must_use]
    pub fn granted(&self) -> usize {
        self.tally().granted()
    }

    /// What the answers add up to, taking those that are still missing as never coming.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.tally().verdict().unwrap_or(Verdict::Unavailable)
    }

    /// Who holds the lock at the most nodes, and for how much longer at the most of these.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        let mut held: BTreeMap<&[u8], Vec<(&Holding, Option<FencingToken>)>> = BTreeMap::new();
        for vote in &self.votes {
            if let VoteOutcome::Held(holding) = &vote.outcome {
                held.entry(holding.token.as_bytes()).or_default().push((holding, vote.fencing_token));
            }
        }
        let at = held.into_values().max_by_key(Vec::len)?;
        let numbers = at.iter().filter_map(|(_, number)| *number);
        // The nodes tell what they have drawn for the holder, and not what others may have raised their
        // counters to since. So what a quorum of these nodes carries is the holder's own, unless it is
        // still being decided: then one of them may have drawn a larger one, which counts.
        let carried = |number: &FencingToken| {
            at.iter().filter(|(_, other)| *other == Some(*number)).count() >= self.quorum.needed()
        };
        let longest = at.iter().filter_map(|(holding, _)| match holding.expiry {
            Expiry::In(remaining) => Some(remaining),
            Expiry::Never => None,
        });
        Some(Holder {
            token: at.first()?.0.token.clone(),
            key: at.first()?.0.key.clone(),
            fencing_token: numbers.max().filter(carried),
            nodes: at.len(),
            remaining: longest.max().unwrap_or_default(),
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

    /// Whether somebody has to mend something before a quorum can grant: rights, addresses,
    /// topology, or data that stands where the lock should be.
    #[must_use]
    pub fn misconfigured(&self) -> bool {
        self.bars_a_quorum(NodeVote::misconfigured)
    }

    /// Whether a quorum may be able to grant within `time`: not where too many nodes must not vote
    /// for longer than that, or need mending.
    pub(crate) fn may_carry_within(&self, time: Duration) -> bool {
        let quarantined =
            |vote: &NodeVote| matches!(vote.outcome, VoteOutcome::Quarantined { left } if left > time);
        !self.bars_a_quorum(|vote| vote.misconfigured() || quarantined(vote))
    }

    /// Whether several ask for a lock that none of them may have got: nobody has a quorum, not even with
    /// the nodes of which it could not be found out. Those that have not answered yet may have nobody.
    pub(crate) fn is_split(&self) -> bool {
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

    /// Whether so many nodes have somebody's token that nobody else can have a quorum now.
    pub(crate) fn is_taken(&self) -> bool {
        self.bars_a_quorum(|vote| matches!(vote.outcome, VoteOutcome::Held(_)))
    }

    /// The same for a round that had no answer yet when these nodes said that the key is free.
    pub(crate) fn without_free(mut self) -> VoteReport {
        for vote in &mut self.votes {
            if vote.outcome == VoteOutcome::Free {
                vote.outcome = VoteOutcome::Pending;
            }
        }
        self
    }

    /// Whether no quorum is left without those who are `out`.
    fn bars_a_quorum(&self, out: impl Fn(&NodeVote) -> bool) -> bool {
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

/// Who holds a lock, as the nodes have it.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Holder {
    /// The token; shown as the holder's context.
    pub token: Token,
    /// The fencing token, where a quorum of nodes tells of one. While its holder is still acquiring the
    /// lock it may be smaller than the one that comes of it; where nodes have forgotten their keys, also
    /// larger, because others have drawn there meanwhile.
    pub fencing_token: Option<FencingToken>,
    /// At how many nodes it stands.
    pub nodes: usize,
    /// For how much longer at the most of them; it may be renewed before that.
    pub remaining: Duration,
    /// Those who share it, where readers do and the nodes were asked who: see
    /// [`Lock::inspect`](crate::Lock::inspect).
    pub readers: Vec<Token>,
    /// Which key it is that they hold, where several were asked for.
    pub key: Option<Arc<str>>,
}

/// Who holds a lock, in words: its token's context, or the readers that share it.
pub(crate) fn holders(token: &Token, readers: &[Token]) -> String {
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

/// As many as fit into a message.
const SHOWN_READERS: usize = 3;

/// How a lock is taken: it is held, or [retained](Token::is_retained).
pub(crate) fn taken(token: &Token, readers: &[Token]) -> String {
    let how = if token.is_retained() { "stays taken:" } else { "held by" };
    format!("{how} {}", holders(token, readers))
}

impl Holding {
    /// As [`Holder::describe`], by what one node knows.
    #[must_use]
    pub fn describe(&self) -> String {
        holders(&self.token, &self.readers)
    }
}

impl Holder {
    /// Who it is, in words: the context of the token, or how many readers share the lock and some of
    /// their contexts.
    #[must_use]
    pub fn describe(&self) -> String {
        holders(&self.token, &self.readers)
    }
}

impl VoteOutcome {
    /// A vote that counts is a positive answer from a distinct process that is old enough (rules
    /// I-2 and I-12). A node that had to store the key anew did not hold it.
    pub(crate) fn count(&self, tally: &mut Tally) {
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
            VoteOutcome::Held(Holding { expiry: Expiry::Never, .. }) => {
                f.write_str("the key has no expiry: it is data and not a lock")
            }
            VoteOutcome::Held(holding) => {
                if let Some(key) = &holding.key {
                    write!(f, "`{key}` is ")?;
                }
                f.write_str(&taken(&holding.token, &holding.readers))
            }
            VoteOutcome::NotYourTurn => f.write_str("others go first"),
            VoteOutcome::FenceAhead => f.write_str("has drawn a larger fencing token"),
            VoteOutcome::Free => f.write_str("free"),
            VoteOutcome::Quarantined { left } => {
                write!(f, "restarted too recently to vote: {} to go (restart guard)", duration::format(*left))
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
                // Its answer could not have changed the verdict: nothing is wrong with the node.
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
