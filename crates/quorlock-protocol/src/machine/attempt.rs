//! One attempt to acquire a lock: its votes, its number, and whether the verdict is in time.
//!
//! It has one round of votes, and a second one where too few nodes have drawn the number:
//!
//! | round | request | what its responses decide |
//! |---|---|---|
//! | votes | a request for a vote, or the transfer by which a lock is passed on; none where the votes are offered | the verdict, the number, what is left on each node, until when a lease is valid |
//! | write-back | the number, to which a node raises its counter | the verdict, where the votes have won |
//!
//! ```text
//!                        ┌──────────── the node refuses: contended ───────────┐
//!                        │                                                    ▼
//!  ask ─► First ─────────┴─ it answers otherwise, or is overdue ─┐         Decided
//!     └───────────────────────────────────────────────────────► Voting ────►  ▲
//!                                                                │ verdict    │
//!                        won, and too few have drawn the number  ▼            │
//!                                             Unwritten ─► WritingBack ───────┘ verdict
//! ```
//!
//! From every state, [`Attempt::give_up`] leads to `GivenUp`.
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | the node that is asked first refuses | The verdict is *contended*, and no other node is asked. |
//! | it grants, fails, or is overdue | The other nodes are to be asked. |
//! | the votes decide | Won, with a number that a quorum has drawn, or without one; or not won. If too few have drawn it, the next number is to be written back. |
//! | the write-back decides | That is the verdict. |
//! | a vote comes [without a request](Attempt::handle_offer) | Counted in the round of votes, or to be given back. |
//! | a vote comes after the verdict | Changes what is left on its node. |
//! | a response to the write-back comes after the verdict | Changes nothing. |
//! | the caller gives up | Nothing more is sent. What the votes have left is to be taken back, by an [`Undo`](super::Undo). |
//!
//! # Invariants
//!
//! - The other nodes are asked only once the first one has not refused: a lock that others hold costs one request.
//! - A lease counts from before its votes were asked for, with or without a write-back (I-7); so does what is in time
//!   (I-3, F-8).
//! - A number is handed out only if a quorum carries it (F-3, F-5).
//! - A write-back stores no key, so what it left needs no taking back: the votes say where a key may be.
//! - A node is in flight only from when its request was handed out: see [`Attempt::give_up`].

use std::sync::Arc;
use std::time::Duration;

use super::{Address, Asked, Deployment, Expect, Heard, KeyStates, LEAST_PATIENCE, Machine, NodeSet};
use super::{Number, Question, Round};
use crate::node::{NodeError, Request, Response, SharedRequest};
use crate::votes::VoteReport;
use crate::{Claim, FenceHint, FencingToken, KeyState, Moment, Verdict};
use offered::Offer;

mod offered;

pub use offered::Offered;

/// What an attempt asks for.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "the engine fills it in")]
pub struct Wanted {
    /// The claim to store.
    pub claim: Arc<Claim>,
    /// For how long. Offered votes last for this long at most.
    pub ttl: Duration,
    /// How the nodes draw its number; `None` if fencing is off.
    pub fence_hint: Option<FenceHint>,
}

/// One attempt to acquire a lock, or the round that passes it on.
#[derive(Clone, Debug)]
pub struct Attempt {
    claim: Arc<Claim>,
    votes: Round,
    /// Nearly never needed.
    write_back: Option<Box<Round>>,
    stage: Stage,
    /// The request of the latest round, until all nodes have it.
    request: Option<SharedRequest>,
    /// To which nodes it is still to be sent.
    unsent: NodeSet,
    /// If the votes are offered.
    offer: Option<Offer>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Waits for one node, and no longer than until it is overdue.
    First {
        node: usize,
        overdue: Moment,
    },
    /// Waits for the votes of all nodes.
    Voting,
    /// The votes have won, and this number is to be written back.
    Unwritten(FencingToken),
    /// It is being written back.
    WritingBack(FencingToken),
    Decided(Verdict, Option<FencingToken>),
    /// These nodes were never asked for their votes.
    GivenUp(NodeSet),
}

