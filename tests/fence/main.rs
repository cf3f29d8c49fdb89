//! The checks on the guarded side: in any interleaving, the tokens that a store accepts never decrease.
//! Next to each check is a test of what happens without it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod memory;
mod object;
mod postgres;
mod shared;
mod sqlite;

use quorlock::FencingToken;

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn goes_down(accepted: &[u64]) -> bool {
    !accepted.is_sorted()
}
