//! Addresses of databases.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use quorlock::{
    node::{AddressError, percent_decoded},
    redis::Endpoint,
};
use url::Url;

use crate::guard::Way;
use crate::shedlock;

/// The location of a database and the login.
#[derive(Clone)]
pub(crate) struct DatabaseUrl {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) password: Option<Arc<str>>,
    pub(crate) database: Option<Arc<str>>,
    pub(crate) encrypted: bool,
    /// Whether the address says that there is no TLS.
    pub(crate) plain_on_purpose: bool,
    /// Whether a server on loopback may have the password itself without TLS.
    pub(crate) trusts_loopback: bool,
    /// The maximum number of connections.
    pub(crate) connections: usize,
    /// The table of `ShedLock`, if locks are its rows.
    pub(crate) shedlock: Option<shedlock::Layout>,
}

/// The server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// A name or an address, in lower case and without brackets.
    Tcp(String),
    /// The folder of a Unix socket.
    Folder(PathBuf),
}

const PORT: u16 = 5432;
/// A backend flushes each of its commits separately; several backends flush concurrent commits together.
/// Connections are opened under load.
const MOST_CONNECTIONS: usize = 16;
const FORM: &str = "write it as `postgres://user@host:5432/database?sslmode=verify-full`";

impl DatabaseUrl {
    /// Parses `postgres://user:password@host:port/database?options`.
    pub(crate) fn parse(text: &str) -> Result<DatabaseUrl, AddressError> {
        let wrong = |problem, cure| AddressError::malformed("postgres://…", problem, cure);
        let (_, rest) = text.split_once("://").ok_or_else(|| wrong("has no host", FORM))?;
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.rsplit('@').next().unwrap_or_default().contains(',') {
            return Err(wrong(
                "names several hosts, and a node is one server",
                "write an address for each; for a server that may be replaced by another, give one name for both",
            ));
        }
        // `Url` requires a host, which the address may give in the options instead.
        let has_host = !authority.rsplit('@').next().unwrap_or_default().is_empty();
        let rest =
            if has_host { rest.to_owned() } else { rest.replacen(authority, &format!("{authority}."), 1) };
        let url = Url::parse(&format!("postgres://{rest}")).map_err(|_| wrong("cannot be read", FORM))?;
        if url.fragment().is_some() {
            return Err(wrong("has a `#` in it", "percent-encode it in user and password, as `%23`"));
        }
        let part = |text: &str| {
            let decoded =
                percent_decoded(text).ok_or_else(|| wrong("has a `%` that encodes no UTF-8", FORM))?;
            Ok::<_, AddressError>((!decoded.is_empty()).then(|| Arc::<str>::from(decoded)))
        };
        let host = part(url.host_str().filter(|_| has_host).unwrap_or_default())?;
        let mut database = DatabaseUrl {
            host: Host::Tcp(String::new()),
            port: url.port().unwrap_or(PORT),
            user: part(url.username())?,
            password: part(url.password().unwrap_or_default())?,
            database: part(url.path().trim_start_matches('/'))?,
            encrypted: false,
            plain_on_purpose: false,
            trusts_loopback: false,
            connections: MOST_CONNECTIONS,
            shedlock: None,
        };
        let (mut layout, mut table) = (false, None);
        let mut place = host;
        for (name, value) in url.query_pairs() {
            match &*name {
                "sslmode" => {
                    database.encrypted = encrypted(&value).map_err(|(problem, cure)| wrong(problem, cure))?;
                    database.plain_on_purpose = !database.encrypted;
                }
                "cleartext-password" if &*value == "loopback" => database.trusts_loopback = true,
                "connections" => {
                    let count = value.parse().ok().filter(|count| (1..=MOST_CONNECTIONS).contains(count));
                    database.connections = count
                        .ok_or_else(|| wrong("has a wrong `connections`", "give a number from 1 to 16"))?;
                }
                "layout" if &*value == "shedlock" => layout = true,
                "layout" => {
                    return Err(wrong("has an unknown layout", "write `layout=shedlock`, or omit it"));
                }
                "table" => table = Some(value.into_owned()),
                "host" if place.is_none() => place = Some((*value).into()),
                "port" => {
                    database.port = value
                        .parse()
                        .map_err(|_| wrong("has a wrong `port`", "give a number, such as 5432"))?;
                }
                "user" if database.user.is_none() => database.user = Some((*value).into()),
                "password" if database.password.is_none() => database.password = Some((*value).into()),
                "dbname" if database.database.is_none() => database.database = Some((*value).into()),
                _ => {
                    return Err(wrong(
                        "has an unknown option",
                        "the options are sslmode, cleartext-password=loopback, connections, layout, table, host, port, user, \
                         password and dbname",
                    ));
                }
            }
        }
        if layout {
            let named = shedlock::Layout::of(table.as_deref());
            let cure = "name it as in the settings of ShedLock: letters, digits and `_`, optionally after a schema and a dot";
            database.shedlock = Some(named.ok_or_else(|| wrong("has a wrong `table`", cure))?);
            // A late request is stopped by the next connection in its place, so no key may move to another
            // connection.
            database.connections = 1;
        } else if table.is_some() {
            let cure = "write `layout=shedlock&table=…`, or omit it";
            return Err(wrong("has a `table` without a layout", cure));
        }
        let place = place.ok_or_else(|| wrong("has no host", FORM))?;
        if cfg!(not(feature = "tls")) && database.encrypted {
            return Err(without_tls());
        }
        database.host = if place.starts_with('/') {
            Host::Folder(PathBuf::from(&*place))
        } else {
            Host::Tcp(place.trim_start_matches('[').trim_end_matches(']').to_lowercase())
        };
        if matches!(database.host, Host::Folder(_)) && database.encrypted {
            return Err(wrong("asks for TLS over a Unix socket", "omit `sslmode`"));
        }
        if database.trusts_loopback && database.way() == Way::Network {
            return Err(wrong(
                "has `cleartext-password=loopback`, and its host is not on loopback",
                "write sslmode=verify-full instead",
            ));
        }
        Ok(database)
    }

