//! What the states and the steps of the models have in common.

mod story;

use std::fmt;

use quorlock_protocol::{FencingToken, Moment};
use stateright::Representative;

use crate::clock::{is_valid, moment};
use crate::common::Answer;
use crate::names::least;
use crate::record::Kept;

/// The state of the nodes, the attempts, and the requests between them.
///
/// There is no global time in it, only ages and remaining times. Each attempt has its own token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<W, P, A, const N: usize, const K: usize> {
    /// What has happened so far.
    pub(crate) past: W,
    pub(crate) nodes: [P; N],
    pub(crate) attempts: [A; K],
}

/// A node, and the requests to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Node<T, M, const K: usize, const L: usize> {
    /// What it keeps of each lock.
    pub(crate) kept: [Kept; L],
    /// How long ago it restarted without data; `None` once that does not matter.
    pub(crate) age: Option<u8>,
    /// How far its clock has run ahead.
    pub(crate) ahead: u8,
    /// What its model adds.
    pub(crate) own: T,
    /// The requests of each attempt.
    pub(crate) mail: [M; K],
}

/// An attempt, which is one token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Attempt<O> {
    /// Its own clock, which starts when it asks for votes or sends its question.
    pub(crate) clock: u8,
    /// How many ticks its clock has missed.
    pub(crate) behind: u8,
    pub(crate) phase: Phase,
    /// What its model adds.
    pub(crate) own: O,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) enum Phase {
    /// It has not begun.
    #[default]
    Idle,
    /// It collects votes.
    Voting,
    /// It waits for an offer: its question is sent, and its token is public.
    Waiting {
        /// Its token was released since, but still counts.
        given_back: bool,
    },
    /// It has a quorum, which does not carry its number yet.
    WritingBack,
    /// A lease, which may have ended unnoticed.
    Holding(Lease),
    /// The lease has ended, and its keys may be offered.
    Ended,
    /// Given up or released. Its requests may still arrive.
    Over { held: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Lease {
    /// The deadline, by the attempt's own clock.
    pub(crate) until: Moment,
    /// How many renewals have been sent.
    pub(crate) renewals: u8,
    /// When the undecided renewal was sent.
    pub(crate) renewal: Option<u8>,
    /// Another attempt has asserted the lock since it began.
    pub(crate) interrupted: bool,
}

/// What an attempt has besides.
pub(crate) trait Own: Copy + Ord {
    /// Whether the names of two attempts may be exchanged.
    fn is_like(&self, _: &Self) -> bool {
        false
    }

    /// Returns the number that a holder has.
    fn number(&self) -> Option<FencingToken> {
        None
    }
}

impl Own for () {}

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step<S> {
    /// A tick passes.
    Tick { missed_by: Option<usize> },
    /// A node's clock runs a tick ahead.
    RunAhead { node: usize },
    /// A node restarts, without its data unless it keeps it.
    Restart { node: usize },
    /// A request for a vote arrives; the attempt may begin with the first one.
    Vote { attempt: usize, node: usize, answer: Answer },
    /// An attempt reads its clock and asks all nodes to renew its lease.
    Renew { attempt: usize },
    /// A request of the renewal arrives.
    Renewal { attempt: usize, node: usize, answer: Answer },
    /// A renewal is sent, and its first request arrives.
    NewRenewal { attempt: usize, node: usize },
    /// An attempt releases what it has, or gives up.
    End { attempt: usize },
    /// A release arrives.
    Release { attempt: usize, node: usize },
    /// A step that only this model has.
    Own(S),
}

impl<S> Step<S> {
    /// Returns the weight of the step in random walks. Chosen so that many attempts acquire and renew, and some
    /// things arrive too late.
    pub(crate) fn weight(&self, own: impl Fn(&S) -> u32) -> u32 {
        match self {
            Step::Vote { .. } | Step::Renewal { .. } | Step::Tick { missed_by: None } => 8,
            Step::NewRenewal { .. } => 4,
            Step::Renew { .. } | Step::Release { .. } => 2,
            Step::RunAhead { .. }
            | Step::Restart { .. }
            | Step::End { .. }
            | Step::Tick { missed_by: Some(_) } => 1,
            Step::Own(step) => own(step),
        }
    }
}

impl Lease {
    pub(crate) fn new(until: Moment) -> Lease {
        Lease { until, renewals: 0, renewal: None, interrupted: false }
    }
}

impl<O> Attempt<O> {
    pub(crate) fn lease(&self) -> Option<&Lease> {
        if let Phase::Holding(lease) = &self.phase { Some(lease) } else { None }
    }

    /// Whether it may act as the holder, decided by [`Term`](quorlock_protocol::Term) as in the library.
    pub(crate) fn asserts(&self) -> bool {
        self.lease().is_some_and(|lease| is_valid(lease.until, moment(self.clock)))
    }

    pub(crate) fn is_running(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Ended | Phase::Over { .. })
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over { .. })
    }

    pub(crate) fn has_held(&self) -> bool {
        self.phase == Phase::Over { held: true }
    }
}

