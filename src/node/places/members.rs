//! The members of a store and the login, as URLs name them.

use std::fmt;
#[cfg(feature = "tls")]
use std::io;
use std::sync::Arc;

use url::Url;

use crate::address::{AddressError, Endpoint, percent_decoded};
#[cfg(feature = "tls")]
use crate::node::Reason;
use crate::node::{NodeError, Seams};
use crate::transport::Stream;
#[cfg(feature = "tls")]
use crate::transport::Tls;

/// How the URLs of a store begin.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: a constant of each kind of node")]
pub struct Scheme {
    /// Without TLS: `etcd://`.
    pub plain: &'static str,
    /// With TLS: `etcds://`.
    pub encrypted: &'static str,
    /// The port, unless a member names one.
    pub port: u16,
    /// What is wrong with a URL with TLS, if this program cannot have it.
    pub without_tls: Option<&'static str>,
    /// How to write one.
    pub cure: &'static str,
}

/// A URL of such a store.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoreUrl<'a> {
    scheme: &'static Scheme,
    is_encrypted: bool,
    /// What follows the scheme.
    pub rest: &'a str,
}

impl Scheme {
    /// Begins to parse a URL with one of the schemes, in upper or lower case and also without `//`, or without any.
    ///
    /// # Errors
    ///
    /// If it wants TLS, and this program cannot have it.
    pub fn url<'a>(&'static self, text: &'a str) -> Result<StoreUrl<'a>, AddressError> {
        let named = |name: &str, scheme: &str| name.trim_end_matches("://").eq_ignore_ascii_case(scheme);
        // A host of that name has a port behind it.
        let alone = || {
            let (scheme, rest) = text.split_once(':')?;
            let is_named = named(self.plain, scheme) || named(self.encrypted, scheme);
            let is_port = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
            (is_named && !is_port).then_some((scheme, rest))
        };
        let (scheme, rest) = text.split_once("://").or_else(alone).unwrap_or(("", text));
        let is_encrypted = named(self.encrypted, scheme);
        let url = StoreUrl { scheme: self, is_encrypted, rest };
        self.without_tls.filter(|_| is_encrypted).map_or(Ok(()), |problem| Err(url.wrong(problem)))?;
        Ok(url)
    }
}

impl StoreUrl<'_> {
    /// Makes an error of a problem, which shows the scheme alone.
    #[must_use]
    pub fn wrong(&self, problem: &'static str) -> AddressError {
        let scheme = if self.is_encrypted { self.scheme.encrypted } else { self.scheme.plain };
        AddressError::malformed(format!("{scheme}…"), problem, self.scheme.cure)
    }

    /// Decodes a part of it.
    ///
    /// # Errors
    ///
    /// If it is not UTF-8.
    pub fn decoded(&self, part: &str) -> Result<String, AddressError> {
        percent_decoded(part).ok_or_else(|| self.wrong("has a `%` that is not UTF-8"))
    }

    /// Parses a login, if there is one, and hosts, which are separated by commas.
    ///
    /// # Errors
    ///
    /// A host that is none, a member that is named twice, a login that is not UTF-8.
    pub fn members(&self, login_and_hosts: &str) -> Result<Members, AddressError> {
        let (login, hosts) = login_and_hosts
            .rsplit_once('@')
            .map_or((None, login_and_hosts), |(login, hosts)| (Some(login), hosts));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None | Some(("", _)) => (None, None),
            Some((user, "")) => (Some(self.decoded(user)?), None),
            Some((user, password)) => (Some(self.decoded(user)?), Some(self.decoded(password)?)),
        };
        let mut all = Vec::new();
        for host in hosts.split(',') {
            let member =
                Member::parse(host, self.scheme.port).ok_or_else(|| self.wrong("has a host that is none"))?;
            if all.contains(&member) {
                return Err(self.wrong("names a member twice"));
            }
            all.push(member);
        }
        let StoreUrl { scheme, is_encrypted, .. } = *self;
        let (user, password) = (user.map(Arc::from), password.map(Arc::from));
        Ok(Members { scheme, is_encrypted, all: all.into(), user, password })
    }
}

