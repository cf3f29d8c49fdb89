//! What each check finds, and what it must not report.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and looks for one thing among many"
)]

mod exclusion;
mod files;
mod liveness;
mod loss;
mod mutex;
mod observers;
mod orphans;
mod perfect;
mod permits;
mod record;
mod register;
mod script;
mod second_judge;
mod several;
mod shared;
