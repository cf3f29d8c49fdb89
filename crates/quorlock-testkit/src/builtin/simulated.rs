//! Support for simulations: no real time, no socket, access to the keys, and deliberate faults.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use quorlock::protocol::Moment;
use quorlock::{redis::scripts, runtime::Clock};
use tokio::io::{AsyncRead, AsyncWrite};

use super::eval::is;
use super::{BuiltinServer, Connection, Shared};
use crate::resp::Resp;
use crate::store::{Failure, Offer, ScriptResult, Store};

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
    /// Refuses every command that may store a key with this error and executes the others, as when out of
    /// memory.
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
        BuiltinServer::made(clock, run_id.into(), None, super::Store::default())
    }

    /// Returns the process that replaces this one, without connections and without faults.
    #[must_use]
    pub fn restarted(&self, run_id: impl Into<String>, memory: Memory) -> BuiltinServer {
        let store = match memory {
            Memory::Kept => {
                let mut store = self.shared.store().clone();
                store.unwatch_all();
                store
            }
            Memory::Lost => super::Store::default(),
        };
        let (clock, password) = (Arc::clone(&self.shared.clock), self.shared.password.clone());
        BuiltinServer::made(clock, run_id.into(), password, store)
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
        let now = self.shared.now();
        self.shared.store().get(now, key.as_bytes()).ok().flatten().map(<[u8]>::to_vec)
    }

    /// Returns the values that were replaced or deleted since the last call, each with its key.
    #[must_use]
    pub fn take_replaced(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.shared.store().take_replaced()
    }

    /// Returns the current readers of the lock at `key`.
    #[must_use]
    pub fn readers(&self, key: &str) -> Vec<Vec<u8>> {
        let (now, readers) = (self.shared.now(), quorlock::protocol::readers_key(key));
        let shares = self.shared.store().readers(now, key.as_bytes(), readers.as_bytes());
        shares.into_iter().map(|(token, _)| token).collect()
    }

    /// Sets a fault, or removes it with `None`.
    pub fn misconduct(&self, misconduct: Option<Misconduct>) {
        *self.shared.misconduct.lock() = misconduct;
    }

    /// Deletes all keys, as `FLUSHALL` does.
    pub fn flush(&self) {
        self.shared.store().flush();
    }
}

impl Shared {
    /// Returns the answer of a faulty server to a plain command; `None` to execute it.
    pub(super) fn misbehave_at(&self, name: &str) -> Option<Resp> {
        let misconduct = self.misconduct.lock().clone()?;
        match misconduct {
            Misconduct::Refuses(error) if matches!(name, "SET" | "ZADD" | "PEXPIRE" | "PEXPIREAT") => {
                Some(Resp::Error(error))
            }
            Misconduct::RefusesKeys(error) if matches!(name, "SET" | "ZADD") => Some(Resp::Error(error)),
            Misconduct::Refuses(_)
            | Misconduct::RefusesKeys(_)
            | Misconduct::ReleasesForAnyClient
            | Misconduct::IgnoresReleases
            | Misconduct::OffersForAnyClient
            | Misconduct::OffersExpireEarly => None,
        }
    }

    /// Executes an offer, faultily if so configured.
    pub(super) fn offer(
        &self,
        store: &mut Store,
        now: Moment,
        key: &[u8],
        offer: &Offer<'_>,
    ) -> Result<ScriptResult, Failure> {
        let misconduct = self.misconduct.lock().clone();
        let holder = store.get(now, key)?.map(<[u8]>::to_vec);
        let token = match (&misconduct, &holder) {
            (Some(Misconduct::OffersForAnyClient), Some(holder)) => holder,
            _ => offer.token,
        };
        let told = store.offer(now, key, &Offer { token, ..*offer })?;
        if misconduct == Some(Misconduct::OffersExpireEarly) && store.get(now, key)? == Some(offer.next) {
            store.pexpire(now, key, offer.life / 8);
        }
        Ok(told)
    }

    /// Returns the answer of a faulty server to a script; `None` to execute it.
    pub(super) fn misbehave(&self, script: &[u8], keys: &[&[u8]]) -> Option<Resp> {
        let misconduct = self.misconduct.lock().clone()?;
        let releases = [
            &scripts::RELEASE,
            &scripts::CANCEL,
            &scripts::RELEASE_SHARED,
            &scripts::CANCEL_SHARED,
            &scripts::RELEASE_SEVERAL,
            &scripts::CANCEL_SEVERAL,
        ];
        let releases = releases.iter().any(|known| is(script, known));
        let stores = [
            &scripts::ACQUIRE,
            &scripts::RENEW,
            &scripts::TRANSFER,
            &scripts::ACQUIRE_SHARED,
            &scripts::RENEW_SHARED,
            &scripts::ACQUIRE_SEVERAL,
            &scripts::RENEW_SEVERAL,
        ];
        match misconduct {
            Misconduct::Refuses(error) => Some(Resp::Error(error)),
            Misconduct::RefusesKeys(error) => {
                stores.iter().any(|known| is(script, known)).then_some(Resp::Error(error))
            }
            Misconduct::ReleasesForAnyClient if releases => {
                let (now, mut store) = (self.now(), self.store());
                let gone = keys.iter().filter(|key| store.del(now, key)).count();
                Some(word(if gone > 0 { "granted" } else { "free" }))
            }
            Misconduct::IgnoresReleases if releases => Some(word("granted")),
            Misconduct::ReleasesForAnyClient
            | Misconduct::IgnoresReleases
            | Misconduct::OffersForAnyClient
            | Misconduct::OffersExpireEarly => None,
        }
    }
}

fn word(word: &str) -> Resp {
    Resp::List(vec![Resp::text(word)])
}
