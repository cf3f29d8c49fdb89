//! Support for simulations: no real time, no socket, access to the keys, and deliberate faults.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quorlock::protocol::{SHARED_MARKER, readers_key};
use quorlock::redis::scripts;
use quorlock::runtime::Clock;
use tokio::io::{AsyncRead, AsyncWrite};

use super::data::{Access, number};
use super::keyspace::{Keyspace, Value};
use super::state::State;
use super::tracking::Author;
use super::{BuiltinServer, Connection};
use crate::resp::Resp;

/// What remains of the keys after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a server remembers, or it does not")]
pub enum Memory {
    /// Everything, as with `appendfsync always`.
    Kept,
    /// Nothing.
    Lost,
}

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

impl BuiltinServer {
    /// Creates an empty server for a simulation: it uses only `clock` and has the given `run_id`. Its uptime
    /// is zero.
    #[must_use]
    pub fn simulated(clock: Arc<dyn Clock>, run_id: impl Into<String>) -> BuiltinServer {
        BuiltinServer::made(clock, run_id.into(), None, Keyspace::default())
    }

    /// Returns the process that replaces this one, without connections and without faults.
    #[must_use]
    pub fn restarted(&self, run_id: impl Into<String>, memory: Memory) -> BuiltinServer {
        let keys = match memory {
            Memory::Kept => self.shared.state().keys.clone(),
            Memory::Lost => Keyspace::default(),
        };
        let (clock, password) = (Arc::clone(&self.shared.clock), self.shared.password.clone());
        BuiltinServer::made(clock, run_id.into(), password, keys)
    }

    /// Serves one client over a stream of any kind, until the client disconnects.
    ///
    /// # Errors
    ///
    /// If the stream fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub async fn serve_stream(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Connection::new(Arc::clone(&self.shared), nowhere).serve(stream).await
    }

    /// Returns the current value of `key`, if it is a string.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Vec<u8>> {
        self.shared.state().keys.text(key.as_bytes()).ok().flatten().map(<[u8]>::to_vec)
    }

    /// Returns the values that were replaced or deleted since the last call, each with its key.
    #[must_use]
    pub fn take_replaced(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.shared.state().keys.take_replaced()
    }

    /// Returns the current readers of the lock at `key`.
    #[must_use]
    pub fn readers(&self, key: &str) -> Vec<Vec<u8>> {
        let keys = &mut self.shared.state().keys;
        if !matches!(keys.text(key.as_bytes()), Ok(Some(holder)) if holder == SHARED_MARKER.as_bytes()) {
            return Vec::new();
        }
        let now = keys.wall().as_millis();
        let Some(Value::Scores(readers)) = keys.get(readers_key(key).as_bytes()) else { return Vec::new() };
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of this era are exact")]
        readers.iter().filter(|(_, ends)| now as f64 <= **ends).map(|(token, _)| token.clone()).collect()
    }

    /// Sets a fault, or removes it with `None`.
    pub fn misconduct(&self, misconduct: Option<Misconduct>) {
        self.shared.state().misconduct = misconduct;
    }

    /// Deletes all keys, as `FLUSHALL` does.
    pub fn flush(&self) {
        self.shared.state().flush();
    }
}

impl State {
    /// Returns the answer of a faulty server to a command of a client; `None` to execute it.
    pub(super) fn misbehave(&self, name: &str) -> Option<Resp> {
        match &self.misconduct {
            Some(Misconduct::Refuses(error))
                if name.starts_with("EVAL") || matches!(Access::of(name), Access::Writes | Access::Grows) =>
            {
                Some(Resp::Error(error.clone()))
            }
            _ => self.refusal(name),
        }
    }

    /// Returns the answer of a server that is out of memory; `None` to execute the command.
    pub(super) fn refusal(&self, name: &str) -> Option<Resp> {
        match &self.misconduct {
            Some(Misconduct::RefusesKeys(error)) if Access::of(name) == Access::Grows => {
                Some(Resp::Error(error.clone()))
            }
            _ => None,
        }
    }

    /// Changes the arguments of a script as a faulty server might, or returns its answer instead of executing it.
    pub(super) fn misbehave_before(
        &mut self,
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
        match self.misconduct {
            Some(Misconduct::ReleasesForAnyClient) if releases() => {
                let gone = keys.iter().filter(|key| self.keys.delete(key)).count();
                self.trackers.tell(&mut self.keys, Author::Time);
                Some(word(if gone > 0 { "granted" } else { "free" }))
            }
            Some(Misconduct::IgnoresReleases) if releases() => Some(word("granted")),
            Some(Misconduct::OffersForAnyClient) if scripts::OFFER.hash() == hash => {
                if let ([key], [token, ..]) = (keys, arguments)
                    && let Ok(Some(holder)) = self.keys.text(key)
                {
                    *token = holder.to_vec();
                }
                None
            }
            _ => None,
        }
    }

    /// Does what a faulty server might do after a script.
    pub(super) fn misbehave_after(&mut self, hash: &str, keys: &[Vec<u8>], arguments: &[Vec<u8>]) {
        if self.misconduct == Some(Misconduct::OffersExpireEarly)
            && scripts::OFFER.hash() == hash
            && let ([key], [_, _, next, life, ..]) = (keys, arguments)
            && self.keys.text(key).is_ok_and(|holder| holder == Some(next))
        {
            let life = Duration::from_millis(number(life).unwrap_or(0)) / 8;
            self.keys.expire(key, life);
        }
    }
}

fn word(word: &str) -> Resp {
    Resp::List(vec![Resp::text(word)])
}
