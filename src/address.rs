use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

mod cluster;
mod parse;
mod sentinel;

pub use cluster::ClusterAddress;
pub(crate) use cluster::SCHEMES as CLUSTER_SCHEMES;
pub(crate) use parse::SCHEMES;
pub use parse::percent_decoded;

/// Where a node listens, and as whom to log in there.
///
/// | form | meaning |
/// |---|---|
/// | `redis://host`, `valkey://host`, `host` | TCP, port 6379 unless one follows after a colon |
/// | `rediss://host`, `valkeys://host` | the same over TLS (feature `tls`) |
/// | `redis+unix:///path`, `unix:///path` | a Unix socket |
/// | `redis+sentinel://host,host:port/service` | the master of this name, as the Sentinels at these hosts know it; port 26379 unless one follows |
/// | `rediss+sentinel://host,host:port/service` | the same, with TLS to the Sentinels and to the master |
///
/// User and password stand before the host, `redis://user:password@host`, or, for a socket, in
/// the query: `redis+unix:///path?user=…&pass=…`. A database number is the path, `redis://host/3`,
/// or `?db=3`; behind a service, `/service/3`. Sentinels that want a user and a password get those in
/// `?sentinel_username=…&sentinel_password=…`; what stands before the hosts is for the master.
///
/// With `?wait=1` a vote counts only when so many replicas have confirmed it (`WAIT`): see
/// [`Address::wait`]. Characters that mean something in a URL are percent-encoded; a password is better
/// kept out of URLs altogether: see [`Address::set_password`].
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
    wait: u32,
}

/// What to connect to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Endpoint {
    /// A TCP port.
    Tcp {
        /// Name or address, in lower case and without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A TCP port that speaks TLS.
    Tls {
        /// Name or address, in lower case and without brackets: the certificate must be for it.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix {
        /// Its path.
        path: PathBuf,
    },
    /// The master of a service, wherever its Sentinels say that it is. It is not dialled itself: one
    /// of the others is.
    Sentinel {
        /// What the Sentinels call it.
        service: String,
        /// Where they listen.
        sentinels: Vec<Endpoint>,
    },
}

