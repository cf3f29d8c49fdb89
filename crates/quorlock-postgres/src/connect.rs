//! Opens a connection and logs in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use quorlock::{
    node::{NodeError, Reason, Seams},
    redis::Endpoint,
    transport::Stream,
};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, Connection, NoTls};

use crate::error::of_connecting;
use crate::guard::Guard;
use crate::url::DatabaseUrl;

/// The task that drives a connection's IO.
pub(crate) type Carrier = Connection<Guard, tokio_postgres::tls::NoTlsStream>;

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
pub(crate) async fn open(
    url: &DatabaseUrl,
    seams: &Seams,
    logging_in: &AtomicBool,
) -> Result<Opened, NodeError> {
    let endpoint = url.endpoint();
    let address = endpoint.clone().into();
    let stream = seams.dial().dial(&address).await.map_err(|error| {
        let Endpoint::Unix { path } = &endpoint else { return NodeError::undialled(error) };
        let words = format!("cannot connect to the socket `{}`", path.display());
        NodeError::Unreachable { reason: Reason::new(words).because(error) }
    })?;
    logging_in.store(true, Ordering::Relaxed);
    let stream = if url.encrypted { encrypt(stream, &endpoint, seams).await? } else { stream };
    let pid = Arc::new(AtomicI32::new(0));
    let stream = Guard::new(stream, url.way(), Arc::clone(&pid));
    let mut config = Config::new();
    config.ssl_mode(SslMode::Disable);
    // Defaults as in libpq: the user of the operating system, and a database of the same name.
    let user = url.user.as_deref().or(seams.username()).unwrap_or("postgres");
    let password = seams.password(url.password.as_deref()).await?;
    config.user(user).dbname(url.database.as_deref().unwrap_or(user));
    if let Some(password) = password.as_deref() {
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

    let unreachable = |error: std::io::Error| NodeError::Unreachable { reason: error.into() };
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
