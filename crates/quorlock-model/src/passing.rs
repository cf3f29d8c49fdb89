//! A lease passed on within its process, in one round, while another client wants the lock.

use stateright::Property;

use crate::contest::{self, Bounds, Contest, Phase, Rules, ask, end};
use crate::names::name;
use crate::record::{Ask, Kept, Reply};

pub(crate) const EXCLUSIVE: &str = "no two hold the lock at the same time";
pub(crate) const PASSED: &str = "a lease may be passed on";
pub(crate) const FOLLOWED: &str = "another may hold the lock after a lease was passed on";

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// A node stores the next token whatever key it has.
    AnyKey,
    /// One confirmation is enough, because the previous holder had a quorum.
    Minority,
    /// The next lease counts from its votes instead of from when they were requested.
    FromTheVote,
    /// The previous holder continues until shortly after the next lease has begun.
    Overlapping,
}

/// The first holds the lock and passes it to the second; the third wants it as well.
const PARTIES: usize = 3;
const FIRST: usize = 0;
const NEXT: usize = 1;
const THIRD: usize = 2;

#[derive(Clone, Debug)]
pub(crate) struct Passing {
    pub(crate) scheme: Scheme,
    /// In ticks.
    pub(crate) ttl: u8,
}

/// The first passes its lease on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pass;

type State<const N: usize> = contest::State<(), N, PARTIES, 1>;
type Model<const N: usize> = Contest<Passing, N, PARTIES, 1>;

impl Passing {
    /// Whether it relies on the lock.
    fn holds<const N: usize>(&self, state: &State<N>, party: usize) -> bool {
        // It does not know yet that its lease has ended.
        let overlaps = || {
            let next = &state.attempts[NEXT];
            let has_just_begun = next.lease().is_some_and(|_| next.clock == 0);
            self.scheme == Scheme::Overlapping && party == FIRST && has_just_begun
        };
        state.attempts[party].asserts() || overlaps()
    }
}

impl<const N: usize> Rules<N, PARTIES, 1> for Passing {
    type Own = ();
    type Step = Pass;

    fn bounds(&self) -> Bounds {
        Bounds { ttl: self.ttl, renewals: 0, losses: 0 }
    }

    fn vote(&self, [kept]: &mut [Kept; 1], _: usize, party: usize, (): &()) -> Reply {
        let any = kept.holder().filter(|_| self.scheme == Scheme::AnyKey);
        let transfer = Ask::transfer(any.unwrap_or(FIRST), NEXT, self.ttl);
        kept.ask(if party == NEXT { transfer } else { Ask::acquire(party, self.ttl) }).0
    }

    /// The leases end before they would be renewed.
    fn renewal(&self, _: &mut [Kept; 1], _: usize) -> Reply {
        Reply::Refused
    }

    fn release(&self, [kept]: &mut [Kept; 1], party: usize) {
        kept.ask(Ask::release(party));
    }

    /// The second is served by the holder in its process.
    fn may_begin(&self, party: usize) -> bool {
        party != NEXT
    }

    fn acquired_at(&self, state: &mut State<N>, party: usize) -> Option<u8> {
        let late = party == NEXT && self.scheme == Scheme::FromTheVote;
        Some(if late { state.attempts[party].clock } else { 0 })
    }

    fn one_is_enough(&self, party: usize, _: bool) -> bool {
        party == NEXT && self.scheme == Scheme::Minority
    }

    fn possible(&self, state: &State<N>, steps: &mut Vec<contest::Step<Pass>>) {
        if state.attempts[FIRST].asserts() && state.attempts[NEXT].phase == Phase::Idle {
            steps.push(contest::Step::Own(Pass));
        }
    }

    fn after(&self, state: &mut State<N>, Pass: Pass) {
        end(state, FIRST);
        ask(state, NEXT);
    }

    fn properties(&self) -> Vec<Property<Model<N>>> {
        vec![
            Property::<Model<N>>::always(EXCLUSIVE, |Contest(model), state| {
                (0..PARTIES).filter(|party| model.holds(state, *party)).count() < 2
            }),
            Property::<Model<N>>::sometimes(PASSED, |_, state| state.attempts[NEXT].asserts()),
            Property::<Model<N>>::sometimes(FOLLOWED, |_, state| {
                state.attempts[NEXT].has_held() && state.attempts[THIRD].asserts()
            }),
        ]
    }

    fn describe(Pass: Pass) -> String {
        format!("{} passes its lease on to {}", name(FIRST), name(NEXT))
    }

    fn weight(_: &Pass) -> u32 {
        3
    }
}

cases! {
    holds prove a_lease_that_is_passed_on_excludes_other_clients: model(Scheme::Quorlock);
    violated hunt a_transfer_that_overwrites_any_key_makes_two_holders: model(Scheme::AnyKey);
    violated hunt a_transfer_that_a_minority_confirms_makes_two_holders: model(Scheme::Minority);
    violated hunt a_passed_lease_that_counts_from_its_votes_makes_two_holders: model(Scheme::FromTheVote);
    violated hunt a_lease_that_goes_on_while_the_next_one_begins_makes_two_holders:
        model(Scheme::Overlapping);
}

fn model(scheme: Scheme) -> Contest<Passing, 3, 3, 1> {
    Contest(Passing { scheme, ttl: 2 })
}
