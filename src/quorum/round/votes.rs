//! What the nodes have said in a round, one by one.

use std::time::Duration;

use super::responses::{Responses, Slot, State};
use super::{Expect, Round};
use crate::node::{Answer, NodeError, NodeErrorKind, Vote};
use crate::protocol::{Drawn, FencingToken, Moment};
use crate::quorum::ballot::{Ballot, Paper, Said};
use crate::runtime::clock::Clock;

impl Round {
    /// What the node at `index` has said and whether it counts; `None` while it still may answer.
    pub(super) fn said(&self, slots: &Responses, index: usize, now: Moment) -> Option<Said> {
        let slot = slots.nodes.get(index)?;
        let answer = match &slot.state {
            State::Skipped => return Some(Said::Skipped),
            State::Unasked => return None,
            State::Pending { .. } if now < slot.limit => return None,
            State::Pending { asked } => return Some(unanswered(slot.limit.since(*asked))),
            State::Answered { result: Err(error), .. } => return Some(Said::Failed(error.clone())),
            State::Answered { result: Ok(answer), .. } => answer,
        };
        if let Some(twin) = self.counts_instead(slots, index, answer) {
            return Some(Said::Duplicate { of: self.nodes.name(twin) });
        }
        Some(self.read(answer))
    }

    /// The node that counts for the server process that has given `answer`, if it is another one than that at
    /// `index`: one that has granted goes before one that has not, so that one which only calls itself by the
    /// name of another takes no vote away. One that had to store the key anew goes first of all: what the
    /// other has found there then is that.
    fn counts_instead(&self, slots: &Responses, index: usize, answer: &Answer) -> Option<usize> {
        let rank = |answer: &Answer| match self.read(answer) {
            Said::Restored => 0,
            Said::Granted => 1,
            Said::Held(_)
            | Said::Behind
            | Said::Ahead
            | Said::Free
            | Said::Quarantined { .. }
            | Said::Duplicate { .. }
            | Said::Pending
            | Said::Failed(_)
            | Said::Skipped => 2,
        };
        let mut twins = slots.twins(index, answer)?.peekable();
        twins.peek()?;
        let own = (rank(answer), index);
        twins
            .map(|(twin, theirs)| (rank(theirs), twin))
            .min()
            .filter(|first| *first < own)
            .map(|(_, twin)| twin)
    }

    /// What an answer means by itself.
    fn read(&self, answer: &Answer) -> Said {
        match (&answer.vote, self.aim) {
            (Vote::Granted, Expect::Draw) if answer.fencing_token.is_none() => Said::Failed(unnumbered()),
            (Vote::Granted | Vote::Wanted, Expect::Hold | Expect::Draw) => {
                // The age counts when the question was sent: what the node forgot before that, it
                // cannot know (rule I-12).
                let left = answer.instance.stands_aside(self.nodes.quarantine(), self.sent);
                if left.is_zero() { Said::Granted } else { Said::Quarantined { left } }
            }
            (_, Expect::LetGo) | (Vote::Granted | Vote::Wanted, Expect::Hear) => Said::Granted,
            (Vote::Restored, _) => Said::Restored,
            (Vote::Held(holding), _) => Said::Held((**holding).clone()),
            (Vote::Behind, _) => Said::Behind,
            (Vote::Ahead, _) => Said::Ahead,
            (Vote::Free, _) => Said::Free,
        }
    }

    /// What was drawn by the nodes whose votes count.
    pub(crate) fn drawn(&self) -> Option<Drawn> {
        if self.aim != Expect::Draw {
            return None;
        }
        let slots = self.slots();
        let number = |(index, slot): (usize, &Slot)| match &slot.state {
            State::Answered { result: Ok(answer), .. }
                if self.said(&slots, index, self.sent) == Some(Said::Granted) =>
            {
                answer.fencing_token
            }
            State::Answered { .. } | State::Pending { .. } | State::Unasked | State::Skipped => None,
        };
        Drawn::of(slots.nodes.iter().enumerate().filter_map(number))
    }

    /// The largest number that a node has spoken of.
    pub(crate) fn largest_number(&self) -> Option<FencingToken> {
        let number = |slot: &Slot| match &slot.state {
            State::Answered { result: Ok(answer), .. } => answer.fencing_token,
            State::Answered { result: Err(_), .. }
            | State::Pending { .. }
            | State::Unasked
            | State::Skipped => None,
        };
        self.slots().nodes.iter().filter_map(number).max()
    }

    /// Whether a node has said that somebody else wants the key.
    pub(crate) fn is_wanted(&self) -> bool {
        let wanted = |slot: &Slot| match &slot.state {
            State::Answered { result: Ok(answer), .. } => answer.vote == Vote::Wanted,
            State::Answered { result: Err(_), .. }
            | State::Pending { .. }
            | State::Unasked
            | State::Skipped => false,
        };
        self.slots().nodes.iter().any(wanted)
    }

    /// All answers so far, for people.
    pub(crate) fn ballot(&self) -> Ballot {
        let now = self.nodes.clock.now();
        let slots = self.slots();
        let paper = |(index, slot): (usize, &Slot)| {
            let said = match slot.state {
                State::Unasked => Said::Failed(NodeError::NotAsked),
                State::Skipped | State::Pending { .. } | State::Answered { .. } => {
                    self.said(&slots, index, now).unwrap_or(Said::Pending)
                }
            };
            let took = match slot.state {
                State::Answered { took, .. } => took,
                State::Pending { asked } => now.since(asked),
                State::Unasked | State::Skipped => now.since(self.sent),
            };
            let fencing_token = if let State::Answered { result: Ok(answer), .. } = &slot.state {
                answer.number_told(self.aim == Expect::Hear)
            } else {
                None
            };
            Paper { node: self.nodes.name(index), said, took, fencing_token }
        };
        Ballot::new(self.nodes.quorum, slots.nodes.iter().enumerate().map(paper).collect())
    }
}

fn unnumbered() -> NodeError {
    let reason = "it draws no fencing tokens; use a node that does, or switch fencing off for this lock";
    NodeError::Unfit { kind: NodeErrorKind::Unsupported, reason: reason.into() }
}

fn unanswered(waited: Duration) -> Said {
    Said::Failed(NodeError::Unanswered { waited })
}
