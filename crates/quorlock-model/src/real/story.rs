//! Steps as sentences.

use quorlock_protocol::node::{Request, Vote};

use super::node::{What, client_of, what};
use super::steps::{Sent, Step};
use super::{Real, State};
use crate::names;

impl Real {
    pub(super) fn describe(&self, state: &State, step: Step) -> String {
        let who = names::name;
        let done = |node: usize, sent: &Sent| {
            let mut kept = state.nodes[node].as_ref().clone();
            let vote = kept.execute(self, &sent.request, state.now).vote;
            format!("{} {}", asked(&sent.request), answered(&vote))
        };
        let arrives = |link: usize| {
            let (next, node) = (state.links[link].requests.front(), link % self.nodes);
            let done = next.map_or_else(String::new, |sent| done(node, sent));
            format!("at node {node}, {done}")
        };
        let of = |link: usize| (who(link / self.nodes), link % self.nodes);
        match step {
            Step::Tick => "a tick passes".to_owned(),
            Step::Acquire(client) => format!("{} wants the lock", who(client)),
            Step::GiveUp(client) => format!("{}'s caller gives up", who(client)),
            Step::Release(client) => format!("{} releases the lock", who(client)),
            Step::Renew(client) => format!("{} sends a renewal", who(client)),
            Step::PassOn(client) => format!("{} passes the lock on to its next caller", who(client)),
            Step::Retain(client) => format!("{} leaves the lock taken", who(client)),
            Step::Due(client) => format!("the timer of {} fires", who(client)),
            Step::Arrive(link) => arrives(link),
            Step::Answer(link) => format!("{} receives an answer of node {}", of(link).0, of(link).1),
            Step::Lose(link, false) => {
                format!("the connection of {} to node {} is lost", of(link).0, of(link).1)
            }
            Step::Lose(link, true) => format!("{}; the connection is lost before the answer", arrives(link)),
            Step::ArriveLate(stray) => {
                let stray = &state.strays[stray];
                format!("late at node {}, {}", stray.node, done(stray.node, &stray.sent))
            }
            Step::Hear(note) => {
                format!("{} hears that it is its turn", who(client_of(state.notes[note].waiter)))
            }
            Step::Miss(note) => {
                format!("the message to {} is lost", who(client_of(state.notes[note].waiter)))
            }
            Step::Crash(client) => format!("{} crashes", who(client)),
            Step::Restart(node) => format!("node {node} restarts without its data"),
        }
    }
}

fn asked(request: &Request) -> String {
    let What { kind, claim, from, number, .. } = what(request);
    // A1 is the first claim of A.
    let of = |claim: u8| match claim % 16 {
        0 => names::name((claim / 16).into()).to_string(),
        no => format!("{}{no}", names::name((claim / 16).into())),
    };
    if claim == 0 && kind.starts_with("look") {
        return format!("a {kind}");
    }
    match number.filter(|_| kind == "number") {
        Some(number) => format!("the number {number} of {}", of(claim)),
        None if from > 0 => format!("the {kind} from {} to {}", of(from), of(claim)),
        None => format!("the {kind} of {}", of(claim)),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no other answer is given")]
fn answered(vote: &Vote) -> &'static str {
    match vote {
        Vote::Granted => "is granted",
        Vote::Restored => "stores the key again",
        Vote::Held(_) => "is refused",
        Vote::Free => "finds nothing",
        Vote::Queued(_) => "is put in the queue",
        Vote::Notified => "is granted, and the next is notified",
        Vote::FenceAhead => "finds a higher number",
        _ => unreachable!("{vote:?}"),
    }
}
