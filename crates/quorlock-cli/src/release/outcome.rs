//! The outcome of a release, node by node.

use std::sync::Arc;

use quorlock::{
    Token,
    node::{Expiry, Holding},
    protocol::printable,
    votes::{NodeVote, VoteOutcome, VoteReport},
};
use serde_json::{Value, json};

use crate::exit;
use crate::report::{json_line, row};
use crate::width;

/// The outcome of a release.
pub(super) struct Outcome {
    needed: usize,
    nodes: Vec<Node>,
    /// Whether the given token was found on no node, but another one was.
    mistaken: bool,
}

struct Node {
    name: Arc<str>,
    state: State,
}

enum State {
    /// These holders lost the lock on this node.
    Deleted(Vec<Token>),
    /// The node had nothing to delete.
    Nothing,
    /// The key has no expiry, so it is no lock; it was kept.
    Data,
    /// The node did not answer, or its answer does not count.
    Unknown(String),
}

impl Outcome {
    /// Returns the outcome of releasing `token`; `mistaken` if the lock is held with another one.
    pub(super) fn of_one(token: &Token, report: &VoteReport, mistaken: bool) -> Outcome {
        let mut outcome = Outcome { mistaken, ..Outcome::before(report) };
        outcome.add(token, report);
        outcome
    }

    /// Returns the outcome before anything is deleted.
    pub(super) fn before(report: &VoteReport) -> Outcome {
        let node = |vote: &NodeVote| Node { name: vote.node.clone(), state: State::before(&vote.outcome) };
        Outcome {
            needed: report.quorum().needed(),
            nodes: report.votes().iter().map(node).collect(),
            mistaken: false,
        }
    }

    /// Adds the release of `token`.
    pub(super) fn add(&mut self, token: &Token, report: &VoteReport) {
        for (node, vote) in self.nodes.iter_mut().zip(report.votes()) {
            match (&vote.outcome, &mut node.state) {
                (VoteOutcome::Granted, State::Deleted(tokens)) => tokens.push(token.clone()),
                (VoteOutcome::Granted, state) => *state = State::Deleted(vec![token.clone()]),
                (VoteOutcome::Free, state @ State::Unknown(_)) => *state = State::Nothing,
                (VoteOutcome::Failed(error), state @ State::Nothing) => {
                    *state = State::Unknown(format!("{error:#}"));
                }
                _ => {}
            }
        }
    }

    /// Whether a quorum had nothing to release.
    pub(super) fn found_nothing(&self) -> bool {
        self.code() == exit::SUCCESS && self.count(|state| matches!(state, State::Deleted(_))) == 0
    }

    pub(super) fn code(&self) -> u8 {
        if self.count(|state| matches!(state, State::Deleted(_) | State::Nothing)) < self.needed {
            exit::NO_QUORUM
        } else if self.mistaken {
            exit::HELD
        } else {
            exit::SUCCESS
        }
    }

    pub(super) fn in_words(&self, resource: &str) -> String {
        let mut table = width::table(["node", "result"], &[], None);
        for node in &self.nodes {
            table.add_row(row([node.name.to_string(), node.state.in_words()]));
        }
        format!("{}\n\n`{}` {}\n", table.trim_fmt(), printable(resource), self.sentence())
    }

    fn sentence(&self) -> String {
        let deleted = self.count(|state| matches!(state, State::Deleted(_)));
        let unknown = self.count(|state| matches!(state, State::Unknown(_)));
        let of = self.nodes.len();
        let rest = if unknown == 0 {
            String::new()
        } else {
            format!(
                "; {unknown} did not vote, as the table says, and what is stored there expires with its TTL"
            )
        };
        match self.code() {
            exit::NO_QUORUM if unknown == 0 => {
                "has no expiry, so it is data and no lock: rename one of the two".to_owned()
            }
            exit::NO_QUORUM => format!("may still be held: released on {deleted} of {of} nodes{rest}"),
            exit::HELD => {
                format!(
                    "is not held with this token, nothing was changed; `quorlock status` shows the holder{rest}"
                )
            }
            _ if deleted == 0 => format!("is free, there was nothing to release{rest}"),
            _ => format!("was released on {deleted} of {of} nodes{rest}"),
        }
    }

    pub(super) fn in_json(&self, resource: &str) -> String {
        let state = match self.code() {
            exit::NO_QUORUM => "unknown",
            exit::HELD => "not_held",
            _ if self.count(|state| matches!(state, State::Deleted(_))) == 0 => "free",
            _ => "released",
        };
        let nodes: Vec<Value> = self.nodes.iter().map(Node::in_json).collect();
        json_line(&json!({ "resource": resource, "state": state, "quorum": self.needed, "nodes": nodes }))
    }

    fn count(&self, which: impl Fn(&State) -> bool) -> usize {
        self.nodes.iter().filter(|node| which(&node.state)).count()
    }
}

impl Node {
    fn in_json(&self) -> Value {
        let name = &*self.name;
        match &self.state {
            State::Deleted(tokens) => {
                let from: Vec<String> = tokens.iter().map(Token::to_string).collect();
                json!({ "node": name, "state": "deleted", "from": from })
            }
            State::Nothing => json!({ "node": name, "state": "nothing" }),
            State::Data => json!({ "node": name, "state": "data" }),
            State::Unknown(error) => json!({ "node": name, "state": "unknown", "error": error }),
        }
    }
}

impl State {
    fn before(reply: &VoteOutcome) -> State {
        match reply {
            VoteOutcome::Held(Holding { expiry: Expiry::Never, is_place: false, .. }) => State::Data,
            VoteOutcome::Failed(_)
            | VoteOutcome::Pending
            | VoteOutcome::Duplicate { .. }
            | VoteOutcome::Quarantined { .. } => State::Unknown(reply.to_string()),
            VoteOutcome::Held(_) | VoteOutcome::Granted | VoteOutcome::Free | VoteOutcome::Skipped | _ => {
                State::Nothing
            }
        }
    }

    fn in_words(&self) -> String {
        match self {
            State::Deleted(tokens) => {
                let from: Vec<String> = tokens.iter().map(Token::to_string).collect();
                format!("deleted: {}", from.join(", "))
            }
            State::Nothing => "nothing to delete".to_owned(),
            State::Data => "kept: data without an expiry is no lock".to_owned(),
            State::Unknown(error) => error.clone(),
        }
    }
}
