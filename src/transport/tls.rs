//! TLS settings, and messages for TLS failures.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    AlertDescription as Alert, CertificateError, ClientConfig, Error as TlsError, RootCertStore,
};

use super::TlsFailure;
use super::stream::Stream;
use super::thread::on_thread;
use quorlock_protocol::node::Reason;

/// TLS settings for nodes with `rediss://` addresses: trusted authorities and the client
/// certificate.
///
/// By default the system's authorities are trusted (or those in the file that `SSL_CERT_FILE`
/// names), and no client certificate is sent. Files that are set here are in PEM format and are read again for each
/// new connection: a renewed certificate is used without a restart. What the system or `SSL_CERT_FILE` trusts is
/// read once: a program that trusts an authority from there has to be restarted for a new one.
///
/// # Examples
///
/// ```no_run
/// use quorlock::{Coordinator, transport::Tls};
///
/// let tls = Tls::new().authority("/etc/locks/ca.pem").identity("/etc/locks/me.pem", "/etc/locks/me.key");
/// let coordinator = Coordinator::builder().nodes(["rediss://a", "rediss://b", "rediss://c"]).tls(tls).build()?;
/// # Ok::<(), quorlock::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Tls {
    authority: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
    /// The protocol to agree on (ALPN), if any.
    protocol: Option<&'static str>,
    /// Created at the first use: loading the system's certificates takes milliseconds.
    of_system: Arc<OnceLock<Arc<ClientConfig>>>,
}

impl Tls {
    /// Trusts the system's authorities and sends no client certificate.
    #[must_use]
    pub fn new() -> Tls {
        Tls::default()
    }

    /// Trusts only the authorities in this file, for a deployment with its own authority.
    #[must_use]
    pub fn authority(mut self, file: impl Into<PathBuf>) -> Tls {
        self.authority = Some(file.into());
        self
    }

    /// Sends a client certificate (mutual TLS): the first file has the certificate, followed by any
    /// intermediates; the second has its private key.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Tls {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Expects the certificates of all nodes to be for this name, not for the host in each address:
    /// for IP addresses and tunnels.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Tls {
        self.server_name = Some(name.into());
        self
    }

    /// Agrees with the server on this protocol (ALPN), such as `h2` for HTTP/2: for nodes whose servers insist on it.
    #[must_use]
    pub fn speaking(mut self, protocol: &'static str) -> Tls {
        self.protocol = Some(protocol);
        self
    }

    /// Returns whether any of this was set, so that a node kind without TLS settings can report an
    /// error.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.authority.is_some() || self.identity.is_some() || self.server_name.is_some()
    }

    /// Checks that the files can be read and match, and that the name is valid.
    pub(crate) fn check(&self) -> Result<(), Reason> {
        if let Some(name) = &self.server_name {
            ServerName::try_from(name.as_str()).map_err(|error| {
                Reason::new(format!("the TLS server name `{name}` is not a host name")).because(error)
            })?;
        }
        if self.has_files() {
            self.load()?;
        }
        Ok(())
    }

    /// Starts TLS on a connection to `host`, for which the server's certificate must be valid.
    /// Error messages name the remedy.
    ///
    /// # Errors
    ///
    /// When a file cannot be used, the connection fails, or a certificate is rejected.
    pub async fn wrap(&self, host: &str, stream: impl Stream) -> io::Result<Box<dyn Stream>> {
        let name = self.server_name.clone().unwrap_or_else(|| host.to_owned());
        let shown: Arc<str> = name.as_str().into();
        let wanted = ServerName::try_from(name).map_err(io::Error::other)?;
        let mut config = self.config().await?;
        if let Some(protocol) = self.protocol {
            Arc::make_mut(&mut config).alpn_protocols = vec![protocol.into()];
        }
        let connecting = TlsConnector::from(config).connect(wanted, stream);
        let stream = connecting.await.map_err(|error| explain(error, &shown))?;
        Ok(Box::new(Explained { stream, name: shown }))
    }

    fn has_files(&self) -> bool {
        self.authority.is_some() || self.identity.is_some()
    }

    async fn config(&self) -> io::Result<Arc<ClientConfig>> {
        if let (Some(config), false) = (self.of_system.get(), self.has_files()) {
            return Ok(Arc::clone(config));
        }
        // A failure is not cached: the certificates may be there at the next attempt.
        let tls = self.clone();
        let config = on_thread(move || tls.load()).await?;
        let config = Arc::new(config);
        if !self.has_files() {
            drop(self.of_system.set(Arc::clone(&config)));
        }
        Ok(config)
    }

    fn load(&self) -> io::Result<ClientConfig> {
        let roots = match &self.authority {
            Some(file) => authority_in(file)?,
            None => authorities_of_system()?,
        };
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.identity else { return Ok(config.with_no_client_auth()) };
        let chain = certificates_in(certificate)?;
        let secret = PrivateKeyDer::from_pem_slice(&bytes_of("a private key", key)?)
            .map_err(|error| unusable("a private key", key, error))?;
        config
            .with_client_auth_cert(chain, secret)
            .map_err(|error| unusable("the key of the certificate", key, error))
    }
}

fn authority_in(file: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_in(file)? {
        roots.add(certificate).map_err(|error| unusable("an authority's certificate", file, error))?;
    }
    Ok(roots)
}