impl Attempt {
    /// Asks for the votes: of the node `first` before all others, or of all nodes.
    pub fn ask(nodes: &impl Deployment, now: Moment, wanted: Wanted, first: Option<usize>) -> Attempt {
        let Wanted { claim, ttl, fence_hint } = wanted;
        let request = Request::Acquire { claim: claim.clone(), ttl, fence_hint };
        let question = Question::by(Some(&request), expect(fence_hint), ttl);
        let mut attempt = Attempt::send(nodes, now, claim, question, request, first.is_some());
        if let Some(node) = first {
            let overdue = now + nodes.overdue_after(node, LEAST_PATIENCE, ttl);
            attempt.stage = Stage::First { node, overdue };
            attempt.unsent = NodeSet::of(node);
        }
        attempt
    }

    /// Passes a lock on: replaces the claim `from` by the one that is wanted.
    pub fn pass_on(nodes: &impl Deployment, now: Moment, wanted: Wanted, from: Arc<Claim>) -> Attempt {
        let Wanted { claim, ttl, fence_hint } = wanted;
        let request = Request::Transfer { from, to: claim.clone(), ttl, fence_hint };
        let question = Question::by(Some(&request), expect(fence_hint), ttl);
        Attempt::send(nodes, now, claim, question, request, false)
    }

    fn send(
        nodes: &impl Deployment,
        now: Moment,
        claim: Arc<Claim>,
        question: Question,
        request: Request,
        is_later: bool,
    ) -> Attempt {
        let asked = if is_later { Asked::Later } else { Asked::Now };
        let mut attempt = Attempt::new(claim, Round::new(nodes, question, now, |_| asked));
        attempt.request = Some(request.into());
        attempt.unsent = attempt.all_nodes();
        attempt
    }

    fn new(claim: Arc<Claim>, votes: Round) -> Attempt {
        let (stage, unsent) = (Stage::Voting, NodeSet::default());
        Attempt { claim, votes, write_back: None, stage, request: None, unsent, offer: None }
    }

    fn all_nodes(&self) -> NodeSet {
        (0..self.votes.nodes()).collect()
    }

    /// Returns the verdict, if it is certain at `now`. Otherwise there may be something to [send](Attempt::has_unsent).
    pub fn decide(&mut self, nodes: &impl Deployment, now: Moment) -> Option<Verdict> {
        if self.has_unsent() {
            return None;
        }
        match self.stage {
            Stage::First { node, overdue } => {
                let refuses = self.votes.refuses(nodes, node, now);
                if refuses.or((now >= overdue).then_some(false))? {
                    return Some(self.conclude(Verdict::Contended, None));
                }
                self.stage = Stage::Voting;
                self.unsent = self.all_nodes();
                self.unsent.remove(node);
                if self.has_unsent() { None } else { self.count(nodes, now) }
            }
            Stage::Voting => self.count(nodes, now),
            Stage::WritingBack(number) => {
                let verdict = self.write_back.as_mut()?.decide(nodes, now)?;
                Some(self.conclude(verdict, Some(number)))
            }
            Stage::Decided(verdict, _) => Some(verdict),
            Stage::Unwritten(_) | Stage::GivenUp(_) => None,
        }
    }

    fn count(&mut self, nodes: &impl Deployment, now: Moment) -> Option<Verdict> {
        let verdict = self.votes.decide(nodes, now)?;
        match self.votes.number(nodes, verdict) {
            Number::Drawn(number) => Some(self.conclude(verdict, number)),
            Number::WriteBack(number) => {
                self.stage = Stage::Unwritten(number);
                None
            }
        }
    }

    fn conclude(&mut self, verdict: Verdict, number: Option<FencingToken>) -> Verdict {
        self.stage = Stage::Decided(verdict, number);
        self.request = None;
        verdict
    }