/// The part of a URL that says who asks whom: `etcd://user:password@a:2379,b,c`.
///
/// `Display` shows the members alone, each with its port, and `Debug` neither user nor password.
#[derive(Clone)]
pub struct Members {
    scheme: &'static Scheme,
    is_encrypted: bool,
    all: Arc<[Member]>,
    user: Option<Arc<str>>,
    password: Option<Arc<str>>,
}

/// The address of a member for clients.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Member {
    /// A name in lower case, or an IP address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Members {
    /// Returns the members, in the order of the URL.
    #[must_use]
    pub fn all(&self) -> &[Member] {
        &self.all
    }

    /// Returns the address of each member, with its port.
    #[must_use]
    pub fn servers(&self) -> Vec<String> {
        self.all.iter().map(ToString::to_string).collect()
    }

    /// Refuses TLS settings that the connections do not use.
    ///
    /// # Errors
    ///
    /// If there are any.
    #[cfg(feature = "tls")]
    pub(super) fn check_tls(&self, seams: &Seams) -> Result<(), Reason> {
        if self.is_encrypted || self.scheme.without_tls.is_some() {
            return Ok(());
        }
        seams.refuse_unused_tls(&format!("write `{}`", self.scheme.encrypted))
    }

    /// Connects to a member, with TLS where the URL says so, and then agrees on this protocol if there is one.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the connection.
    pub async fn dial(
        &self,
        member: &Member,
        seams: &Seams,
        protocol: Option<&'static str>,
    ) -> Result<Box<dyn Stream>, NodeError> {
        let endpoint = Endpoint::Tcp { host: member.host.clone(), port: member.port };
        let stream = seams.dial().dial(&endpoint.into()).await.map_err(NodeError::undialled)?;
        #[cfg(feature = "tls")]
        if self.is_encrypted {
            let tls = protocol.into_iter().fold(seams.tls().clone(), Tls::speaking);
            return tls.wrap(&member.host, stream).await.map_err(|error| self.untied(error));
        }
        let _ = protocol;
        Ok(stream)
    }

    /// Returns the error of a TLS handshake. Servers that speak none hang up without a word, as do some that want a certificate.
    #[cfg(feature = "tls")]
    fn untied(&self, error: io::Error) -> NodeError {
        if !matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) {
            return NodeError::undialled(error);
        }
        let words = format!(
            "it ended the TLS handshake: if that port has no TLS, write `{}`, otherwise it may want a client certificate \
             (--tls-cert)",
            self.scheme.plain
        );
        // Also a member that is being stopped, so it may pass.
        NodeError::Unreachable { reason: Reason::new(words).because(error) }
    }

    /// Returns the user, if there is one. That of the program applies if the URL has none.
    #[must_use]
    pub fn user<'a>(&'a self, seams: &'a Seams) -> Option<&'a str> {
        self.user.as_deref().or(seams.username())
    }

    /// Returns user and password, if there is a user. Those of the program apply if the URL has none.
    ///
    /// # Errors
    ///
    /// The password of the program cannot be read.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the password is read again by the next call.
    pub async fn login<'a>(&'a self, seams: &'a Seams) -> Result<Option<(&'a str, Arc<str>)>, NodeError> {
        let Some(user) = self.user(seams) else { return Ok(None) };
        let password = seams.password(self.password.as_deref()).await?;
        Ok(Some((user, password.unwrap_or_default())))
    }
}

impl Member {
    fn parse(text: &str, port: u16) -> Option<Member> {
        let url = Url::parse(&format!("member://{text}")).ok()?;
        let host = url.host_str().filter(|host| !host.is_empty())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        Some(Member { host, port: url.port().unwrap_or(port) })
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Member { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_encrypted { self.scheme.encrypted } else { self.scheme.plain })?;
        f.write_str(&self.servers().join(","))
    }
}

impl AsRef<Members> for Members {
    fn as_ref(&self) -> &Members {
        self
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Members").field(&self.to_string()).finish()
    }
}