impl Address {
    /// Reads an address in one of the forms above.
    ///
    /// # Errors
    ///
    /// Says what is wrong and what would be right. A malformed address may have a password in an
    /// unexpected place, so messages show no more of it than was understood.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        parse::parse(text)
    }

    /// What to connect to.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Logs in as this ACL user, instead of the one in the address.
    pub fn set_user(&mut self, user: &str) {
        self.user = Some(user.into());
    }

    /// Logs in with this password, instead of the one in the address. It is sent as it is: nothing
    /// is percent-decoded.
    pub fn set_password(&mut self, password: &str) {
        self.password = Some(password.into());
    }

    /// How many replicas must have confirmed a vote of this node before it counts: none unless the
    /// address says otherwise.
    ///
    /// Redis copies to its replicas after it has answered. With `?wait=1` each vote is followed by
    /// `WAIT 1` on its connection, for at most 25 ms, or half of the node limit if that is set; a vote that is not confirmed by
    /// then counts as unanswered, and is cleaned up. So a replica that takes the place of its master
    /// lacks fewer locks. It is not consensus: which replica is promoted is decided by others, and one
    /// that has confirmed may forget. It costs a round trip from the master to its replica for each
    /// vote, and the node's vote whenever too few replicas answer in time.
    #[must_use]
    pub fn wait(&self) -> u32 {
        self.wait
    }

    /// Whether both name the same server. User, password and database do not matter, since two
    /// databases of one server fail together: they are one node, not two.
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

    /// The servers that it leads to, in one spelling: [the same](Address::same_server) have one in common.
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
            wait: 0,
        }
    }

    fn set_wait(&mut self, text: &str, shown: &str) -> Result<(), AddressError> {
        self.wait = text.parse().map_err(|_| AddressError::Malformed {
            shown: shown.into(),
            problem: "has a `wait` that is no number",
            cure: "say how many replicas must confirm a vote, as in `?wait=1`",
        })?;
        Ok(())
    }

    /// What the Sentinels call the master, if the address is that of a service.
    pub(crate) fn service(&self) -> Option<&str> {
        match &self.endpoint {
            Endpoint::Sentinel { service, .. } => Some(service),
            Endpoint::Tcp { .. } | Endpoint::Tls { .. } | Endpoint::Unix { .. } => None,
        }
    }

    /// Each Sentinel, with what it wants to know of who asks.
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

    /// The same user, password and settings at another place.
    pub(crate) fn at(&self, endpoint: Endpoint) -> Address {
        Address { endpoint, ..self.clone() }
    }

    /// What people call the node: the name of the service, and a Sentinel that tells it from those of
    /// the same name elsewhere; of any other its address.
    pub(crate) fn name(&self) -> String {
        match &self.endpoint {
            Endpoint::Sentinel { service, sentinels } => {
                let first = sentinels.first().map(ToString::to_string).unwrap_or_default();
                let (_, first) = first.split_once("://").unwrap_or(("", &first));
                format!("{}@{first}", encoded(service))
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
    /// An address without user and password.
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
        match (&self.endpoint, self.database) {
            (endpoint @ Endpoint::Unix { .. }, database) if database > 0 => {
                write!(f, "{endpoint}?db={database}")
            }
            (endpoint, 0) => write!(f, "{endpoint}"),
            (endpoint, database) => write!(f, "{endpoint}/{database}"),
        }
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

/// The path with everything percent-encoded that would be read as something else, or would move the
/// cursor of the terminal that shows it.
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

/// Why an address is refused. Never contains the address itself, which may contain a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// There is no address.
    #[error("a node address is empty; give one such as `redis://10.0.0.1:6379`")]
    Empty,
    /// It begins with something unknown.
    #[error("a node address begins with an unknown scheme; use {known}")]
    #[non_exhaustive]
    Scheme {
        /// Those that are known.
        known: String,
    },
    /// It asks for TLS, which was not built in.
    #[error(
        "a node address asks for TLS, and this program was built without it; enable the feature `tls` of quorlock"
    )]
    NoTls,
    /// Some part of it is wrong.
    #[error("the node address `{shown}` {problem}; {cure}")]
    #[non_exhaustive]
    Malformed {
        /// As much of the address as was understood.
        shown: String,
        /// What is wrong.
        problem: &'static str,
        /// What would be right.
        cure: &'static str,
    },
    /// In a list, blanks stand between addresses.
    #[error("separate addresses by commas, and not by blanks")]
    Blanks,
    /// In a list, a comma stands within a user or a password.
    #[error(
        "an address with a user or a password seems to be cut at a comma; a comma within them is written %2C, \
         or give the password apart from the address, and each address in a list begins with its scheme, such \
         as redis://"
    )]
    CutAtComma,
}

impl AddressError {
    /// Some part of an address is wrong. Of that only what was understood is `shown`, and the rest is fixed
    /// text: there may be a password anywhere in it.
    #[must_use]
    pub fn malformed(shown: impl Into<String>, problem: &'static str, cure: &'static str) -> AddressError {
        AddressError::Malformed { shown: shown.into(), problem, cure }
    }

    /// The scheme is none of these.
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
    fn two_spellings_of_one_server_are_the_same() {
        let same =
            |one: &str, two: &str| Address::parse(one).unwrap().same_server(&Address::parse(two).unwrap());
        assert!(same("redis://DB-7", "valkey://anna:x@db-7:6379/3"));
        assert!(same("redis://[::1]:7", "redis://[0:0:0:0:0:0:0:1]:7"));
        assert!(same("unix:///run//redis.sock", "redis+unix:///run/redis.sock?db=4"));
        assert!(!same("redis://db-7", "redis://db-7:6380"));
        assert!(!same("redis://db-7", "unix:///db-7"));
    }
}
