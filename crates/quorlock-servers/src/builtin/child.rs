//! Runs the built-in server in a child process of the same program.

use std::io::{self, Read as _};
use std::net::Ipv4Addr;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quorlock::runtime::SystemClock;
use tokio::net::TcpSocket;

use super::BuiltinServer;

/// The port to serve, on 127.0.0.1.
pub(crate) const PORT: &str = "QUORLOCK_BUILTIN_SERVER";
/// The password, if one is required.
pub(crate) const PASSWORD: &str = "QUORLOCK_BUILTIN_PASSWORD";
/// Set to `stdin` to make the server end when its standard input closes.
pub(crate) const LIFELINE: &str = "QUORLOCK_BUILTIN_LIFELINE";

static ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// Whether this program has announced that it can run as a server.
pub(crate) fn announced() -> bool {
    ANNOUNCED.load(Ordering::Relaxed)
}

/// Runs this process as a lock server if the environment asks for one; otherwise returns immediately.
///
/// Call it first in the `main` of a program that starts [`Servers`](crate::Servers) on machines that may have
/// none: the built-in servers are then child processes of the same program, which can be killed and stopped
/// like real ones. They run when `QUORLOCK_BUILTIN_SERVER` is set; its value is the port, on 127.0.0.1.
///
/// Such a child ends when its parent does, even if the parent is killed: it watches a pipe that only the
/// parent keeps open. Linux' parent-death signal would not work, because it is sent when the parent's
/// *thread* ends, and runtimes end threads at any time.
///
/// # Examples
///
/// ```standalone_crate
/// // The first line of `main`:
/// quorlock_servers::serve_if_asked();
/// ```
pub fn serve_if_asked() {
    let Some(port) = std::env::var_os(PORT) else {
        ANNOUNCED.store(true, Ordering::Relaxed);
        return;
    };
    let Some(port) = port.to_str().and_then(|port| port.parse().ok()) else {
        eprintln!("{PORT} must be a port number, not {}", port.display());
        exit(64);
    };
    if std::env::var_os(LIFELINE).is_some_and(|line| line == "stdin") {
        std::thread::spawn(end_with_parent);
    }
    match serve_port(port) {
        Ok(()) => exit(0),
        Err(error) => {
            eprintln!("cannot serve port {port} of 127.0.0.1: {error}");
            exit(69)
        }
    }
}

fn serve_port(port: u16) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        // The parent keeps the port reserved, and old connections may still be in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
        let server = BuiltinServer::with(Arc::new(SystemClock::default()), std::env::var(PASSWORD).ok());
        server.serve(socket.listen(1024)?).await
    })
}

fn end_with_parent() {
    // Nothing is ever written to the pipe: the read returns when it is closed.
    drop(io::stdin().read(&mut [0]));
    exit(0);
}
