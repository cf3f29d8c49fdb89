//! The cases of semaphores.

use super::{Permits, Scheme};
use crate::case::{Case, holds, violated};
use crate::explore::{hunt, prove};

/// Returns all cases.
pub(crate) fn all() -> Vec<Case> {
    vec![
        holds("slots_admit_no_third_to_two_permits_on_five_nodes", |_| {
            prove(Permits::<5, 3> { scheme: Scheme::Slots, limits: [2; 3] }, 1)
        }),
        violated("nodes_that_count_admit_a_third_to_two_permits", |_| {
            hunt(&Permits::<5, 3> { scheme: Scheme::PerNode, limits: [2; 3] })
        }),
        holds("clients_that_disagree_about_the_limit_never_hold_permits_together", |_| {
            prove(Permits::<3, 3> { scheme: Scheme::Slots, limits: [1, 2, 2] }, 1)
        }),
        violated("limits_that_are_not_compared_admit_too_many", |_| {
            hunt(&Permits::<3, 3> { scheme: Scheme::AnyLimit, limits: [1, 2, 2] })
        }),
    ]
}
