//! A correct history passes; one broken on purpose is found by the right check.

use proptest::prelude::*;
use proptest::sample::Index;
use quorlock_history::{Answer, Ending, Event, Token, Violation, What, check};

use crate::perfect::{Grant, Played, any_turns, play};
use crate::script::{Script, at, expect};

/// Breaks a history at the chosen place, if one fits.
struct Mutation {
    name: &'static str,
    breaks: fn(&mut Played, Index) -> Option<()>,
    found: fn(&Violation) -> bool,
}

macro_rules! mutation {
    ($breaks:ident => $($found:pat),+) => {
        [$(Mutation {
            name: concat!(stringify!($breaks), " => ", stringify!($found)),
            breaks: $breaks,
            found: |violation| matches!(violation, $found),
        }),+].into_iter()
    };
}

fn all() -> impl Iterator<Item = Mutation> {
    mutation!(let_an_intruder_in => Violation::Overlap { .. }, Violation::NoOrder { .. })
        .chain(mutation!(forget_a_release => Violation::Overlap { .. }, Violation::NoOrder { .. }))
        .chain(mutation!(swap_two_tokens => Violation::TokenOrder { .. }, Violation::NoOrder { .. }))
        .chain(mutation!(repeat_a_token => Violation::TokenShared { .. }, Violation::NoOrder { .. }))
        .chain(mutation!(accept_a_stale_write => Violation::TokenFell { .. }))
        .chain(mutation!(refuse_the_holder => Violation::FencedWrongly { .. }))
        .chain(mutation!(report_loss_late => Violation::LossReportedLate { reported: Some(_), .. }))
        .chain(mutation!(omit_loss_report => Violation::LossReportedLate { reported: None, .. }))
        .chain(mutation!(renew_after_the_end => Violation::RenewedLate { .. }))
        .chain(mutation!(call_a_lost_lease_valid => Violation::ValidLate { .. }))
        .chain(mutation!(leave_a_key => Violation::Orphan { .. }))
        .chain(mutation!(leave_the_key_of_a_stranger => Violation::Stranger { .. }))
        .chain(mutation!(give_a_key_too_long => Violation::KeyTooLong { .. }))
        .chain(mutation!(count_back => Violation::CounterFell { .. }))
        .chain(mutation!(starve_a_client => Violation::Starved { .. }))
        .chain(mutation!(forget_how_it_began => Violation::Flawed { .. }))
}

proptest! {
    #[test]
    fn a_perfect_lock_breaks_no_promise(turns in any_turns()) {
        let report = check(&play(&turns).history, &expect());
        prop_assert!(report.is_clean(), "{report}");
    }

    #[test]
    fn larger_clock_errors_only_excuse_more(turns in any_turns(), epsilon in 0_u64..300) {
        let mut played = play(&turns);
        played.add(|script| { script.clocks(epsilon); });
        let report = check(&played.history, &expect());
        prop_assert!(report.is_clean(), "{report}");
    }

    #[test]
    fn every_broken_promise_is_found_by_the_right_check(turns in any_turns(), place in any::<Index>()) {
        for mutation in all() {
            let mut played = play(&turns);
            prop_assert!((mutation.breaks)(&mut played, place).is_some(), "{}: nothing fits", mutation.name);
            let report = check(&played.history, &expect());
            prop_assert!(report.violations.iter().any(mutation.found), "{}: {report}", mutation.name);
        }
    }
}

impl Played {
    fn add(&mut self, write: impl FnOnce(&mut Script)) {
        let mut script = Script { history: std::mem::take(&mut self.history) };
        write(&mut script);
        self.history = script.history;
    }

    fn edit(&mut self, edit: impl FnMut(Event) -> Option<Event>) {
        self.history = self.history.events().iter().cloned().filter_map(edit).collect();
    }

    /// Picks a fitting grant and its successor.
    fn pick(
        &self,
        place: Index,
        fits: impl Fn(&Grant, Option<&Grant>) -> bool,
    ) -> Option<(Grant, Option<Grant>)> {
        let next = self.grants.iter().skip(1).map(Some).chain([None]);
        let fitting: Vec<_> =
            self.grants.iter().zip(next).filter(|(grant, next)| fits(grant, *next)).collect();
        let (grant, next) = fitting.get(place.index(fitting.len().max(1)))?;
        Some(((*grant).clone(), next.cloned()))
    }

    fn give_token(&mut self, to: &Token, token: u64) {
        self.edit(|mut event| {
            match &mut event.what {
                What::Acquired { attempt, fencing_token, .. } if attempt == to => {
                    *fencing_token = Some(token);
                }
                What::Wrote { attempt, fencing_token, .. } if attempt == to => *fencing_token = token,
                _ => {}
            }
            Some(event)
        });
    }
}

