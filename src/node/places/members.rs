//! The members of a store and the login, as URLs name them.

use std::fmt;
use std::sync::Arc;

use url::Url;

use crate::address::{AddressError, percent_decoded};
use crate::node::{NodeError, Seams};

/// The part of a URL that says who asks whom: `user:password@a:2379,b,c`.
///
/// `Display` shows the members alone, each with its port, and `Debug` neither user nor password.
#[derive(Clone)]
pub struct Members {
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
    /// Parses a login, if there is one, and hosts, which are separated by commas and have this port unless they name one.
    ///
    /// # Errors
    ///
    /// What `wrong` makes of the problem: a host that is none, a member that is named twice, a login that is not UTF-8.
    pub fn parse(
        text: &str,
        port: u16,
        wrong: impl Fn(&'static str) -> AddressError,
    ) -> Result<Members, AddressError> {
        let (login, hosts) =
            text.rsplit_once('@').map_or((None, text), |(login, hosts)| (Some(login), hosts));
        let decoded = |text| percent_decoded(text).ok_or_else(|| wrong("has a `%` that is not UTF-8"));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None | Some(("", _)) => (None, None),
            Some((user, "")) => (Some(decoded(user)?), None),
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
        };
        let mut all = Vec::new();
        for host in hosts.split(',') {
            let member = Member::parse(host, port).ok_or_else(|| wrong("has a host that is none"))?;
            if all.contains(&member) {
                return Err(wrong("names a member twice"));
            }
            all.push(member);
        }
        Ok(Members { all: all.into(), user: user.map(Arc::from), password: password.map(Arc::from) })
    }

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
        f.write_str(&self.servers().join(","))
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Members").field(&self.to_string()).finish()
    }
}
