//! Deliberate faults, for simulations.

use std::time::Duration;

use quorlock::redis::scripts;

use super::data::Access;
use super::keyspace::Keyspace;
use super::words::number;
use crate::resp::Resp;

/// A deliberate fault of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Misconduct {
    /// Refuses every script with this error and executes none, as while loading or without privileges.
    Refuses(String),
    /// Refuses every command that may need memory with this error and executes the others, as when out of
    /// memory: a script may go on once it has written.
    RefusesKeys(String),
    /// Releases a lock for any client, without comparing the token. No server does that; some lock libraries
    /// do. For tests of tests.
    ReleasesForAnyClient,
    /// Reports a release without doing it. For tests of tests.
    IgnoresReleases,
    /// Offers a lock to the next waiter for any client, without comparing the token. For tests of tests.
    OffersForAnyClient,
    /// Stores an offer for an eighth of the time that its message says. For tests of tests.
    OffersExpireEarly,
}

impl Misconduct {
    /// Returns the answer to a command of a client; `None` to execute it.
    pub(super) fn refuse(&self, name: &str) -> Option<Resp> {
        let writes = matches!(Access::of(name), Access::Writes | Access::Grows);
        if let Misconduct::Refuses(error) = self
            && (name.starts_with("EVAL") || writes)
        {
            return Some(Resp::Error(error.clone()));
        }
        self.starve(name)
    }

    /// Returns the answer of a server that is out of memory; `None` to execute the command.
    pub(super) fn starve(&self, name: &str) -> Option<Resp> {
        if let Misconduct::RefusesKeys(error) = self
            && Access::of(name) == Access::Grows
        {
            return Some(Resp::Error(error.clone()));
        }
        None
    }

    /// Changes the arguments of a script, or returns an answer instead of executing it.
    pub(super) fn before(
        &self,
        keyspace: &mut Keyspace,
        hash: &str,
        keys: &[Vec<u8>],
        arguments: &mut [Vec<u8>],
    ) -> Option<Resp> {
        let ends = [
            &scripts::RELEASE,
            &scripts::CANCEL,
            &scripts::RELEASE_SHARED,
            &scripts::CANCEL_SHARED,
            &scripts::RELEASE_SEVERAL,
            &scripts::CANCEL_SEVERAL,
        ];
        let releases = || ends.iter().any(|script| script.hash() == hash);
        let word = |word: &str| Some(Resp::List(vec![Resp::text(word)]));
        match self {
            Misconduct::ReleasesForAnyClient if releases() => {
                let gone = keys.iter().filter(|key| keyspace.delete(key)).count();
                word(if gone > 0 { "granted" } else { "free" })
            }
            Misconduct::IgnoresReleases if releases() => word("granted"),
            Misconduct::OffersForAnyClient if scripts::OFFER.hash() == hash => {
                if let ([key], [token, ..]) = (keys, arguments)
                    && let Ok(Some(holder)) = keyspace.text(key)
                {
                    *token = holder.to_vec();
                }
                None
            }
            Misconduct::Refuses(_)
            | Misconduct::RefusesKeys(_)
            | Misconduct::ReleasesForAnyClient
            | Misconduct::IgnoresReleases
            | Misconduct::OffersForAnyClient
            | Misconduct::OffersExpireEarly => None,
        }
    }

    /// Does what follows a script.
    pub(super) fn after(&self, keyspace: &mut Keyspace, hash: &str, keys: &[Vec<u8>], arguments: &[Vec<u8>]) {
        if *self == Misconduct::OffersExpireEarly
            && scripts::OFFER.hash() == hash
            && let ([key], [_, _, next, life, ..]) = (keys, arguments)
            && keyspace.text(key).is_ok_and(|holder| holder == Some(next))
        {
            keyspace.expire(key, Duration::from_millis(number(life).unwrap_or(0)) / 8);
        }
    }
}
