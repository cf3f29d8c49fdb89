//! The upper bound on the same servers and network: the same two commands to five servers, decided by
//! the third answer, and nothing else. No failures are counted, nothing is renewed or cleaned up: these
//! are not locks, but the baseline for them.

mod multiplexed;
mod raw;

pub use multiplexed::Multiplexed;
#[allow(unused_imports, reason = "used by one bench only")]
pub use raw::{Encoded, Raw};

/// The number of answers of five that decide.
const NEEDED: usize = 3;

/// Deletes the key if it holds the token.
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
