//! The cases of retained locks.

use super::{Renewals, Retained, Scheme};

cases! {
    holds prove a_slot_that_was_confirmed_has_one_run: model(Scheme::Quorlock, 0);
    violated hunt a_host_that_releases_first_and_retains_then_lets_another_run_in_between:
        model(Scheme::ReleaseFirst, 0);
    violated hunt a_slot_that_a_minority_confirms_has_two_runs: model(Scheme::Minority, 0);
    violated hunt a_slot_that_is_confirmed_after_the_end_of_the_lease_has_two_runs:
        model(Scheme::AfterTheEnd, 0);
    violated hunt a_slot_that_is_kept_for_one_ttl_has_two_runs: model(Scheme::OneTtl, 0);
    violated hunt a_slot_that_only_a_quorum_has_is_run_again_when_one_node_forgets_it:
        model(Scheme::Quorlock, 1);
    holds prove a_lost_renewal_does_not_take_the_lock_again_after_the_slot: late(Scheme::Quorlock);
    violated hunt a_lost_renewal_that_is_not_cancelled_takes_the_lock_after_the_slot:
        late(Scheme::NotStopped);
    nightly prove nightly_a_lost_renewal_and_a_longer_slot:
        Retained { ttl: 2, slot: 3, ..late(Scheme::Quorlock) };
    violated hunt a_renewal_that_is_cancelled_before_the_slot_is_certain_lets_another_run:
        late(Scheme::StoppedFirst);
}

fn model(scheme: Scheme, forgets: u8) -> Retained<3> {
    Retained { scheme, ttl: 2, slot: 4, forgets, renewals: Renewals::None }
}

fn late(scheme: Scheme) -> Retained<3> {
    Retained { ttl: 1, slot: 2, renewals: Renewals::Lost, ..model(scheme, 0) }
}
