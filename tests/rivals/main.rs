//! What other lock libraries and tools were seen to get wrong, as promises of ours.
//!
//! `docs/defects.md` says which defect each test stands for. On nodes in memory with paused time;
//! what needs a real server is in `tests/real/rivals.rs`, what needs the program in the command
//! line's tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    reason = "a test fails by panicking"
)]

mod acquiring;
#[path = "../common/mod.rs"]
mod common;
mod configuring;
mod fencing;
mod losing;
mod nodes;
mod promises;
mod releasing;
mod renewing;
mod table;
mod tokens;
mod waiting;
mod way;