impl<T: Copy + Default, M: Copy + Default, const K: usize, const L: usize> Node<T, M, K, L> {
    pub(crate) fn new() -> Node<T, M, K, L> {
        let (kept, mail) = ([Kept::nothing(); L], [M::default(); K]);
        Node { kept, age: None, ahead: 0, own: T::default(), mail }
    }

    /// Its clock runs on.
    pub(crate) fn tick(&mut self) {
        self.kept = self.kept.map(Kept::ticked);
        self.age = self.age.map(|age| age.saturating_add(1));
    }

    /// Whether its clock makes a difference.
    pub(crate) fn has_clock(&self) -> bool {
        self.kept.iter().any(|kept| !kept.is_free()) || self.age.is_some()
    }
}

impl<W, T, M, O, const N: usize, const K: usize, const L: usize> State<W, Node<T, M, K, L>, Attempt<O>, N, K>
where
    T: Copy + Default,
    M: Copy + Default,
{
    /// A tick passes, which the clock of one attempt may miss.
    pub(crate) fn tick(&mut self, missed_by: Option<usize>) {
        self.nodes.iter_mut().for_each(Node::tick);
        for (index, attempt) in self.attempts.iter_mut().enumerate().filter(|(_, one)| one.is_running()) {
            if missed_by == Some(index) {
                attempt.behind += 1;
            } else {
                attempt.clock += 1;
            }
        }
    }

    /// Marks each lease that another attempt interrupts.
    pub(crate) fn note_interruptions(&mut self, interrupts: impl Fn(&Self, usize, usize) -> bool) {
        let by_another = |index| (0..K).any(|other| other != index && interrupts(self, index, other));
        let interrupted: [bool; K] = std::array::from_fn(by_another);
        for (attempt, interrupted) in self.attempts.iter_mut().zip(interrupted) {
            if let Phase::Holding(lease) = &mut attempt.phase {
                lease.interrupted |= interrupted;
            }
        }
    }
}

/// The names of nodes make no difference, nor those of attempts that are alike.
impl<W, T, M, O, const N: usize, const K: usize, const L: usize> Representative
    for State<W, Node<T, M, K, L>, Attempt<O>, N, K>
where
    W: Copy + Ord,
    T: Copy + Ord,
    M: Copy + Ord,
    O: Own,
{
    fn representative(&self) -> Self {
        let are_alike = |order: &[usize; K]| {
            let one = |(new, old): (usize, &usize)| {
                new == *old || self.attempts[new].own.is_like(&self.attempts[*old].own)
            };
            order.iter().enumerate().all(one)
        };
        // `order[new] = old`
        let renamed = |order: [usize; K]| {
            let mut state = *self;
            for node in &mut state.nodes {
                node.kept = node.kept.map(|kept| kept.renamed(order));
                node.mail = order.map(|old| node.mail[old]);
            }
            state.attempts = order.map(|old| self.attempts[old]);
            state.nodes.sort_unstable();
            state
        };
        least(|order| are_alike(&order).then(|| renamed(order))).unwrap_or(*self)
    }
}

/// The initial state.
impl<W, T, M, O, const N: usize, const K: usize, const L: usize> fmt::Display
    for State<W, Node<T, M, K, L>, Attempt<O>, N, K>
where
    T: Copy + Default,
    M: Copy + Default,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{N} nodes, {K} attempts")?;
        let mut kept = self.nodes.iter().enumerate().filter(|(_, node)| node.has_clock());
        kept.try_for_each(|(node, there)| write!(f, "; node {node} keeps {:?}", there.kept))
    }
}
