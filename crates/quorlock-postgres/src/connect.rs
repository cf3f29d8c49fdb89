//! Opens a connection and logs in.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll, ready};

use quorlock::{
    node::{NodeError, Seams},
    redis::Endpoint,
    transport::Stream,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, Connection, NoTls};

use crate::error::of_connecting;
use crate::url::DatabaseUrl;

/// The task that drives a connection's IO.
pub(crate) type Carrier = Connection<PidReader, tokio_postgres::tls::NoTlsStream>;

/// An open connection that is logged in.
pub(crate) struct Opened {
    pub(crate) client: Client,
    pub(crate) carrier: Carrier,
    /// The backend PID in the server's greeting. Behind a pooler another process answers.
    pub(crate) greeted_by: i32,
}

/// Opens a connection and logs in.
///
/// # Errors
///
/// Why the connection or the login failed.
///
/// # Cancel safety
///
/// Dropping the future closes the connection.
pub(crate) async fn open(url: &DatabaseUrl, seams: &Seams) -> Result<Opened, NodeError> {
    let endpoint = url.endpoint();
    let address = endpoint.clone().into();
    let stream = seams.dial().dial(&address).await.map_err(NodeError::undialled)?;
    let stream = if url.encrypted { encrypt(stream, &endpoint, seams).await? } else { stream };
    let pid = Arc::new(AtomicI32::new(0));
    let stream = PidReader { stream, pid: Arc::clone(&pid), unparsed: Some(Vec::new()) };
    let mut config = Config::new();
    config.ssl_mode(SslMode::Disable);
    // Defaults as in libpq: the user of the operating system, and a database of the same name.
    let user = url.user.as_deref().or(seams.username()).unwrap_or("postgres");
    let password = url.password.as_deref().or(seams.password());
    config.user(user).dbname(url.database.as_deref().unwrap_or(user));
    if let Some(password) = password {
        config.password(password);
    }
    let label = seams.label();
    config.application_name(if label.is_empty() {
        "quorlock".to_owned()
    } else {
        format!("quorlock {label}")
    });
    let connected = config.connect_raw(stream, NoTls).await;
    let (client, carrier) = connected.map_err(|error| of_connecting(error, password.is_some()))?;
    Ok(Opened { client, carrier, greeted_by: pid.load(Ordering::Relaxed) })
}

/// Negotiates TLS with the server.
#[cfg(feature = "tls")]
async fn encrypt(
    mut stream: Box<dyn Stream>,
    endpoint: &Endpoint,
    seams: &Seams,
) -> Result<Box<dyn Stream>, NodeError> {
    use quorlock::node::NodeErrorKind;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use crate::error::failed;

    /// `SSLRequest`: its length, and a code that is not a protocol version.
    const REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

    let unreachable = |error: io::Error| NodeError::Unreachable { reason: error.into() };
    stream.write_all(&REQUEST).await.map_err(unreachable)?;
    stream.flush().await.map_err(unreachable)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).await.map_err(unreachable)?;
    if answer != *b"S" {
        return Err(failed(
            NodeErrorKind::Tls,
            "no TLS: the server does not offer it; set `ssl = on` there with a certificate, or write sslmode=disable for a \
             network that you trust",
        ));
    }
    let (Endpoint::Tcp { host, .. } | Endpoint::Tls { host, .. }) = endpoint else { return Ok(stream) };
    seams.tls().wrap(host, stream).await.map_err(NodeError::undialled)
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "with TLS it waits")]
async fn encrypt(stream: Box<dyn Stream>, _: &Endpoint, _: &Seams) -> Result<Box<dyn Stream>, NodeError> {
    Ok(stream)
}

/// Reads the backend PID from the server's greeting, which `tokio-postgres` does not expose.
pub(crate) struct PidReader {
    stream: Box<dyn Stream>,
    pid: Arc<AtomicI32>,
    /// Bytes read and not parsed yet; `None` once the PID is known or was not found.
    unparsed: Option<Vec<u8>>,
}

/// Stop looking for the PID after this many bytes; no greeting is longer.
const LONGEST: usize = 64 << 10;

impl PidReader {
    fn hear(&mut self, bytes: &[u8]) {
        let Some(heard) = &mut self.unparsed else { return };
        heard.extend_from_slice(bytes);
        while let Some(([kind, a, b, c, d], rest)) = heard.split_first_chunk::<5>() {
            let kind = *kind;
            let length = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX);
            let Some(body) = length.checked_sub(4).and_then(|length| rest.get(..length)) else { break };
            match (kind, body.first_chunk::<4>()) {
                // BackendKeyData.
                (b'K', Some(pid)) => {
                    self.pid.store(i32::from_be_bytes(*pid), Ordering::Relaxed);
                    self.unparsed = None;
                    return;
                }
                // ReadyForQuery.
                (b'Z', _) => {
                    self.unparsed = None;
                    return;
                }
                _ => drop(heard.drain(..=length)),
            }
        }
        if heard.len() > LONGEST {
            self.unparsed = None;
        }
    }
}

impl AsyncRead for PidReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if this.unparsed.is_some() {
            let read = buffer.filled().get(before..).unwrap_or_default().to_vec();
            this.hear(&read);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PidReader {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pid_is_read_however_the_greeting_is_split() {
        let greeting = [
            &b"R\0\0\0\x08\0\0\0\0"[..],
            b"S\0\0\0\x09a\0b\0\0",
            b"K\0\0\0\x0c\0\0\x10\x01\0\0\0\x07",
            b"Z\0\0\0\x05I",
        ]
        .concat();
        for size in 1..greeting.len() {
            let pid = Arc::new(AtomicI32::new(0));
            let (stream, _) = tokio::io::duplex(1);
            let mut overheard =
                PidReader { stream: Box::new(stream), pid: Arc::clone(&pid), unparsed: Some(Vec::new()) };
            greeting.chunks(size).for_each(|chunk| overheard.hear(chunk));
            assert_eq!(pid.load(Ordering::Relaxed), 0x1001, "in pieces of {size}");
        }
    }
}
