//! What the same servers and the same network can do at best: the same two commands to five
//! servers, the third answer decides, and nothing else. No quorum is counted for failures, nothing
//! is renewed, nothing is cleaned up; so these are no locks, but what locks are measured by.

mod multiplexed;
mod raw;

pub use multiplexed::Multiplexed;
#[allow(unused_imports, reason = "only one bench compares with it")]
pub use raw::{Encoded, Raw};

/// How many of five decide.
const NEEDED: usize = 3;

/// Deletes the key if it holds the token.
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
