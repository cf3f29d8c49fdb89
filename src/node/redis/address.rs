use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

mod cluster;
mod parse;

pub use cluster::ClusterAddress;

/// Where a node listens, and as whom to log in there.
///
/// | form | meaning |
/// |---|---|
/// | `redis://host`, `valkey://host`, `host` | TCP, port 6379 unless one follows after a colon |
/// | `rediss://host`, `valkeys://host` | the same over TLS (feature `tls`) |
/// | `redis+unix:///path`, `unix:///path` | a Unix socket |
///
/// User and password stand before the host, `redis://user:password@host`, or, for a socket, in
/// the query: `redis+unix:///path?user=…&pass=…`. A database number is the path, `redis://host/3`,
/// or `?db=3`. Characters that mean something in a URL are percent-encoded; a password is better
/// kept out of URLs altogether: see [`Address::set_password`].
///
/// `Display` and `Debug` show neither user nor password.
#[derive(Clone)]
pub struct Address {
    endpoint: Endpoint,
    user: Option<Arc<str>>,
    password: Option<Arc<str>>,
    database: u32,
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
            (Endpoint::Unix { .. }, Endpoint::Tcp { .. } | Endpoint::Tls { .. })
            | (Endpoint::Tcp { .. } | Endpoint::Tls { .. }, Endpoint::Unix { .. }) => false,
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
        if character.is_control() || character.is_whitespace() || matches!(character, '%' | '?' | '#') {
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
    #[error(
        "a node address begins with an unknown scheme; use redis://, rediss://, valkey://, valkeys://, redis+unix:// or redis+cluster://"
    )]
    Scheme,
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
