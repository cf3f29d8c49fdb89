//! The check in Redis and Valkey, for data that lives there.
//!
//! Data and mark are fields of one hash, so that they expire, are evicted and are lost together and
//! never one without the other. When they are lost, the next write is a first one and any token will
//! do: guard what is kept, in a server that keeps it.
//!
//! This server is the guarded resource. It may be one of the lock's nodes, and usually is not.

/// Writes fields of a hash if the fencing token is not too old. For `EVAL` or `SCRIPT LOAD`, by any
/// client.
///
/// - `KEYS`: the hash.
/// - `ARGV`: the token, then name and value of each field to write. With none it shows the token, as
///   a holder that is about to read should.
/// - Returns the largest token seen, its own if it was accepted: give that to
///   [`check`](super::check).
///
/// The field `fencing_token` is the script's own. A token is less than 2^53, and so a number that Lua has
/// exactly.
///
/// # Examples
///
/// ```
/// # fn eval(_script: &str, _key: &str, _words: &[&str]) -> u64 { 34 }
/// use quorlock::{FencingToken, fence};
///
/// let write = |token: FencingToken, balance: &str| {
///     // EVAL script 1 account/7 TOKEN balance BALANCE
///     let newest = eval(fence::redis::SCRIPT, "account/7", &[&token.to_string(), "balance", balance]);
///     fence::check(FencingToken::new(newest), token)
/// };
/// assert!(write("34".parse()?, "150").is_ok());
/// assert!(write("33".parse()?, "70").is_err(), "it comes too late");
/// # Ok::<(), quorlock::protocol::FencingTokenError>(())
/// ```
pub const SCRIPT: &str = include_str!("write.lua");
