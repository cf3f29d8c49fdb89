//! Places, for nodes on stores that serve waiters in [order of arrival](super::Grants::FirstCome).
//!
//! Such a store keeps a place for each client that wants a lock, in the order in which they came. The first place holds the
//! lock, unless it is that of a waiter of this library: then it is the waiter's turn. [`Owner`] is what the data of a place
//! say, and [`OwnPlaces`] are the places of this process: it says whose turn it is when a place goes
//! ([`gone`](OwnPlaces::gone)), and which are to be deleted because their time is over: the session or lease that they live
//! on is for the case that the process dies.
//!
//! Such a store has several members, of which any can answer: a `Cluster`. Its node has one thread, which keeps a
//! connection to one member and goes on to the next one when it fails; `PlacesNode` starts it, lists locks, and serves `doctor`.
//! A `Voter` is such a connection, and carries out the requests of one store. `Members` are what a URL says of them.

use std::time::Duration;

use quorlock_protocol::{FencingToken, Token, WaiterId};

use super::QueuedWaiter;

mod cluster;
mod members;
mod node;
mod own;
mod requests;
mod watched;
mod worker;

// For the kinds of node of this project, until another one has needed them.
#[doc(hidden)]
pub use cluster::{
    Answer, CALL_LIMIT, CONNECT_LIMIT, Cluster, Connection, Failure, Listing, Local, Own, Voter,
};
#[doc(hidden)]
pub use members::{Member, Members, Scheme, StoreUrl};
#[doc(hidden)]
pub use node::{PlacesNode, concern_about, is_listed, parse};
pub use own::{OwnPlace, OwnPlaces, Role, Waiting};
#[doc(hidden)]
pub use requests::{RESERVED, contended, decode_counter, drawn, encode_counter, failed, unknown, usable};
#[doc(hidden)]
pub use watched::Watched;

/// Begins the data of a waiter's place.
const WAITS: &[u8] = b"\0waits ";

/// What the data of a place say of its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(
    clippy::exhaustive_enums,
    reason = "complete: what is no waiter of ours holds the lock if it is first"
)]
pub enum Owner {
    /// An attempt of ours, or another program: if it is first, it holds the lock. With the number that was drawn for it, if
    /// its token does not name that.
    Attempt(Token, Option<FencingToken>),
    /// A waiter of ours: if it is first, it is its turn, but it holds nothing yet. With the time since 1970 at which it began
    /// to wait, by its own clock, and its context.
    Waiter(WaiterId, Duration, String),
}

impl Owner {
    /// Reads the data of a place. Other programs may store anything.
    #[must_use]
    pub fn of(data: &[u8]) -> Owner {
        if let Some(rest) = data.strip_prefix(WAITS)
            && let Some((waiter, since, context)) = str::from_utf8(rest).ok().and_then(words)
        {
            return Owner::Waiter(waiter, since, context.to_owned());
        }
        if let Some(end) = data.iter().rposition(|byte| *byte == 0)
            && let Some((token, number)) = data.split_at_checked(end)
            && let Some(number) = number.get(1..).and_then(|digits| str::from_utf8(digits).ok()?.parse().ok())
            && Token::found(token).is_ours()
        {
            return Owner::Attempt(Token::found(token), Some(number));
        }
        Owner::Attempt(Token::found(data), None)
    }

    /// Returns the data of an attempt's place: its token, and the number that was drawn for it where that is another one
    /// than the token names.
    #[must_use]
    pub fn attempt(token: &Token, number: Option<FencingToken>) -> Vec<u8> {
        let mut data = token.as_bytes().to_vec();
        if let Some(number) = number.filter(|number| token.number() != Some(*number)) {
            data.extend_from_slice(format!("\0{number}").as_bytes());
        }
        data
    }

    /// Returns the data of a waiter's place.
    #[must_use]
    pub fn waiter(waiter: WaiterId, since: Duration, context: &str) -> Vec<u8> {
        [WAITS, format!("{waiter} {} {context}", since.as_millis()).as_bytes()].concat()
    }

    /// Returns whether it holds nothing, even if it is first.
    #[must_use]
    pub fn is_waiter(&self) -> bool {
        matches!(self, Owner::Waiter(..))
    }

    /// Returns the entry of a list of waiters. `id` names the place of another program.
    #[must_use]
    pub fn listed(self, id: WaiterId, wall: Duration) -> QueuedWaiter {
        match self {
            Owner::Waiter(waiter, since, context) => {
                QueuedWaiter::new(waiter, wall.saturating_sub(since), context)
            }
            Owner::Attempt(token, _) => {
                let context = token.context().unwrap_or_else(|| "another program".to_owned());
                QueuedWaiter::new(id, Duration::ZERO, context)
            }
        }
    }
}

fn words(text: &str) -> Option<(WaiterId, Duration, &str)> {
    let (waiter, rest) = text.split_once(' ')?;
    let (since, context) = rest.split_once(' ')?;
    Some((WaiterId::parse(waiter.as_bytes())?, Duration::from_millis(since.parse().ok()?), context))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_read_as_they_were_written() {
        let number = FencingToken::new(7).unwrap();
        let token = Token::numbered(5, FencingToken::new(6).unwrap(), "db-7:41");
        for drawn in [None, Some(number)] {
            assert_eq!(Owner::of(&Owner::attempt(&token, drawn)), Owner::Attempt(token.clone(), drawn));
        }
        assert_eq!(Owner::attempt(&token, token.number()), token.as_bytes(), "the token names it");
        let since = Duration::from_millis(1_700_000_000_123);
        let named = Owner::Waiter(WaiterId::new(9), since, "db-7:41 nightly".to_owned());
        assert_eq!(Owner::of(&Owner::waiter(WaiterId::new(9), since, "db-7:41 nightly")), named);
        for foreign in [&b""[..], b"42", b"\xff\x00 no text", b"a\x0042", b"\0waits x"] {
            assert_eq!(Owner::of(foreign), Owner::Attempt(Token::found(foreign), None));
        }
    }
}
