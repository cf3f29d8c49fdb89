//! Support for simulations: no real time, no socket, and access to the keys.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use quorlock::protocol::{SHARED_MARKER, readers_key};
use quorlock::runtime::Clock;
use tokio::io::{AsyncRead, AsyncWrite};

use super::keyspace::{Keyspace, Value};
use super::misconduct::Misconduct;
use super::{BuiltinServer, Connection};

/// What remains of the keys after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a server remembers, or it does not")]
pub enum Memory {
    /// Everything, as with `appendfsync always`.
    Kept,
    /// Nothing.
    Lost,
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

    /// Deletes all keys, one by one.
    pub fn delete_all(&self) {
        self.shared.state().delete_all();
    }
}
