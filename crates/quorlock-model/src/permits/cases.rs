//! The cases of semaphores.

use super::{Permits, Scheme};

cases! {
    holds prove slots_admit_no_third_to_two_permits_on_five_nodes:
        Permits::<5, 3> { scheme: Scheme::Slots, limits: [2; 3] };
    violated hunt nodes_that_count_admit_a_third_to_two_permits:
        Permits::<5, 3> { scheme: Scheme::PerNode, limits: [2; 3] };
    holds prove clients_that_disagree_about_the_limit_never_hold_permits_together:
        Permits::<3, 3> { scheme: Scheme::Slots, limits: [1, 2, 2] };
    violated hunt limits_that_are_not_compared_admit_too_many:
        Permits::<3, 3> { scheme: Scheme::AnyLimit, limits: [1, 2, 2] };
}