    /// Returns the endpoint to dial. TLS begins after the server has agreed.
    pub(crate) fn endpoint(&self) -> Endpoint {
        match &self.host {
            Host::Tcp(host) => Endpoint::Tcp { host: host.clone(), port: self.port },
            Host::Folder(folder) => Endpoint::Unix { path: folder.join(format!(".s.PGSQL.{}", self.port)) },
        }
    }

    /// Who may read the password on its way.
    pub(crate) fn way(&self) -> Way {
        match &self.host {
            Host::Folder(_) => Way::Private,
            Host::Tcp(_) if self.encrypted => Way::Private,
            Host::Tcp(host) if is_loopback(host) => {
                if self.trusts_loopback {
                    Way::Private
                } else {
                    Way::Loopback
                }
            }
            Host::Tcp(_) => Way::Network,
        }
    }

    /// Whether there is no TLS to a server over a network, and the address does not say so.
    #[cfg(feature = "tls")]
    pub(crate) fn is_plain_by_omission(&self) -> bool {
        matches!(self.host, Host::Tcp(_)) && !self.encrypted && !self.plain_on_purpose
    }

    /// Returns the server in a canonical spelling.
    pub(crate) fn server(&self) -> String {
        match &self.host {
            Host::Tcp(host) if host.contains(':') => format!("[{host}]:{}", self.port),
            Host::Tcp(host) => format!("{host}:{}", self.port),
            Host::Folder(folder) => format!("{}:{}", folder.display(), self.port),
        }
    }
}

/// Whether only processes of this machine can listen there.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Whether to encrypt. There is nothing in between: optional encryption may be downgraded.
fn encrypted(mode: &str) -> Result<bool, (&'static str, &'static str)> {
    match mode {
        "disable" => Ok(false),
        "require" | "verify-ca" | "verify-full" => Ok(true),
        "allow" | "prefer" => Err((
            "does not require encryption",
            "write sslmode=verify-full, or sslmode=disable for a network that you trust",
        )),
        _ => Err(("has an unknown sslmode", "write sslmode=verify-full or sslmode=disable")),
    }
}

fn without_tls() -> AddressError {
    let problem = "asks for TLS, and this program was built without the feature `tls` of quorlock-postgres";
    AddressError::malformed("postgres://…", problem, "enable it, or the feature `tls` of quorlock-kinds")
}

/// The name of a node: without password and user.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        let database = self.database.as_deref().unwrap_or_default();
        match &self.host {
            Host::Tcp(host) => {
                if host.contains(':') {
                    write!(f, "[{host}]")?;
                } else {
                    f.write_str(host)?;
                }
                if self.port != PORT {
                    write!(f, ":{}", self.port)?;
                }
                if database.is_empty() { Ok(()) } else { write!(f, "/{}", shown(database)) }
            }
            Host::Folder(folder) => {
                write!(f, "/{}?host={}", shown(database), shown(&folder.display().to_string()))?;
                if self.port == PORT { Ok(()) } else { write!(f, "&port={}", self.port) }
            }
        }
    }
}