fn certificates_in(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let bytes = bytes_of("a certificate", file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = read.map_err(|error| unusable("a certificate", file, error))?;
    if certificates.is_empty() {
        let none = io::Error::new(io::ErrorKind::InvalidData, "it has none in PEM form");
        return Err(unusable("a certificate", file, none));
    }
    Ok(certificates)
}

/// Reads a file without waiting for whoever writes to a named pipe in its place.
fn bytes_of(what: &str, file: &Path) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;

        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let read = || {
        let mut opened = options.open(file)?;
        if !opened.metadata()?.is_file() {
            let why = "it is not a regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut bytes = Vec::new();
        opened.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error| unusable(what, file, error))
}

fn unusable(what: &str, file: &Path, why: impl Error + Send + Sync + 'static) -> io::Error {
    let words = format!("{} cannot be used as the file of {what}", file.display());
    io::Error::other(Reason::new(words).because(why))
}

fn authorities_of_system() -> io::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let why = found.errors.first().map_or_else(|| "the system has none".into(), ToString::to_string);
        return Err(io::Error::other(format!(
            "no root certificates: {why}; set a file of them with `Tls::authority`, --tls-ca or SSL_CERT_FILE"
        )));
    }
    Ok(roots)
}

/// A stream whose errors are explained. A server may request a client certificate, or reject one,
/// only after the handshake.
struct Explained<S> {
    stream: TlsStream<S>,
    name: Arc<str>,
}

impl<S: Stream> Explained<S> {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut TlsStream<S>> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl<S: Stream> AsyncRead for Explained<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.as_mut().stream().poll_read(context, buffer);
        read.map_err(|error| explain(error, &self.name))
    }
}

impl<S: Stream> AsyncWrite for Explained<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}

/// Adds a message with the remedy to a TLS error.
fn explain(error: io::Error, name: &str) -> io::Error {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) else { return error };
    io::Error::new(error.kind(), TlsFailure::new(meaning(tls, name), without_time(tls)))
}

/// Returns the error without the time at which it was found: another attempt fails for the same reason, which is logged once.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others have no time")]
fn without_time(error: &TlsError) -> TlsError {
    let TlsError::InvalidCertificate(certificate) = error else { return error.clone() };
    TlsError::InvalidCertificate(match certificate {
        CertificateError::ExpiredContext { .. } => CertificateError::Expired,
        CertificateError::NotValidYetContext { .. } => CertificateError::NotValidYet,
        other => other.clone(),
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "dozens of others have the same remedy")]
fn meaning(error: &TlsError, name: &str) -> String {
    let cause = match error {
        TlsError::InvalidCertificate(certificate) => {
            return format!("its certificate {}", fault(certificate, name));
        }
        TlsError::AlertReceived(Alert::CertificateRequired | Alert::HandshakeFailure) => {
            "it requires a client certificate; set one with `Tls::identity`, or --tls-cert and --tls-key"
        }
        TlsError::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::UnsupportedCertificate
            | Alert::DecryptError,
        ) => {
            "it rejected our client certificate; check that it has not expired and is from an authority that the \
             server trusts"
        }
        TlsError::InvalidMessage(_) => {
            "the port does not speak TLS; write redis:// instead of rediss:// (of other kinds, the address without TLS), or \
             give the server's TLS port"
        }
        _ => "check that both sides support TLS 1.2 or newer",
    };
    cause.into()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "dozens of others have the same remedy")]
fn fault(error: &CertificateError, name: &str) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "is from an authority that is not trusted; name that authority's certificate with `Tls::authority`, \
             --tls-ca or SSL_CERT_FILE"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
            "is not for the name `{name}`; use the name that it is for in the address, or set that with \
             `Tls::server_name` or --tls-server-name"
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired; renew it, or correct this machine's clock".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet; wait, or correct this machine's clock".to_owned()
        }
        CertificateError::Other(_) => {
            "cannot be used; an authority's own certificate, as made by `openssl req -x509`, is not accepted: give the \
             server one that the authority has signed for its name, and name the authority with --tls-ca"
                .to_owned()
        }
        CertificateError::UnhandledCriticalExtension => {
            "has an extension that is not understood; give the server a plain one for its name".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for servers; give the server one whose purpose is `serverAuth`".to_owned()
        }
        CertificateError::Revoked => "was revoked; give the server a new one".to_owned(),
        CertificateError::BadEncoding => "cannot be read; give the server one in X.509 form".to_owned(),
        CertificateError::BadSignature | CertificateError::UnsupportedSignatureAlgorithmContext { .. } => {
            "has a signature that cannot be verified; have it signed again".to_owned()
        }
        _ => "cannot be used; give the server one that an authority has signed for its name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::pki_types::UnixTime;

    use super::*;

    #[test]
    fn a_certificate_that_has_expired_is_the_same_error_a_second_later() {
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let seen = |certificate| {
            let error = io::Error::new(io::ErrorKind::InvalidData, TlsError::InvalidCertificate(certificate));
            let error = explain(error, "db-1");
            let failure = error.get_ref().unwrap();
            format!("{failure} {}", failure.source().unwrap())
        };
        let expired = |time| seen(CertificateError::ExpiredContext { time: at(time), not_after: at(1) });
        let early = |time| seen(CertificateError::NotValidYetContext { time: at(time), not_before: at(9) });
        assert_eq!(expired(2), expired(3));
        assert_eq!(early(2), early(3));
        assert!(expired(2).contains("has expired; renew it"), "{}", expired(2));
        assert!(early(2).contains("is not valid yet"), "{}", early(2));
    }
}
