//! A correct lock: one resource, granted to one client after the other.

use proptest::prelude::*;
use quorlock_history::{Answer, Ending, History, Token, What};

use crate::script::{Script, at};

/// One client's turn. Times are milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// How long the lock is free before.
    gap: u64,
    /// How long the client has waited when it gets the lock.
    waited: u64,
    /// Whether an earlier attempt failed.
    tried: bool,
    renewals: u64,
    /// How long it holds after the last renewal, unless the deadline comes first.
    holds: u64,
    ending: Ending,
}

/// What a turn recorded.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) attempt: Token,
    pub(crate) invoked: u64,
    pub(crate) acquired: u64,
    pub(crate) deadline: u64,
    pub(crate) end: u64,
    pub(crate) ending: Ending,
    pub(crate) fencing_token: u64,
}

pub(crate) struct Played {
    pub(crate) history: History,
    pub(crate) grants: Vec<Grant>,
    /// When all of it is over.
    pub(crate) end: u64,
}

const VALIDITY: u64 = 900;

pub(crate) fn any_turns() -> impl Strategy<Value = Vec<Turn>> {
    let ending = prop_oneof![4 => Just(Ending::Released), 1 => Just(Ending::Lapsed), 1 => Just(Ending::Lost), 1 => Just(Ending::Crashed)];
    let turn = (0_u64..50, 1_u64..1_500, any::<bool>(), 0_u64..3, 20_u64..800, ending);
    let turn = turn.prop_map(|(gap, waited, tried, renewals, holds, ending)| Turn {
        gap,
        waited,
        tried,
        renewals,
        holds,
        ending,
    });
    prop::collection::vec(turn, 1..20).prop_map(|mut turns| {
        // A candidate for every mutation: a lapse, a release, and a successor that did not wait.
        for ending in [Ending::Lapsed, Ending::Released, Ending::Released] {
            turns.push(Turn { gap: 20, waited: 10, tried: false, renewals: 1, holds: 100, ending });
        }
        turns
    })
}

pub(crate) fn play(turns: &[Turn]) -> Played {
    let mut script = Script::default();
    script.cut_off("eu-1", 0, 50);
    let mut grants: Vec<Grant> = Vec::new();
    let mut free = 2_000;
    for (number, turn) in turns.iter().enumerate() {
        let grant = take_turn(&mut script, number, turn, free);
        if let Some(stale) = grants.last().filter(|last| last.ending == Ending::Lapsed) {
            let attempt = stale.attempt.as_str();
            script.wrote(grant.acquired + 15, attempt, stale.fencing_token, Answer::Refused);
        }
        free = if grant.ending == Ending::Crashed { grant.deadline } else { grant.end } + 1;
        grants.push(grant);
    }
    script.goes_on_until(free + 20);
    Played { history: script.history, grants, end: free + 20 }
}

fn take_turn(script: &mut Script, number: usize, turn: &Turn, free: u64) -> Grant {
    let client = format!("c{number}-");
    let attempt = format!("{client}1");
    let acquired = free + turn.gap;
    let invoked = acquired - turn.waited;
    let fencing_token = 10 * (number as u64 + 1);

    if turn.tried {
        let in_vain = format!("{client}0");
        script.invoked(invoked - 20, &in_vain).not_acquired(invoked - 10, &in_vain);
        script.key(invoked + 50, "eu-1", &in_vain, 850);
    }
    let mut deadline = acquired + VALIDITY;
    let what = What::Acquired {
        attempt: attempt.as_str().into(),
        deadline: at(deadline),
        fencing_token: Some(fencing_token),
    };
    script.invoked(invoked, &attempt).record(acquired, what);
    script.key(acquired + 5, "eu-1", &attempt, 950).counter(acquired + 5, "eu-1", fencing_token);
    script.wrote(acquired + 10, &attempt, fencing_token, Answer::Accepted);
    for renewal in 1..=turn.renewals {
        deadline += 300;
        script.renewed(acquired + 300 * renewal, &attempt, deadline);
    }
    let last = acquired + 300 * turn.renewals;
    script.record(last + 15, What::SeenValid { attempt: attempt.as_str().into() });
    let end = if turn.ending == Ending::Lapsed { deadline } else { last + turn.holds };
    match turn.ending {
        Ending::Released => {
            script.released(end, &attempt);
        }
        Ending::Crashed => {
            script.crashed(end, &client);
        }
        _ => {
            script.lost(end, &attempt);
        }
    }
    let (attempt, ending) = (attempt.into(), turn.ending);
    Grant { attempt, invoked, acquired, deadline, end, ending, fencing_token }
}
