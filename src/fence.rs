//! What the guarded resource does with a fencing token.
//!
//! A lease can end while its holder is paused, and a write in flight then still arrives. Only the resource can
//! refuse it: it stores the largest fencing token that it has seen, and refuses smaller ones. This module has that
//! check for data in memory; [a page][page] has it for SQL, Redis, services and buckets. None
//! of it needs a lock, a node or a runtime.
//!
//! # The contract
//!
//! 1. Every write carries the [fencing token](crate::Lease::fencing_token) of the lease under which
//!    it was made.
//! 2. The store accepts the write if the token is not smaller than the largest it has seen: the same holder may
//!    write any number of times.
//! 3. The largest token is kept *with* the data and changed *in the same atomic step*. A check in
//!    the program, followed by a write, only makes the window smaller.
//! 4. **A holder that reads before it writes shows its token before it reads.** From then on, no earlier holder can
//!    change what was read. If the store first sees the token with the write, a late write can arrive between the
//!    two, and is overwritten unseen.
//! 5. Tokens of one lock are compared with each other, and with no others.
//!
//! # Which check
//!
//! | the resource | use |
//! |---|---|
//! | SQL, Redis or Valkey, a service, an object store | what [that page][page] has to copy |
//! | data in memory | [`Guarded`] |
//! | a service, at its entrance | [`Gate`] |
//! | data in memory, read under shared leases | [`SharedGuarded`] |
//! | anything else | [`check`], inside whatever makes a step atomic there |
//!
//! [page]: crate::guide::fencing_checks
//!
//! [`guide::fencing`](crate::guide::fencing) says what the order of the numbers rests on, and what fencing cannot do.

mod gate;
mod guarded;
mod shared;

pub use gate::Gate;
pub use guarded::Guarded;
pub use shared::SharedGuarded;

use quorlock_protocol::FencingToken;

/// Accepts `token` if it is not smaller than the `newest` that the store has seen; `None` if it has seen none.
///
/// This is the whole rule. It protects only if `newest` cannot change between the check and the
/// write: call it inside the transaction, the critical section or the script that writes, and store
/// the token there too.
///
/// # Errors
///
/// [`Stale`], when another client has held the lock after this writer.
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

/// A write came too late: another client has held the lock since.
///
/// Nothing was written. Acquire the lock again and start over from reading; repeating the write with the same token
/// cannot succeed.
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
#[error("fencing token {token} is stale: {}; acquire the lock again and start over from reading", seen(*.newest))]
#[non_exhaustive]
pub struct Stale {
    /// The token of the late write.
    pub token: FencingToken,
    /// The largest token that the store has seen; `None` if the store only refused.
    pub newest: Option<FencingToken>,
}

impl Stale {
    /// The refusal of a store that compares tokens itself and only says that it has written nothing, as SQL does.
    #[must_use]
    pub fn refused(token: FencingToken) -> Stale {
        Stale { token, newest: None }
    }
}

fn seen(newest: Option<FencingToken>) -> String {
    match newest {
        Some(newest) => format!("the store has seen {newest}, so another client has held the lock since"),
        None => "the store has a larger one, or no such row".to_owned(),
    }
}
