//! The checks on the guarded side: in any interleaving, the tokens that a store accepts never decrease.
//! Next to each check is a test of what happens without it.

mod memory;
mod object;
mod page;
mod shared;
mod sqlite;
mod story;

use quorlock::FencingToken;

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn goes_down(accepted: &[u64]) -> bool {
    !accepted.is_sorted()
}
