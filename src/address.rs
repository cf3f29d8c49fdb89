use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

mod cluster;
mod parse;

pub use cluster::ClusterAddress;
pub(crate) use cluster::SCHEMES as CLUSTER_SCHEMES;
pub(crate) use parse::SCHEMES;
pub use parse::percent_decoded;

/// The address of a node, with the credentials to log in there.
///
/// | form | meaning |
/// |---|---|
/// | `redis://host`, `valkey://host`, `host` | TCP, port 6379 unless `:port` follows |
/// | `rediss://host`, `valkeys://host` | the same over TLS (feature `tls`) |
/// | `redis+unix:///path`, `unix:///path` | a Unix socket |
/// | `redis+sentinel://host,host:port/service` | the master of this service, looked up through the Sentinels at these hosts; port 26379 unless given |
/// | `rediss+sentinel://host,host:port/service` | the same, with TLS to the Sentinels and to the master |
///
/// User and password precede the host, `redis://user:password@host`; for a socket they are in the query:
/// `redis+unix:///path?user=…&pass=…`. The database number is the path, `redis://host/3`; for a socket it is `?db=3`,
/// and for a service it follows the name: `/service/3`. Credentials for the Sentinels themselves are given by
/// `?sentinel_username=…&sentinel_password=…`; those before the hosts are for the master.
///
/// With `?layout=redisson` locks are stored as Redisson stores its own (`docs/redisson.md`). With `?forgets=never` the
/// operator says that the node keeps every write that it has acknowledged, whatever happens to its servers: then its vote
/// counts right after a restart, failover or promotion (rule I-53, `docs/trust.md`). Characters with a meaning
/// in URLs must be percent-encoded. Prefer to keep passwords out of URLs: see [`Address::set_password`].
///
/// `Display` and `Debug` show neither user nor password.
#[derive(Clone)]
pub struct Address {
    endpoint: Endpoint,
    user: Option<Arc<str>>,
    password: Option<Arc<str>>,
    database: u32,
    sentinel_user: Option<Arc<str>>,
    sentinel_password: Option<Arc<str>>,
    layout: Layout,
    never_forgets: bool,
}

/// How locks are stored on a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// As this library stores them.
    Own,
    /// As Redisson stores them: other programs lock there without this library (ADR 8).
    Redisson,
}

/// The transport and location of a server.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Endpoint {
    /// A TCP port.
    Tcp {
        /// Host name or IP address, in lower case and without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A TCP port that speaks TLS.
    Tls {
        /// Host name or IP address, in lower case and without brackets. The certificate must be valid for it.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix {
        /// The path of the socket.
        path: PathBuf,
    },
    /// The current master of a service, as its Sentinels report it. It is never dialled itself: the reported
    /// master is.
    Sentinel {
        /// The name of the service.
        service: String,
        /// The addresses of the Sentinels.
        sentinels: Vec<Endpoint>,
    },
}

/// The value of `?layout=` for Redisson's layout.
const REDISSON: &str = "redisson";
/// The only value of `?forgets=`.
const NEVER: &str = "never";

