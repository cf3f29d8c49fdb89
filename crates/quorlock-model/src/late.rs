//! Late requests: a released lock stays free.
//!
//! One client and one node, because each node strands a key independently: a vote, some renewals, and then a
//! release, or a transfer to the next holder and its release. Requests on one connection are executed in the
//! order in which they were sent. A connection may end at any time. Its requests in flight may then be
//! executed at any later time, in any order, or never; the client learns nothing of it.
//!
//! The library's [`KeyState`] tracks the node's state for each claim. Keys expire at any time. A tombstone
//! outlives the requests it should stop: it is kept for the longest TTL, and nothing arrives later.

mod rules;

use std::fmt;

use quorlock_protocol::KeyState;
use stateright::{Model, Property, Representative};

use crate::record::Kept;

/// When the client has nothing left to do, the node has no key of its claims, and never will again.
pub(crate) const FREE: &str = "a released lock stays free";
pub(crate) const GIVEN_BACK: &str = "the lock may be released";
pub(crate) const LATE: &str = "requests may still arrive after every release";

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// A claim in an unknown state is released without a tombstone (I-5, I-40).
    OnlyReleased,
    /// An unknown state is forgotten once the node has confirmed a later request (I-40).
    Forgotten,
    /// A granted transfer leaves nothing to clean up (I-40).
    TransferSettles,
    /// A vote does not check for the tombstone in the same step (I-41). Checking earlier makes no
    /// difference: it is not there yet.
    NoLook,
}

/// What a server does when a client reconnects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Server {
    /// Nothing: requests in flight on earlier connections are executed when they arrive.
    Patient,
    /// It ends the earlier connections first, at the client's request.
    EndsEarlier,
}

#[derive(Clone, Debug)]
pub(crate) struct Late {
    pub(crate) scheme: Scheme,
    pub(crate) server: Server,
    /// The number of renewals.
    pub(crate) renewals: u8,
    /// How often the connection ends.
    pub(crate) breaks: u8,
}

/// The holder of a claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Who {
    /// The one that acquires the lock.
    First,
    /// The one it is passed on to.
    Next,
}

const BOTH: [Who; 2] = [Who::First, Who::Next];

/// A request to the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Request {
    /// Stores the token if the key is free.
    Vote,
    /// Extends the key, or stores it again.
    Renew,
    /// Replaces the first holder's token by the next one's.
    Transfer,
    /// Deletes the key.
    Release(Who),
    /// Deletes the key and leaves a tombstone.
    Cancel(Who),
}

/// The client's state of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Claim {
    /// The node's state after all rounds but the latest.
    before: KeyState,
    /// The node's state after the latest round.
    latest: KeyState,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Phase {
    /// No request was sent.
    Idle,
    /// Requests were sent, and more may follow.
    Open,
    /// The transfer to the next holder is not answered yet.
    Replaced,
    /// It is to be cancelled once connected.
    ToCancel,
    /// Its release or cancellation is not answered yet.
    Clearing,
    /// Nothing is left to do.
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    claims: [Claim; 2],
    /// What the node keeps of the lock.
    kept: Kept,
    /// The requests in flight on the connection, in order; `None` while disconnected.
    line: Option<Vec<Request>>,
    /// The requests in flight on connections that have ended, in no order.
    late: Vec<Request>,
    renewals: u8,
    breaks: u8,
}

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The client sends a request.
    Send(Request),
    /// The client releases the lock, or gives up.
    GiveBack(Who),
    /// The next request is executed, and its answer arrives.
    Arrive,
    /// The connection ends, after executing the next request or before.
    Break {
        /// The number of executed requests: 0 or 1.
        carried_out: usize,
    },
    /// The client reconnects.
    Connect,
    /// A request of a connection that has ended is executed.
    ArriveLate(Request),
    /// The key expires.
    Expire,
}

impl Model for Late {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let without = KeyState::Without;
        let claim = Claim { before: without, latest: without, phase: Phase::Idle };
        let line = Some(Vec::new());
        vec![State {
            claims: [claim; 2],
            kept: Kept::nothing(),
            line,
            late: Vec::new(),
            renewals: 0,
            breaks: 0,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.possible(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        self.after(state, step)
    }

    fn properties(&self) -> Vec<Property<Late>> {
        let mut properties = vec![
            Property::<Late>::always(FREE, |_, state| {
                !BOTH.iter().any(|who| state.kept.is_of(*who as usize) && state.is_over(*who))
            }),
            Property::<Late>::sometimes(GIVEN_BACK, |_, state| {
                state.is_over(Who::First) && state.is_over(Who::Next)
            }),
        ];
        if self.server == Server::Patient {
            properties.push(Property::<Late>::sometimes(LATE, |_, state| {
                state.is_over(Who::First) && state.is_over(Who::Next) && state.late.contains(&Request::Renew)
            }));
        }
        properties
    }

    fn format_step(&self, _: &State, step: Step) -> Option<String> {
        let request = |request: Request| match request {
            Request::Vote => "the request for a vote".to_owned(),
            Request::Renew => "a renewal".to_owned(),
            Request::Transfer => "the transfer to the next holder".to_owned(),
            Request::Release(who) => format!("the release of {who}"),
            Request::Cancel(who) => format!("the cancellation of {who}"),
        };
        Some(match step {
            Step::Send(sent) => format!("the client sends {}", request(sent)),
            Step::GiveBack(who) => format!("{who} releases the lock, or gives up"),
            Step::Arrive => "the next request is executed and its answer arrives".to_owned(),
            Step::Break { carried_out: 0 } => "the connection ends".to_owned(),
            Step::Break { .. } => {
                "the next request is executed, and the connection ends before its answer".to_owned()
            }
            Step::Connect => "the client reconnects".to_owned(),
            Step::ArriveLate(late) => format!("{} arrives late and is executed", request(late)),
            Step::Expire => "the key expires".to_owned(),
        })
    }
}

impl State {
    fn claim(&self, who: Who) -> Claim {
        self.claims[who as usize]
    }

    fn is_over(&self, who: Who) -> bool {
        self.claim(who).phase == Phase::Done
    }
}

impl Representative for State {
    fn representative(&self) -> State {
        self.clone()
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Who::First { "the first" } else { "the next" })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one client, one node, a connection, and no request")
    }
}

cases! {
    holds prove a_released_lock_stays_free_whatever_arrives_late: model(Scheme::Quorlock, Server::Patient);
    holds prove a_server_that_ends_earlier_connections_needs_no_tombstones:
        model(Scheme::NoLook, Server::EndsEarlier);
    violated hunt an_unknown_claim_that_is_only_released_comes_back:
        model(Scheme::OnlyReleased, Server::Patient);
    violated hunt an_unknown_claim_forgotten_after_a_later_answer_comes_back:
        model(Scheme::Forgotten, Server::Patient);
    violated hunt an_unknown_claim_left_by_a_transfer_comes_back:
        model(Scheme::TransferSettles, Server::Patient);
    violated hunt a_vote_that_ignores_the_tombstone_comes_back: model(Scheme::NoLook, Server::Patient);
    nightly prove nightly_four_renewals_and_four_connections_that_end:
        Late { renewals: 4, breaks: 4, ..model(Scheme::Quorlock, Server::Patient) };
}

fn model(scheme: Scheme, server: Server) -> Late {
    Late { scheme, server, renewals: 2, breaks: 2 }
}
