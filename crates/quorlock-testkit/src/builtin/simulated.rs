//! What a simulation needs of the server: no real time, no socket, a look inside, and misconduct.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError};

use quorlock::protocol::Moment;
use quorlock::{redis::scripts, runtime::Clock};
use tokio::io::{AsyncRead, AsyncWrite};

use super::eval::is;
use super::{BuiltinServer, Connection, Shared};
use crate::resp::Resp;
use crate::store::{Failure, Offer, Store, Told};

/// What is left of the keys after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a server remembers, or it does not")]
pub enum Memory {
    /// Everything, as with `appendfsync always`.
    Kept,
    /// Nothing.
    Lost,
}

/// What a server does wrong on purpose.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Misconduct {
    /// Answers every script with this error, and carries none out: as while it is loading, or when
    /// rights are missing.
    Refuses(String),
    /// Answers with this error whatever may store a key, and does the rest: as without memory.
    RefusesKeys(String),
    /// Releases a lock for whoever asks, without comparing the token. No server does; some lock
    /// libraries do. For tests of tests.
    ReleasesForAnybody,
    /// Says that it has released, and does not. For tests of tests.
    KeepsWhatIsReleased,
    /// Offers a lock to the next waiter for whichever holder asks, without comparing the token. For tests of tests.
    OffersForAnybody,
    /// Stores an offer for an eighth of the time that its message says. For tests of tests.
    OffersEndEarly,
}

impl BuiltinServer {
    /// An empty server in which nothing real is left: it goes by `clock` in everything and calls
    /// itself `run_id`. It has been up for no time.
    #[must_use]
    pub fn simulated(clock: Arc<dyn Clock>, run_id: impl Into<String>) -> BuiltinServer {
        BuiltinServer::made(clock, run_id.into(), None, super::Store::default())
    }

    /// The process that takes this one's place. Nobody is connected to it, and it does nothing wrong.
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

    /// Serves one client over a stream of any kind, until it goes.
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

    /// What stands under `key` at this moment, if it is a string.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Vec<u8>> {
        let now = self.shared.now();
        self.shared.store().get(now, key.as_bytes()).ok().flatten().map(<[u8]>::to_vec)
    }

    /// What stood under each key and was replaced or deleted since the last time that this was asked.
    #[must_use]
    pub fn take_replaced(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.shared.store().take_replaced()
    }

    /// Those who share the lock at `key` at this moment.
    #[must_use]
    pub fn readers(&self, key: &str) -> Vec<Vec<u8>> {
        let (now, readers) = (self.shared.now(), quorlock::protocol::readers_key(key));
        let shares = self.shared.store().readers(now, key.as_bytes(), readers.as_bytes());
        shares.into_iter().map(|(token, _)| token).collect()
    }

    /// From now on does this wrong, or, with `None`, nothing any more.
    pub fn misconduct(&self, misconduct: Option<Misconduct>) {
        *self.shared.misconduct.lock().unwrap_or_else(PoisonError::into_inner) = misconduct;
    }

    /// Deletes all keys, as `FLUSHALL` does.
    pub fn flush(&self) {
        self.shared.store().flush();
    }
}

impl Shared {
    /// The answer to a plain command that is not carried out as it should be.
    pub(super) fn misbehave_at(&self, name: &str) -> Option<Resp> {
        let misconduct = self.misconduct.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        match misconduct {
            Misconduct::Refuses(error) if matches!(name, "SET" | "ZADD" | "PEXPIRE" | "PEXPIREAT") => {
                Some(Resp::Error(error))
            }
            Misconduct::RefusesKeys(error) if matches!(name, "SET" | "ZADD") => Some(Resp::Error(error)),
            Misconduct::Refuses(_)
            | Misconduct::RefusesKeys(_)
            | Misconduct::ReleasesForAnybody
            | Misconduct::KeepsWhatIsReleased
            | Misconduct::OffersForAnybody
            | Misconduct::OffersEndEarly => None,
        }
    }

    /// Offers a lock as it should, or not.
    pub(super) fn offer(
        &self,
        store: &mut Store,
        now: Moment,
        key: &[u8],
        offer: &Offer<'_>,
    ) -> Result<Told, Failure> {
        let misconduct = self.misconduct.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let holder = store.get(now, key)?.map(<[u8]>::to_vec);
        let token = match (&misconduct, &holder) {
            (Some(Misconduct::OffersForAnybody), Some(holder)) => holder,
            _ => offer.token,
        };
        let told = store.offer(now, key, &Offer { token, ..*offer })?;
        if misconduct == Some(Misconduct::OffersEndEarly) && store.get(now, key)? == Some(offer.next) {
            store.pexpire(now, key, offer.life / 8);
        }
        Ok(told)
    }

    /// The answer to a script that is not carried out as it should be.
    pub(super) fn misbehave(&self, script: &[u8], keys: &[&[u8]]) -> Option<Resp> {
        let misconduct = self.misconduct.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
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
            Misconduct::ReleasesForAnybody if releases => {
                let (now, mut store) = (self.now(), self.store());
                let gone = keys.iter().filter(|key| store.del(now, key)).count();
                Some(word(if gone > 0 { "granted" } else { "free" }))
            }
            Misconduct::KeepsWhatIsReleased if releases => Some(word("granted")),
            Misconduct::ReleasesForAnybody
            | Misconduct::KeepsWhatIsReleased
            | Misconduct::OffersForAnybody
            | Misconduct::OffersEndEarly => None,
        }
    }
}

fn word(word: &str) -> Resp {
    Resp::List(vec![Resp::text(word)])
}
