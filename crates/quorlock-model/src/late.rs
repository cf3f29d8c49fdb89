//! Requests that come late: what is given back stays free.
//!
//! One client and one node, since a key is stranded at one node by itself: a vote, some renewals, and then a
//! release, or a transfer to the next holder and its release. Over one connection everything is carried out
//! in the order in which it was sent. A connection may end at any time. What is on its way over it then may
//! be carried out at any later time, in any order, or never; the client learns nothing of it.
//!
//! How the node stands to each claim is told by the library's [`Standing`]. Keys expire at any time. A
//! tombstone outlives what it is to stop: it is kept for the longest TTL, and later than that nothing comes.

pub(crate) mod cases;
mod rules;

use std::fmt;

use quorlock_protocol::Standing;
use stateright::{Model, Property, Representative};

/// Where the client has nothing left to do, the node has nothing of its claims, and never will.
pub(crate) const FREE: &str = "what was given back stays free";
/// A claim may be given back.
pub(crate) const GIVEN_BACK: &str = "the lock may be given back";
/// And the rules are put to the test.
pub(crate) const LATE: &str = "requests may still come when all is given back";

/// The rules: those of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    /// As the library does it.
    Quorlock,
    /// What is unknown is released, and leaves no tombstone (I-5, I-40).
    OnlyReleased,
    /// What was unknown of a node is forgotten once it has confirmed a later request (I-40).
    Forgotten,
    /// A transfer leaves nothing behind where it was granted (I-40).
    TransferSettles,
    /// A vote is given without a look for the tombstone in the same step (I-41). To look before makes no
    /// difference: it is not there yet.
    NoLook,
}

/// What a server does when a client comes back to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Server {
    /// Nothing: what is on its way over earlier connections is carried out when it comes.
    Patient,
    /// It ends the earlier connections first, as it was asked to.
    EndsEarlier,
}

/// The model.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    /// The rules.
    pub(crate) scheme: Scheme,
    /// What the server does.
    pub(crate) server: Server,
    /// How many renewals are sent.
    pub(crate) renewals: u8,
    /// How often the connection ends.
    pub(crate) breaks: u8,
}

/// Whose claim it is: of the one that acquires, or of the one that it is passed on to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Who {
    /// Acquires.
    First,
    /// Comes next.
    Next,
}

/// What is asked of the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Request {
    /// To store the token if the key is free.
    Vote,
    /// To prolong the key, or to store it anew.
    Renew,
    /// To replace the first one's token by the next one's.
    Transfer,
    /// To delete the key.
    Release(Who),
    /// The same, and to leave a tombstone.
    Cancel(Who),
}

/// How far the client has come with a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Claim {
    /// How the node stood to it after all rounds but the latest.
    before: Standing,
    /// How it stands after the latest.
    latest: Standing,
    /// Whether it is held, is being given back, or is over.
    phase: Phase,
    /// Whether there is a tombstone for it.
    tomb: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Phase {
    /// It has sent nothing.
    Idle,
    /// It has sent something, and may send more.
    Open,
    /// The transfer to the next one is not answered yet.
    Replaced,
    /// It is to be cancelled, over a connection that is there.
    ToCancel,
    /// Its release, or its cancellation, is not answered yet.
    Clearing,
    /// There is nothing left to do.
    Done,
}

/// What is where.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    claims: [Claim; 2],
    /// Whose token is stored at the node.
    key: Option<Who>,
    /// What is on its way over the connection, in its order. None while there is no connection.
    line: Option<Vec<Request>>,
    /// What is on its way over connections that have ended, in no order.
    late: Vec<Request>,
    renewals: u8,
    breaks: u8,
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The client sends this.
    Send(Request),
    /// The client gives the lock back, or gives up.
    GiveBack(Who),
    /// The next request of the connection is carried out, and its answer is heard.
    Arrive,
    /// The connection ends: after the next request was carried out, or before.
    Break {
        /// Which, in number: none or one.
        carried_out: usize,
    },
    /// There is a new connection.
    Connect,
    /// A request of a connection that has ended is carried out.
    ArriveLate(Request),
    /// The key expires.
    Expire,
}

impl Model for Late {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let without = Standing::Without;
        let claim = Claim { before: without, latest: without, phase: Phase::Idle, tomb: false };
        let line = Some(Vec::new());
        vec![State { claims: [claim; 2], key: None, line, late: Vec::new(), renewals: 0, breaks: 0 }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.possible(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        self.after(state, step)
    }

    fn properties(&self) -> Vec<Property<Late>> {
        let mut properties = vec![
            Property::<Late>::always(FREE, |_, state| !state.key.is_some_and(|who| state.is_over(who))),
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
            Step::GiveBack(who) => format!("{who} gives up, or gives the lock back"),
            Step::Arrive => "the next request is carried out and its answer is heard".to_owned(),
            Step::Break { carried_out: 0 } => "the connection ends".to_owned(),
            Step::Break { .. } => {
                "the next request is carried out, and the connection ends before its answer".to_owned()
            }
            Step::Connect => "the client connects again".to_owned(),
            Step::ArriveLate(late) => format!("{} comes late and is carried out", request(late)),
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
        f.write_str("one client, one node, a connection, and nothing was asked")
    }
}
