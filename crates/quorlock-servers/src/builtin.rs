//! The built-in server: the subset of Redis that locks need, over a real socket.
//!
//! For machines without any server, so that demonstrations run everywhere, and for tests that need hundreds
//! of servers. No claim and no published figure is based on it. It runs any script, over the few commands that it
//! knows, and refuses other commands.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, MutexGuard};

use quorlock::runtime::{Clock, Entropy, Mutex, SystemClock, SystemEntropy};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::resp::{Resp, Version, read_command};

mod child;
mod clients;
mod commands;
mod data;
mod keyspace;
mod lua;
mod misconduct;
mod simulated;
mod sorted;
mod state;
mod tracking;
mod words;

pub use child::serve_if_asked;
pub(crate) use child::{LIFELINE, PASSWORD, PORT, announced};
use clients::{Clients, Life};
use keyspace::Keyspace;
pub use misconduct::Misconduct;
pub use simulated::Memory;
use state::State;

/// Serves an empty store until the future is dropped or a client sends `SHUTDOWN`, which close all
/// connections.
///
/// # Errors
///
/// If the listener fails.
///
/// # Cancel safety
///
/// Drop the future to stop the server.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    BuiltinServer::new().serve(listener).await
}

/// A built-in server: a handle to its keys, which several listeners may share.
#[derive(Clone)]
pub struct BuiltinServer {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    password: Option<String>,
    connections: AtomicI64,
    clients: Clients,
    /// Signalled when a client sends `SHUTDOWN`.
    ended: Notify,
}

impl BuiltinServer {
    /// Creates an empty server on the system's clock, without a password.
    #[must_use]
    pub fn new() -> BuiltinServer {
        BuiltinServer::with(Arc::new(SystemClock::default()), None)
    }

    /// Creates an empty server whose keys expire by `clock`, and which requires `password` if there is one.
    #[must_use]
    pub fn with(clock: Arc<dyn Clock>, password: Option<String>) -> BuiltinServer {
        // As long as a real one, because clients may check it.
        let run_id = format!("{:032x}{:08x}", SystemEntropy::default().next_u128(), std::process::id());
        BuiltinServer::made(clock, run_id, password, Keyspace::default())
    }

    fn made(
        clock: Arc<dyn Clock>,
        run_id: String,
        password: Option<String>,
        keys: Keyspace,
    ) -> BuiltinServer {
        let state = Mutex::new(State::new(run_id, clock.now(), keys));
        let (connections, clients, ended) = (AtomicI64::new(0), Clients::default(), Notify::new());
        BuiltinServer { shared: Arc::new(Shared { state, clock, password, connections, clients, ended }) }
    }

    /// Serves until the future is dropped or a client sends `SHUTDOWN`, which close all connections. The keys
    /// stay with the handle.
    ///
    /// # Errors
    ///
    /// If the listener fails.
    ///
    /// # Cancel safety
    ///
    /// Drop the future to stop the server.
    pub async fn serve(&self, listener: TcpListener) -> io::Result<()> {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (stream, peer) = accepted?;
                    stream.set_nodelay(true)?;
                    connections.spawn(Connection::new(Arc::clone(&self.shared), peer).serve(stream));
                }
                () = self.shared.ended.notified() => return Ok(()),
                // Removes closed connections.
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

impl Default for BuiltinServer {
    fn default() -> BuiltinServer {
        BuiltinServer::new()
    }
}

impl fmt::Debug for BuiltinServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinServer")
            .field("run_id", &self.shared.state.lock().run_id())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Returns the state as of now.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.set_time(&*self.clock);
        state
    }

    /// Waits until a tracked key has expired. Never returns if there is none.
    async fn until_a_key_ends(&self) {
        let end = {
            let state = self.state.lock();
            state.trackers.next_end(&state.keys)
        };
        match end {
            Some(end) => self.clock.sleep_until(end).await,
            None => std::future::pending().await,
        }
    }
}

/// A client connection.
struct Connection {
    shared: Arc<Shared>,
    id: i64,
    peer: SocketAddr,
    version: Version,
    name: Vec<u8>,
    /// The pushes to send, if the client tracks keys.
    pushes: Option<UnboundedReceiver<Resp>>,
    welcome: bool,
    life: Arc<Life>,
    over: bool,
}

impl Connection {
    fn new(shared: Arc<Shared>, peer: SocketAddr) -> Connection {
        let id = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let welcome = shared.password.is_none();
        let life = shared.clients.enter(id);
        let (version, name, pushes) = (Version::Two, Vec::new(), None);
        Connection { shared, id, peer, version, name, pushes, welcome, life, over: false }
    }

    async fn serve(mut self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let (mut input, mut output) = (Vec::with_capacity(4096), Vec::new());
        while !self.over {
            tokio::select! {
                biased;
                () = self.life.ended() => return Ok(()),
                push = next(&mut self.pushes) => push.write(self.version, &mut output),
                () = self.shared.until_a_key_ends(), if self.pushes.is_some() => {
                    // This notifies the clients that have read it.
                    drop(self.shared.state());
                }
                read = stream.read_buf(&mut input) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    let used = self.answer_all(&input, &mut output);
                    input.drain(..used);
                }
            }
            stream.write_all(&output).await?;
            output.clear();
        }
        Ok(())
    }

    /// Executes every complete command. Returns how many bytes of the input they took.
    fn answer_all(&mut self, input: &[u8], output: &mut Vec<u8>) -> usize {
        let mut used = 0;
        while !self.over {
            match read_command(input.get(used..).unwrap_or_default()) {
                Ok(None) => break,
                Ok(Some((parts, length))) => {
                    used += length;
                    if let (false, Some(answer)) = (parts.is_empty(), self.command(&parts)) {
                        answer.write(self.version, output);
                    }
                }
                Err(garbage) => {
                    Resp::Error(garbage.to_string()).write(self.version, output);
                    self.over = true;
                }
            }
        }
        used
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.clients.leave(self.id);
        if self.pushes.is_some() {
            self.shared.state.lock().trackers.stop(self.id);
        }
    }
}

/// Returns the next push. Waits forever if the client tracks no keys.
async fn next(pushes: &mut Option<UnboundedReceiver<Resp>>) -> Resp {
    if let Some(pushes) = pushes
        && let Some(push) = pushes.recv().await
    {
        return push;
    }
    std::future::pending().await
}
