//! Other lock libraries, in several languages, and ours on the same real servers.
//!
//! A driver for each library in `drivers/` runs the orders of a test. `scripts/interop --build` builds
//! them; a library without a driver is skipped with a message. The results are in
//! `docs/interoperability.md`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod alarms;
mod cases;
mod driver;
mod library;
mod meeting;
mod oddities;
mod ours;
mod page;
mod redisson;

/// One module per library, with one test per case.
macro_rules! beside {
    ($($library:ident)*) => { $(
        mod $library {
            each_case! { $library:
                our_lock_keeps_theirs_out
                their_lock_keeps_ours_out_and_is_named
                holders_take_turns_and_never_meet
                their_release_wakes_our_waiter_by_a_push
                their_lock_expires_when_its_process_is_killed
                our_lock_expires_when_its_process_is_killed
                their_extension_is_seen_by_ours
                our_renewal_is_seen_by_theirs
                their_extension_follows_a_hold_of_ours
                their_late_release_and_extension_leave_our_lock_alone
                our_late_release_and_renewal_leave_their_lock_alone
                a_minority_of_nodes_is_down
            }
        }
    )* };
}

macro_rules! each_case {
    ($library:ident: $($case:ident)*) => { $(
        #[tokio::test(flavor = "multi_thread")]
        async fn $case() {
            if let Some(meeting) = crate::meeting::Meeting::with(crate::library::$library()).await {
                crate::cases::$case(meeting).await;
            }
        }
    )* };
}

beside! { redlock_py pottery aioredlock node_redlock sesamecare_redlock redsync rslock redlock_rs }
