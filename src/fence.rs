//! What the guarded resource does with a fencing token.
//!
//! A lease can end while its holder is asleep, and a write that is on its way by then arrives all
//! the same. Only the resource that is written to can refuse it: it remembers the largest fencing
//! token that it has seen, and refuses every smaller one. This module has that check for the kinds
//! of store that people guard. None of it needs a lock, a node or a runtime.
//!
//! # The contract
//!
//! 1. Every write carries the [fencing token](crate::Lease::fencing_token) of the lease under which
//!    it was made.
//! 2. The store accepts it if the token is as large as the largest seen, or larger. As large: the
//!    same holder may write as often as it likes.
//! 3. The largest token is kept *with* the data and changed *in the same atomic step*. A check in
//!    the program, followed by a write, only makes the window smaller.
//! 4. **Who reads before writing shows its token before reading.** From then on whatever it has read
//!    cannot be changed by an earlier holder. A token that the store first meets with the write
//!    leaves room for a late write between the two, which is then overwritten unseen.
//! 5. Tokens of one lock are compared with each other, and with no others.
//!
//! # Which check
//!
//! | the resource | use |
//! |---|---|
//! | rows of one SQL table | a column `fencing_token` and a condition: [`sql`] |
//! | several tables, or rows that are deleted | the guard table, in the same transaction: [`sql::GUARD`] |
//! | a value in Redis | [`redis::SCRIPT`] |
//! | an object in a bucket | [`http::precondition`], with a conditional put |
//! | a service | the header [`http::HEADER`], and any of the others behind it |
//! | data in memory | [`Guarded`] |
//! | the entrance of a service | [`Gate`] |
//! | any of these, read under shared leases | two marks: [`shared`] |
//! | anything else | [`check`], inside whatever makes a step atomic there |
//!
//! [`guide::fencing`](crate::guide::fencing) says what the order of the numbers rests on, and what fencing cannot do.

mod gate;
mod guarded;
pub mod http;
pub mod redis;
pub mod shared;
pub mod sql;

pub use gate::Gate;
pub use guarded::Guarded;

use quorlock_protocol::FencingToken;

/// Accepts `token` if it is not smaller than the `newest` that the store has seen; `None` if it has
/// seen none.
///
/// This is the whole rule. It protects only if `newest` cannot change between the check and the
/// write: call it inside the transaction, the critical section or the script that writes, and store
/// the token there too.
///
/// # Errors
///
/// [`Stale`], when somebody has held the lock after the one who writes.
///
/// # Examples
///
/// ```
/// use quorlock::{FencingToken, fence};
///
/// let number = |number| FencingToken::new(number).expect("a number below 2^53");
/// assert!(fence::check(None, number(33)).is_ok()); // the first write
/// assert!(fence::check(Some(number(33)), number(33)).is_ok()); // the same holder again
/// assert!(fence::check(Some(number(33)), number(34)).is_ok()); // the next holder
///
/// let late = fence::check(Some(number(34)), number(33)).unwrap_err();
/// assert!(late.to_string().starts_with("fencing token 33 is stale: the store has seen 34"));
/// ```
pub fn check(newest: Option<FencingToken>, token: FencingToken) -> Result<(), Stale> {
    match newest {
        Some(newest) if newest > token => Err(Stale { token, newest: Some(newest) }),
        Some(_) | None => Ok(()),
    }
}

/// A write came too late: somebody has held the lock since.
///
/// Nothing was written. The work is to be done anew from reading on, under a new lease; repeating
/// the write with the same token cannot help.
///
/// # Examples
///
/// ```
/// use quorlock::{FencingToken, fence};
///
/// let gate = fence::Gate::new();
/// gate.admit(FencingToken::new(34).expect("below 2^53"))?;
/// let stale = gate.admit(FencingToken::new(33).expect("below 2^53")).unwrap_err();
/// assert_eq!(stale.token.get(), 33);
/// assert_eq!(stale.newest.map(u64::from), Some(34));
/// # Ok::<(), fence::Stale>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("fencing token {token} is stale: {}; acquire the lock anew and start over from reading", seen(*.newest))]
#[non_exhaustive]
pub struct Stale {
    /// What the late write carried.
    pub token: FencingToken,
    /// The largest that the store has seen; `None` if it only said no.
    pub newest: Option<FencingToken>,
}

fn seen(newest: Option<FencingToken>) -> String {
    match newest {
        Some(newest) => format!("the store has seen {newest}, so somebody has held the lock since"),
        None => "the store has a larger one, or no such row".to_owned(),
    }
}