impl Address {
    /// Parses an address in one of the forms above.
    ///
    /// # Errors
    ///
    /// The error names the problem and the fix. A malformed address may contain a password in an unexpected
    /// place, so the message shows only the parts that were understood.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        parse::parse(text)
    }

    /// Returns the transport and location.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sets the ACL user to log in as, replacing the one in the address.
    pub fn set_user(&mut self, user: &str) {
        self.user = Some(user.into());
    }

    /// Sets the password to log in with, replacing the one in the address. It is sent as is, without
    /// percent-decoding.
    pub fn set_password(&mut self, password: &str) {
        self.password = Some(password.into());
    }

    /// Returns whether both addresses lead to the same server. User, password and database are ignored: two
    /// databases of one server fail together, so they are one node.
    #[must_use]
    pub fn same_server(&self, other: &Address) -> bool {
        match (&self.endpoint, &other.endpoint) {
            (Endpoint::Unix { path: one }, Endpoint::Unix { path: two }) => one == two,
            (
                Endpoint::Tcp { host: one, port } | Endpoint::Tls { host: one, port },
                Endpoint::Tcp { host: two, port: other } | Endpoint::Tls { host: two, port: other },
            ) => one == two && port == other,
            (
                Endpoint::Sentinel { service: one, sentinels },
                Endpoint::Sentinel { service: two, sentinels: others },
            ) => one == two && sentinels.iter().any(|sentinel| others.contains(sentinel)),
            (Endpoint::Unix { .. } | Endpoint::Sentinel { .. }, _)
            | (_, Endpoint::Unix { .. } | Endpoint::Sentinel { .. }) => false,
        }
    }

    /// Returns the servers behind the address, normalized. Two addresses are [the same](Address::same_server)
    /// if they have a server in common.
    pub(crate) fn servers(&self) -> Vec<String> {
        match &self.endpoint {
            Endpoint::Tcp { host, port } | Endpoint::Tls { host, port } => vec![format!("{host}:{port}")],
            Endpoint::Unix { path } => vec![encoded(&path.to_string_lossy())],
            Endpoint::Sentinel { service, sentinels } => {
                sentinels.iter().map(|sentinel| format!("{}@{sentinel}", encoded(service))).collect()
            }
        }
    }

    fn new(endpoint: Endpoint) -> Address {
        Address {
            endpoint,
            user: None,
            password: None,
            database: 0,
            sentinel_user: None,
            sentinel_password: None,
            layout: Layout::Own,
            never_forgets: false,
        }
    }

    fn set_forgets(&mut self, text: &str, shown: &str) -> Result<(), AddressError> {
        if text != NEVER {
            return Err(AddressError::Malformed {
                shown: shown.into(),
                problem: "has an unknown `forgets`",
                cure: "write `?forgets=never` if the node keeps every acknowledged write, or leave it out",
            });
        }
        self.never_forgets = true;
        Ok(())
    }

    /// Whether the operator says that the node loses no acknowledged write (rule I-53).
    pub(crate) fn never_forgets(&self) -> bool {
        self.never_forgets
    }

    fn set_layout(&mut self, text: &str, shown: &str) -> Result<(), AddressError> {
        if text != REDISSON {
            return Err(AddressError::Malformed {
                shown: shown.into(),
                problem: "has an unknown `layout`",
                cure: "write `?layout=redisson`, or leave it out",
            });
        }
        self.layout = Layout::Redisson;
        Ok(())
    }

    /// Returns how locks are stored there.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the name of the service, if the address is that of a service.
    pub(crate) fn service(&self) -> Option<&str> {
        match &self.endpoint {
            Endpoint::Sentinel { service, .. } => Some(service),
            Endpoint::Tcp { .. } | Endpoint::Tls { .. } | Endpoint::Unix { .. } => None,
        }
    }

    /// Returns the address of each Sentinel, with the credentials for Sentinels.
    pub(crate) fn sentinels(&self) -> impl Iterator<Item = Address> {
        let sentinels: &[Endpoint] = match &self.endpoint {
            Endpoint::Sentinel { sentinels, .. } => sentinels,
            Endpoint::Tcp { .. } | Endpoint::Tls { .. } | Endpoint::Unix { .. } => &[],
        };
        sentinels.iter().map(|endpoint| Address {
            user: self.sentinel_user.clone(),
            password: self.sentinel_password.clone(),
            ..Address::new(endpoint.clone())
        })
    }

    /// Returns the same credentials and settings for another endpoint.
    pub(crate) fn at(&self, endpoint: Endpoint) -> Address {
        Address { endpoint, ..self.clone() }
    }

    /// Returns the display name of the node: for a service, its name and the first Sentinel, which tells
    /// apart services of the same name; otherwise the address.
    pub(crate) fn name(&self) -> String {
        match &self.endpoint {
            Endpoint::Sentinel { service, sentinels } => {
                let first = sentinels.first().map(ToString::to_string).unwrap_or_default();
                let (_, first) = first.split_once("://").unwrap_or(("", &first));
                let word = if self.never_forgets { "?forgets=never" } else { "" };
                format!("{}@{first}{word}", encoded(service))
            }
            Endpoint::Tcp { .. } | Endpoint::Tls { .. } | Endpoint::Unix { .. } => self.to_string(),
        }
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    pub(crate) fn database(&self) -> u32 {
        self.database
    }
}

impl From<Endpoint> for Address {
    /// Returns an address without user and password.
    fn from(endpoint: Endpoint) -> Address {
        Address::new(endpoint)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        Address::parse(text)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoint)?;
        let mut before = "?";
        match (self.database, &self.endpoint) {
            (0, _) => {}
            (database, Endpoint::Unix { .. }) => {
                write!(f, "?db={database}")?;
                before = "&";
            }
            (database, _) => write!(f, "/{database}")?,
        }
        self.write_settings(before, f)
    }
}