fn let_an_intruder_in(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |_, _| true)?;
    let middle = u64::midpoint(grant.acquired, grant.end);
    played.add(|script| {
        script.invoked(middle - 2, "intruder1").acquired(middle - 1, "intruder1", middle + 500);
        script.released(middle + 1, "intruder1");
    });
    Some(())
}

fn forget_a_release(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |grant, next| {
        let next_certain = next.is_some_and(|next| next.acquired < grant.deadline);
        grant.ending == Ending::Released && next_certain
    })?;
    played.edit(|event| match &event.what {
        What::Releasing { attempt } | What::Released { attempt } if *attempt == grant.attempt => None,
        _ => Some(event),
    });
    Some(())
}

fn swap_two_tokens(played: &mut Played, place: Index) -> Option<()> {
    let (one, other) =
        played.pick(place, |grant, next| next.is_some_and(|next| grant.acquired < next.invoked))?;
    let other = other?;
    played.give_token(&one.attempt, other.fencing_token);
    played.give_token(&other.attempt, one.fencing_token);
    Some(())
}

fn repeat_a_token(played: &mut Played, place: Index) -> Option<()> {
    let (one, other) = played.pick(place, |_, next| next.is_some())?;
    played.give_token(&other?.attempt, one.fencing_token);
    Some(())
}

fn accept_a_stale_write(played: &mut Played, _: Index) -> Option<()> {
    let mut stale = None;
    played.edit(|mut event| {
        if let What::Wrote { answer, .. } = &mut event.what
            && *answer == Answer::Refused
        {
            (*answer, stale) = (Answer::Accepted, Some(()));
        }
        Some(event)
    });
    stale
}

fn refuse_the_holder(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |_, _| true)?;
    let (attempt, token) = (grant.attempt.as_str(), grant.fencing_token);
    played.add(|script| {
        script.wrote(grant.acquired + 12, attempt, token, Answer::Refused);
    });
    Some(())
}

fn report_loss_late(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |grant, _| grant.ending == Ending::Lapsed)?;
    played.edit(|mut event| {
        if matches!(&event.what, What::Lost { attempt, .. } if *attempt == grant.attempt) {
            event.at = at(grant.deadline + 1);
        }
        Some(event)
    });
    Some(())
}

fn omit_loss_report(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |grant, _| grant.ending == Ending::Lapsed)?;
    played.edit(|event| match &event.what {
        What::Lost { attempt, .. } if *attempt == grant.attempt => None,
        _ => Some(event),
    });
    Some(())
}

fn renew_after_the_end(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |_, _| true)?;
    let end = grant.deadline;
    played.add(|script| {
        script.renewed(end, grant.attempt.as_str(), end + 300);
    });
    Some(())
}

fn call_a_lost_lease_valid(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |grant, _| grant.ending == Ending::Lapsed)?;
    played.add(|script| {
        script.record(grant.deadline, What::SeenValid { attempt: grant.attempt.clone() });
    });
    Some(())
}

fn leave_a_key(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |_, _| true)?;
    let when = if grant.ending == Ending::Crashed { grant.end + 1_101 } else { grant.end + 111 };
    played.add(|script| {
        script.key(when, "eu-2", grant.attempt.as_str(), 10);
    });
    Some(())
}

fn leave_the_key_of_a_stranger(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |_, _| true)?;
    played.add(|script| {
        script.key(grant.acquired, "eu-2", "stranger", 10);
    });
    Some(())
}

fn give_a_key_too_long(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |_, _| true)?;
    played.add(|script| {
        script.key(grant.acquired, "eu-2", grant.attempt.as_str(), 1_001);
    });
    Some(())
}

fn count_back(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |_, _| true)?;
    let fallen = grant.fencing_token - 1;
    played.add(|script| {
        script.counter(grant.acquired + 6, "eu-1", fallen);
    });
    Some(())
}

fn starve_a_client(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |_, _| true)?;
    let due = grant.acquired.max(50) + 2_000;
    let end = played.end.max(due + 1);
    played.add(|script| {
        script.invoked(grant.acquired, "starved1").goes_on_until(end);
    });
    Some(())
}

fn forget_how_it_began(played: &mut Played, place: Index) -> Option<()> {
    let (grant, _) = played.pick(place, |_, _| true)?;
    played.edit(|event| match &event.what {
        What::Invoked { attempt, .. } if *attempt == grant.attempt => None,
        _ => Some(event),
    });
    Some(())
}
