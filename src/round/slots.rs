//! What each node was asked in a round, and has said.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::Aim;
use crate::lease::LeaseState;
use crate::node::{Answer, NodeError, Question, Vote};
use crate::protocol::{Moment, Tally};
use crate::standing::{Standing, Standings};

/// What each node was asked and has said.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) nodes: Vec<Slot>,
    /// Whether two answers came from one server process.
    pub(super) twins: bool,
    /// Whether an answer has decided the round.
    pub(super) decided: bool,
    /// Nobody asks any more who has said what. Whose lease it is learns how each node stands.
    pub(super) heir: Option<Arc<LeaseState>>,
    /// What is left of the answers once the round is both retired and complete: a lease that is held
    /// for hours needs to know no more than how each node stands.
    pub(super) digest: Option<(Tally, Standings)>,
}

impl Slots {
    /// The other nodes whose answer came from the same server process as this `answer` of the node
    /// at `index`.
    pub(super) fn same_process(&self, index: usize, answer: &Answer) -> impl Iterator<Item = usize> {
        let same = move |(other, slot): (usize, &Slot)| match &slot.state {
            State::Answered { result: Ok(theirs), .. } => {
                (other != index && theirs.instance.id == answer.instance.id).then_some(other)
            }
            State::Answered { result: Err(_), .. }
            | State::Due(_)
            | State::Pending
            | State::Unasked
            | State::Skipped => None,
        };
        self.nodes.iter().enumerate().filter_map(same)
    }

    /// How each node stands.
    pub(super) fn standings(&self, aim: Aim) -> Standings {
        if let Some((_, standings)) = self.digest {
            return standings;
        }
        let standing = |slot: &Slot| match &slot.state {
            State::Due(_) | State::Pending => Standing::OnItsWay,
            State::Answered { result: Err(error), .. } if error.may_have_acted() => Standing::Unknown,
            State::Answered { result: Ok(answer), .. } => match answer.vote {
                Vote::Granted | Vote::Wanted | Vote::Restored if matches!(aim, Aim::Hold | Aim::Draw) => {
                    Standing::Holds
                }
                Vote::Granted
                | Vote::Wanted
                | Vote::Restored
                | Vote::Held(_)
                | Vote::Behind
                | Vote::Ahead
                | Vote::Free => Standing::Without,
            },
            State::Answered { result: Err(_), .. } | State::Skipped | State::Unasked => Standing::Without,
        };
        Standings::of(self.nodes.iter().map(standing))
    }

    /// Keeps what is left of a round that is retired, if each node has answered that was asked, and
    /// returns what is to be handed over by somebody who does not hold the lock.
    pub(super) fn digest(&mut self, tally: Tally, aim: Aim) -> Option<Estate> {
        let complete = |slot: &Slot| matches!(slot.state, State::Answered { .. } | State::Skipped);
        if self.heir.is_none() || self.digest.is_some() || !self.nodes.iter().all(complete) {
            return None;
        }
        let heir = self.heir.take()?;
        let standings = self.standings(aim);
        self.digest = Some((tally, standings));
        Some(Estate { heir, standings, _answers: mem::take(&mut self.nodes) })
    }

    /// Whether some nodes are to be asked only when others have answered.
    pub(super) fn is_staged(&self) -> bool {
        self.nodes.iter().any(|slot| matches!(slot.state, State::Unasked))
    }
}

/// What a complete round leaves, and to whom.
pub(super) struct Estate {
    pub(super) heir: Arc<LeaseState>,
    pub(super) standings: Standings,
    /// Of no use any more.
    pub(super) _answers: Vec<Slot>,
}

#[derive(Debug)]
pub(super) struct Slot {
    /// Until when the round waits for this node.
    pub(super) limit: Moment,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    /// Not to be asked.
    Skipped,
    /// Not asked yet.
    Unasked,
    /// To be asked this right now.
    Due(Question),
    Pending,
    Answered {
        result: Result<Answer, NodeError>,
        took: Duration,
    },
}

impl State {
    /// The question, if it is to be asked now.
    pub(super) fn take_due(&mut self) -> Option<Question> {
        let due = matches!(self, State::Due(_)).then(|| mem::replace(self, State::Pending))?;
        if let State::Due(question) = due { Some(question) } else { None }
    }
}