/// Escapes a name for use in a list and on a terminal.
fn shown(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.~".contains(c);
    let mut shown = String::with_capacity(name.len());
    for character in name.chars() {
        if plain(character) {
            shown.push(character);
        } else {
            let mut bytes = [0; 4];
            shown.extend(character.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")));
        }
    }
    shown
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DatabaseUrl").field(&self.to_string()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> DatabaseUrl {
        DatabaseUrl::parse(url).unwrap()
    }

    #[test]
    fn an_address_names_a_server_a_database_and_a_user() {
        let url = read("postgres://anna:se%2Ccret@DB-7:5433/orders?sslmode=disable&connections=2");
        assert_eq!(
            (url.server().as_str(), url.to_string().as_str()),
            ("db-7:5433", "postgres://db-7:5433/orders")
        );
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("anna"), Some("se,cret")));
        assert_eq!((url.database.as_deref(), url.connections), (Some("orders"), 2));
        assert_eq!(read("postgresql://[::1]").server(), "[::1]:5432");
    }

    #[test]
    fn tls_needs_the_feature_of_this_crate() {
        let parsed = DatabaseUrl::parse("postgres://db/x?sslmode=verify-full");
        if cfg!(feature = "tls") {
            assert!(parsed.unwrap().encrypted);
        } else {
            let refused = parsed.unwrap_err().to_string();
            assert!(refused.contains("the feature `tls` of quorlock-postgres"), "{refused}");
        }
    }

    #[test]
    fn the_table_of_another_program_is_named_with_its_layout() {
        let table = |options: &str| read(&format!("postgres://db/x{options}")).shedlock;
        assert!(table("").is_none());
        assert_eq!(&*table("?layout=shedlock").unwrap().table, "shedlock");
        assert_eq!(&*table("?table=Jobs.Locks&layout=shedlock").unwrap().table, "jobs.locks");
        for wrong in ["layout=own", "table=shedlock", "layout=shedlock&table=a%22b"] {
            assert!(DatabaseUrl::parse(&format!("postgres://db/x?{wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_unix_socket_is_named_by_its_folder() {
        for url in ["postgres:///orders?host=/run/postgresql", "postgres://%2Frun%2Fpostgresql/orders"] {
            let url = read(url);
            assert_eq!(url.to_string(), "postgres:///orders?host=/run/postgresql");
            assert_eq!(url.endpoint(), Endpoint::Unix { path: "/run/postgresql/.s.PGSQL.5432".into() });
        }
    }

    #[test]
    fn no_password_is_shown_wherever_it_is_written() {
        for url in [
            "postgres://anna:hunter2@db/x",
            "postgres://db/x?user=anna&password=hunter2",
            "postgres://anna:hunter2@/x?host=/run",
        ] {
            let url = read(url);
            assert!(!format!("{url} {url:?}").contains("hunter2"));
        }
        for url in [
            "postgres://anna:hunter2@db/x?hunter2=1",
            "postgres://anna:hunter2@db:port/x",
            "postgres://anna:hunter2@db,db2/x",
            "postgres://anna:hun#ter2@db/x",
            "postgres://hunter2%zz@db/x",
            "postgres://anna:hunter2@db/x?sslmode=hunter2",
        ] {
            let error = DatabaseUrl::parse(url).unwrap_err().to_string();
            assert!(!error.contains("hunter") && !error.contains("ter2"), "{error}");
        }
    }

    #[test]
    fn a_password_goes_over_loopback_only_if_the_address_says_so() {
        for (url, way) in [
            ("postgres://db/x", Way::Network),
            ("postgres://10.0.0.1/x?sslmode=disable", Way::Network),
            ("postgres://localhost/x", Way::Loopback),
            ("postgres://127.0.0.1/x?sslmode=disable", Way::Loopback),
            ("postgres://[::1]/x?cleartext-password=loopback", Way::Private),
            ("postgres:///x?host=/run/postgresql", Way::Private),
        ] {
            assert_eq!(read(url).way(), way, "{url}");
        }
        for wrong in
            ["postgres://db/x?cleartext-password=loopback", "postgres://localhost/x?cleartext-password=on"]
        {
            assert!(DatabaseUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn optional_encryption_is_refused() {
        for mode in ["prefer", "allow", "yes"] {
            let error = DatabaseUrl::parse(&format!("postgres://db/x?sslmode={mode}")).unwrap_err();
            assert!(error.to_string().contains("verify-full"), "{error}");
        }
    }
}
