//! Parses node URLs: the server, and the login.

use std::fmt;
use std::net::IpAddr;
#[cfg(feature = "tls")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "tls")]
use quorlock::node::Reason;
use quorlock::node::shedlock::table_name;
use quorlock::node::{AddressError, NodeError, Seams, percent_decoded};
use url::Url;

/// A parsed node URL: `mysql://user:password@host:3306/database`.
#[derive(Clone)]
pub(crate) struct Database {
    scheme: &'static str,
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<String>,
    name: String,
    tls: Encryption,
    /// Whether a server on this machine may have the password itself without TLS.
    trusts_loopback: bool,
    /// The name of `ShedLock`'s table, if locks are its rows.
    shedlock: Option<Arc<str>>,
}

/// Encryption of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encryption {
    on: bool,
    /// Whether the URL says that it is off.
    off_on_purpose: bool,
    /// A file with trusted CA certificates, which replaces the default ones.
    authority: Option<PathBuf>,
}

const PORT: u16 = 3306;
const CURE: &str = "write `mysql://user:password@host:3306/database`";

impl Database {
    /// Parses a URL with the scheme `mysql` or `mariadb`.
    pub(crate) fn parse(text: &str) -> Result<Database, AddressError> {
        let scheme = match text.split_once("://") {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("mariadb") => "mariadb",
            _ => "mysql",
        };
        let wrong = |problem| AddressError::malformed(format!("{scheme}://…"), problem, CURE);
        let url = Url::parse(text).map_err(|_| wrong("is not a URL"))?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("has no host"))?;
        let decoded = |text: &str, problem| percent_decoded(text).ok_or_else(|| wrong(problem));
        let name = decoded(url.path().trim_matches('/'), "has a `%` in its database that is not UTF-8")?;
        if name.is_empty() {
            return Err(wrong("names no database"));
        }
        let user = match url.username() {
            "" => None,
            user => Some(decoded(user, "has a `%` in its user that is not UTF-8")?),
        };
        let password =
            url.password().map(|password| decoded(password, "has a `%` in its password that is not UTF-8"));
        let mut tls = Encryption::default();
        let (mut layout, mut table, mut trusts_loopback) = (false, None, false);
        for (key, value) in url.query_pairs() {
            match (&*key, &*value) {
                ("tls", "on" | "off") => (tls.on, tls.off_on_purpose) = (value == "on", value == "off"),
                ("tls-ca", file) if !file.is_empty() => tls.authority = Some(file.into()),
                ("tls", _) => return Err(wrong("has a `tls` that is neither `on` nor `off`")),
                ("cleartext-password", "loopback") => trusts_loopback = true,
                ("layout", "shedlock") => layout = true,
                ("layout", _) => return Err(wrong("has a `layout` other than `shedlock`")),
                ("table", name) => table = Some(name.to_owned()),
                _ => {
                    return Err(wrong(
                        "has a parameter other than `tls=on`, `tls-ca=FILE`, `cleartext-password=loopback`, `layout=shedlock` and \
                         `table=NAME`",
                    ));
                }
            }
        }
        if table.is_some() && !layout {
            return Err(wrong("has a `table` without `layout=shedlock`"));
        }
        let named = layout.then(|| table_name(table.as_deref()));
        let shedlock = named
            .map(|name| name.ok_or_else(|| wrong("has a `table` that is not a plain table name")))
            .transpose()?;
        if tls.authority.is_some() && !tls.on {
            return Err(wrong("has a `tls-ca` without `tls=on`"));
        }
        if tls.on && !cfg!(feature = "tls") {
            return Err(wrong(
                "asks for TLS, and this program was built without the feature `tls` of quorlock-mysql",
            ));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if trusts_loopback && !is_local(&host) {
            return Err(wrong("has `cleartext-password=loopback`, and its host is not on loopback"));
        }
        Ok(Database {
            scheme,
            host,
            port: url.port().unwrap_or(PORT),
            user,
            password: password.transpose()?,
            name,
            tls,
            trusts_loopback,
            shedlock,
        })
    }

    /// Host and port, which identify the server.
    pub(crate) fn server(&self) -> String {
        let Database { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The name of `ShedLock`'s table, if locks are its rows.
    pub(crate) fn shedlock(&self) -> Option<&Arc<str>> {
        self.shedlock.as_ref()
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.on
    }

    /// Whether the server may have the password itself without TLS.
    pub(crate) fn trusts_loopback(&self) -> bool {
        self.trusts_loopback
    }

    /// Returns why the program's TLS settings prevent this node: without TLS they would protect nothing.
    #[cfg(feature = "tls")]
    pub(crate) fn refuse_unused_tls(&self, seams: &Seams) -> Result<(), Reason> {
        if self.tls.on || self.tls.off_on_purpose {
            return Ok(());
        }
        seams.refuse_unused_tls("write `?tls=on`, or `?tls=off` for a network that you trust")
    }

    /// The file with the trusted authorities, if the URL names one.
    #[cfg(feature = "tls")]
    pub(crate) fn authority(&self) -> Option<&Path> {
        self.tls.authority.as_deref()
    }

    /// Returns user and password. Those of the program apply if the URL has none.
    pub(crate) async fn credentials<'a>(
        &'a self,
        seams: &'a Seams,
    ) -> Result<(&'a str, Arc<str>), NodeError> {
        let user = self.user.as_deref().or(seams.username());
        let password = seams.password(self.password.as_deref()).await?;
        Ok((user.unwrap_or_default(), password.unwrap_or_default()))
    }
}

/// Whether only processes of this machine can listen there.
pub(crate) fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The displayed name: without user and password.
impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.scheme, self.server(), self.name)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.to_string()).finish()
    }
}