impl Address {
    /// Writes the settings that say how the node is used, behind `before` and `&`.
    fn write_settings(&self, mut before: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.layout == Layout::Redisson {
            write!(f, "{before}layout={REDISSON}")?;
            before = "&";
        }
        if self.never_forgets {
            write!(f, "{before}forgets={NEVER}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Endpoint::Tcp { host, port } => ("redis", host, port),
            Endpoint::Tls { host, port } => ("rediss", host, port),
            Endpoint::Unix { path } => return write!(f, "redis+unix://{}", encoded(&path.to_string_lossy())),
            Endpoint::Sentinel { service, sentinels } => {
                let scheme = if sentinels.iter().any(|it| matches!(it, Endpoint::Tls { .. })) {
                    "rediss"
                } else {
                    "redis"
                };
                let hosts = sentinels.iter().map(|sentinel| {
                    let shown = sentinel.to_string();
                    shown.split_once("://").map_or_else(String::new, |(_, host)| host.to_owned())
                });
                let hosts = hosts.collect::<Vec<_>>().join(",");
                return write!(f, "{scheme}+sentinel://{hosts}/{}", encoded(service));
            }
        };
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

/// Percent-encodes everything in the path that would parse differently or is a control character.
fn encoded(path: &str) -> String {
    let mut shown = String::with_capacity(path.len());
    for character in path.chars() {
        if character.is_control() || character.is_whitespace() || matches!(character, '%' | '?' | '#' | '@') {
            let mut bytes = [0; 4];
            shown.extend(character.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// What is said of a list in place of an address.
pub(crate) const LIST: (&str, &str) = (
    "is a list",
    "give each address by itself, as `Kinds::split` does it, and write a comma within one as %2C",
);

/// The error of [`Address::parse`]. Never contains the address itself, which may contain a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The address is empty.
    #[error("a node address is empty; give one such as `redis://10.0.0.1:6379`")]
    Empty,
    /// The scheme is unknown.
    #[error("a node address begins with an unknown scheme; use {known}")]
    #[non_exhaustive]
    Scheme {
        /// The known schemes.
        known: String,
    },
    /// The address requires TLS, but this build has no TLS support.
    #[error(
        "a node address asks for TLS, and this program was built without it; enable the feature `tls` of quorlock"
    )]
    NoTls,
    /// A part of the address is invalid.
    #[error("the node address `{shown}` {problem}; {cure}")]
    #[non_exhaustive]
    Malformed {
        /// The part of the address that was understood.
        shown: String,
        /// What is wrong.
        problem: &'static str,
        /// How to fix it.
        cure: &'static str,
    },
    /// The addresses in a list are separated by spaces.
    #[error("separate addresses with commas, not spaces")]
    Blanks,
    /// A list contains a comma within a user name or a password.
    #[error(
        "an address with a user or a password seems to be cut at a comma; write a comma in them as %2C, \
         or give the password separately, and begin each address in a list with its scheme, such \
         as redis://"
    )]
    CutAtComma,
}

impl AddressError {
    /// Creates a [`Malformed`](AddressError::Malformed) error. `shown` must contain only the part of the
    /// address that was understood, since the rest may contain a password; `problem` and `cure` are fixed
    /// texts for that reason.
    #[must_use]
    pub fn malformed(shown: impl Into<String>, problem: &'static str, cure: &'static str) -> AddressError {
        AddressError::Malformed { shown: shown.into(), problem, cure }
    }

    /// Creates a [`Scheme`](AddressError::Scheme) error that lists the `known` schemes.
    pub(crate) fn scheme<'a>(known: impl IntoIterator<Item = &'a str>) -> AddressError {
        let mut known: Vec<String> = known.into_iter().map(|scheme| format!("{scheme}://")).collect();
        let last = known.pop().unwrap_or_default();
        let known = if known.is_empty() { last } else { format!("{} or {last}", known.join(", ")) };
        AddressError::Scheme { known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_can_be_given_apart_from_the_address() {
        let mut address = Address::parse("redis://db-7").unwrap();
        address.set_user("anna");
        address.set_password("100%");
        assert_eq!((address.user(), address.password()), (Some("anna"), Some("100%")));
    }

    #[test]
    fn the_operators_word_is_shown_with_the_address_and_with_the_name() {
        for (address, shown) in [
            ("redis://a?forgets=never", "redis://a:6379?forgets=never"),
            ("redis://a/3?forgets=never&layout=redisson", "redis://a:6379/3?layout=redisson&forgets=never"),
            (
                "unix:///a?forgets=never&db=2&layout=redisson",
                "redis+unix:///a?db=2&layout=redisson&forgets=never",
            ),
        ] {
            let address = Address::parse(address).unwrap();
            assert_eq!((address.to_string(), address.name()), (shown.to_owned(), shown.to_owned()));
            assert_eq!(Address::parse(shown).unwrap().to_string(), shown);
        }
        let service = Address::parse("redis+sentinel://a,b/m?forgets=never").unwrap();
        assert_eq!(service.name(), "m@a:26379?forgets=never");
        assert_eq!(service.to_string(), "redis+sentinel://a:26379,b:26379/m?forgets=never");
    }

    #[test]
    fn two_spellings_of_one_server_are_equal() {
        let same =
            |one: &str, two: &str| Address::parse(one).unwrap().same_server(&Address::parse(two).unwrap());
        assert!(same("redis://DB-7", "valkey://anna:x@db-7:6379/3"));
        assert!(same("redis://[::1]:7", "redis://[0:0:0:0:0:0:0:1]:7"));
        assert!(same("unix:///run//redis.sock", "redis+unix:///run/redis.sock?db=4"));
        assert!(!same("redis://db-7", "redis://db-7:6380"));
        assert!(!same("redis://db-7", "unix:///db-7"));
    }
}