    /// Whether a request is to be sent, without which there is no verdict.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.unwritten().is_some()
    }

    /// Returns the number whose write-back is to be sent.
    #[must_use]
    pub fn unwritten(&self) -> Option<FencingToken> {
        if let Stage::Unwritten(number) = self.stage { Some(number) } else { None }
    }

    fn begin_write_back(&mut self, nodes: &impl Deployment, fencing_token: FencingToken, now: Moment) {
        let question = Question { expect: Expect::Hold, takes_free: false, ttl: self.votes.ttl() };
        self.write_back = Some(Box::new(Round::new(nodes, question, now, |_| Asked::Now)));
        self.request = Some(Request::WriteBack { claim: self.claim.clone(), fencing_token }.into());
        self.unsent = self.all_nodes();
        self.stage = Stage::WritingBack(fencing_token);
    }

    /// Sends nothing more, and returns where the key may be.
    pub fn give_up(&mut self) -> KeyStates {
        let states = self.votes.key_states();
        let unsent = if let Stage::GivenUp(unsent) = self.stage {
            unsent
        } else if self.write_back.is_some() {
            // They have cast their votes, whether or not the number was sent to them.
            NodeSet::default()
        } else {
            self.unsent
        };
        self.stage = Stage::GivenUp(unsent);
        self.unsent = NodeSet::default();
        self.request = None;
        let state = |node| if unsent.contains(node) { KeyState::Without } else { states.get(node) };
        if unsent.is_empty() { states } else { KeyStates::of((0..self.votes.nodes()).map(state)) }
    }

    /// Returns the claim that it is to store.
    #[must_use]
    pub fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// Returns the round of the write-back, once that is sent.
    #[must_use]
    pub fn write_back(&self) -> Option<&Round> {
        self.write_back.as_deref()
    }

    /// Returns the number of rounds so far.
    #[must_use]
    pub fn rounds(&self) -> usize {
        1 + usize::from(self.write_back.is_some())
    }

    /// Returns the fencing token, also while it is being written back; `None` if fencing is off, or the votes have not won.
    #[must_use]
    pub fn number(&self) -> Option<FencingToken> {
        match self.stage {
            Stage::Unwritten(number) | Stage::WritingBack(number) => Some(number),
            Stage::Decided(_, number) => number,
            Stage::First { .. } | Stage::Voting | Stage::GivenUp(_) => None,
        }
    }
}

/// The votes that a round expects which may draw a fencing token.
fn expect(fence_hint: Option<FenceHint>) -> Expect {
    fence_hint.map_or(Expect::Hold, |_| Expect::Number)
}

impl Machine for Attempt {
    /// The votes: a lease counts from them, and they say whether the verdict is [in time](Round::is_in_time).
    fn round(&self) -> &Round {
        &self.votes
    }

    fn round_mut(&mut self) -> &mut Round {
        &mut self.votes
    }

    fn deciding(&self) -> &Round {
        match (&self.write_back, self.stage) {
            (Some(write_back), Stage::WritingBack(_)) => write_back,
            _ => &self.votes,
        }
    }

    fn asked_at(&self, index: usize) -> Option<Moment> {
        let Address { round, node } = Address::of(index, self.votes.nodes());
        let round = if round == 0 { Some(&self.votes) } else { self.write_back() };
        round?.asked_at(node)
    }

    fn handle_response(
        &mut self,
        nodes: &impl Deployment,
        index: usize,
        result: Result<Response, NodeError>,
        now: Moment,
    ) -> Heard {
        let Address { round, node } = Address::of(index, self.votes.nodes());
        let decides = (round > 0) == matches!(self.stage, Stage::WritingBack(_));
        let is_first = matches!(self.stage, Stage::First { .. });
        let asked = match self.write_back.as_deref_mut() {
            Some(second) if round > 0 => second,
            _ => &mut self.votes,
        };
        let heard = asked.handle_response(nodes, node, result, now);
        Heard { is_news: is_first || (heard.is_news && decides), ..heard }
    }

    fn poll_request(&mut self, nodes: &impl Deployment, now: Moment) -> Option<(usize, SharedRequest)> {
        if let Some(number) = self.unwritten() {
            self.begin_write_back(nodes, number, now);
        }
        let count = self.votes.nodes();
        let node = (0..count).find(|node| self.unsent.contains(*node))?;
        self.unsent.remove(node);
        if self.votes.is_unasked(node) {
            self.votes.ask(nodes, node, now);
        }
        let is_last = self.unsent.is_empty() && !matches!(self.stage, Stage::First { .. });
        let request = if is_last { self.request.take() } else { self.request.clone() };
        let round = usize::from(self.write_back.is_some());
        Some((Address { round, node }.index(count), request?))
    }

    fn poll_silence(&self, now: Moment) -> Option<Moment> {
        let overdue = if let Stage::First { overdue, .. } = self.stage { Some(overdue) } else { None };
        overdue.filter(|overdue| *overdue > now).into_iter().chain(self.deciding().poll_timeout(now)).min()
    }

    fn is_settled(&self) -> bool {
        self.votes.all_responded()
    }

    fn report(&self, nodes: &impl Deployment, now: Moment) -> VoteReport {
        self.write_back().unwrap_or(&self.votes).report(nodes, now)
    }
}

#[cfg(test)]
mod tests;
