//! A correct lock: one resource, granted to one client after the other.

use proptest::prelude::*;
use quorlock_history::{Answer, Ending, History, What, check};

use crate::script::{Script, at, expect};

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

/// What a turn leaves to the next one.
struct Grant {
    attempt: String,
    /// When the lock is free again.
    free: u64,
    ending: Ending,
    fencing_token: u64,
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
    prop::collection::vec(turn, 1..20)
}

pub(crate) fn play(turns: &[Turn]) -> History {
    let mut script = Script::default();
    script.cut_off("eu-1", 0, 50);
    let mut last: Option<Grant> = None;
    for (number, turn) in turns.iter().enumerate() {
        let acquired = last.as_ref().map_or(2_000, |last| last.free) + turn.gap;
        let grant = take_turn(&mut script, number, turn, acquired);
        if let Some(stale) = last.filter(|last| last.ending == Ending::Lapsed) {
            script.wrote(acquired + 15, &stale.attempt, stale.fencing_token, Answer::Refused);
        }
        last = Some(grant);
    }
    script.goes_on_until(last.map_or(0, |last| last.free) + 20);
    script.history
}

fn take_turn(script: &mut Script, number: usize, turn: &Turn, acquired: u64) -> Grant {
    let client = format!("c{number}-");
    let attempt = format!("{client}1");
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
    let free = if turn.ending == Ending::Crashed { deadline } else { end } + 1;
    Grant { attempt, free, ending: turn.ending, fencing_token }
}

proptest! {
    #[test]
    fn a_perfect_lock_breaks_no_promise(turns in any_turns()) {
        let report = check(&play(&turns), &expect());
        prop_assert!(report.is_clean(), "{report}");
    }

    #[test]
    fn larger_clock_errors_only_excuse_more(turns in any_turns(), epsilon in 0_u64..300) {
        let mut script = Script { history: play(&turns) };
        script.clocks(epsilon);
        let report = script.report();
        prop_assert!(report.is_clean(), "{report}");
    }
}
