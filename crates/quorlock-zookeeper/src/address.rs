//! Parses node URLs: the members, the path below which the locks are, the session timeout, and the login.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{AddressError, NodeError, Seams, percent_decoded};
use url::Url;

use crate::layout::escaped;

/// A parsed node URL: `zookeeper://user:password@a:2181,b,c/path?session=10s`.
#[derive(Clone)]
pub(crate) struct ZooKeeperAddress {
    encrypted: bool,
    members: Arc<[Member]>,
    /// Empty, or a path of ZooKeeper that begins with a slash.
    path: Arc<str>,
    session: Duration,
    user: Option<Arc<str>>,
    password: Option<Arc<str>>,
}

/// The client address of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) host: String,
    pub(crate) port: u16,
}

const PORT: u16 = 2181;
/// For how long the locks of a process that dies stay, unless the URL says so: as long as the usual TTL, which a shorter session
/// would cut. A usual server grants 40 s.
const SESSION: Duration = Duration::from_secs(30);
const CURE: &str = "write `zookeeper://user:password@a:2181,b,c/path?session=10s` with a host for each member, or `zookeepers://` for TLS";

impl ZooKeeperAddress {
    /// Parses a URL with the scheme `zookeeper` or `zookeepers`.
    pub(crate) fn parse(text: &str) -> Result<ZooKeeperAddress, AddressError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("zookeeper", text));
        let encrypted = scheme.eq_ignore_ascii_case("zookeepers");
        let shown = if encrypted { "zookeepers://…" } else { "zookeeper://…" };
        let wrong = |problem: &'static str| AddressError::malformed(shown, problem, CURE);
        if encrypted && !cfg!(feature = "tls") {
            return Err(wrong(
                "asks for TLS, and this program was built without the feature `tls` of quorlock-zookeeper",
            ));
        }
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (login, hosts) =
            rest.rsplit_once('@').map_or((None, rest), |(login, hosts)| (Some(login), hosts));
        let (hosts, path) = hosts.split_once('/').unwrap_or((hosts, ""));
        let decoded = |text| percent_decoded(text).ok_or_else(|| wrong("has a `%` that is not UTF-8"));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None | Some(("", _)) => (None, None),
            Some((user, "")) => (Some(decoded(user)?), None),
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
        };
        let mut members = Vec::new();
        for host in hosts.split(',') {
            let member = Member::parse(host).ok_or_else(|| wrong("has a host that is none"))?;
            if members.contains(&member) {
                return Err(wrong("names a member twice"));
            }
            members.push(member);
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        let path = if path.is_empty() { String::new() } else { format!("/{}", escaped(&decoded(path)?)) };
        Ok(ZooKeeperAddress {
            encrypted,
            members: members.into(),
            path: path.into(),
            session: session(query, wrong)?,
            user: user.map(Arc::from),
            password: password.map(Arc::from),
        })
    }

    #[cfg(feature = "tls")]
    pub(crate) fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(crate) fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// Returns for how long the session outlives its connections.
    pub(crate) fn session(&self) -> Duration {
        self.session
    }

    /// Returns the user, if there is one. That of the program applies if the URL has none.
    pub(crate) fn user<'a>(&'a self, seams: &'a Seams) -> Option<&'a str> {
        self.user.as_deref().or(seams.username())
    }

    /// Returns user and password, if there is a user. Those of the program apply if the URL has none.
    pub(crate) async fn login<'a>(
        &'a self,
        seams: &'a Seams,
    ) -> Result<Option<(&'a str, Arc<str>)>, NodeError> {
        let Some(user) = self.user(seams) else { return Ok(None) };
        let password = seams.password(self.password.as_deref()).await?;
        Ok(Some((user, password.unwrap_or_default())))
    }
}

/// Reads the options: there is one.
fn session(
    query: Option<&str>,
    wrong: impl Fn(&'static str) -> AddressError,
) -> Result<Duration, AddressError> {
    let mut session = SESSION;
    for option in query.into_iter().flat_map(|query| query.split('&')) {
        match option.split_once('=') {
            Some(("session", value)) => {
                session = duration(value).ok_or_else(|| {
                    wrong("has a session that is no time from 100 ms to 1 h, like `10s` or `500ms`")
                })?;
            }
            Some(("sasl", _)) => {
                return Err(wrong(
                    "asks for SASL, which this library does not speak; digest users and TLS it does",
                ));
            }
            Some(_) | None => return Err(wrong("has an option other than `session`")),
        }
    }
    Ok(session)
}

/// Parses whole seconds or milliseconds.
fn duration(text: &str) -> Option<Duration> {
    let number = |digits: &str| digits.parse::<u32>().ok().map(u64::from);
    let time = match text.strip_suffix("ms") {
        Some(digits) => Duration::from_millis(number(digits)?),
        None => Duration::from_secs(number(text.strip_suffix('s')?)?),
    };
    (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&time).then_some(time)
}

impl Member {
    fn parse(text: &str) -> Option<Member> {
        let url = Url::parse(&format!("zookeeper://{text}")).ok()?;
        let host = url.host_str().filter(|host| !host.is_empty())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        Some(Member { host, port: url.port().unwrap_or(PORT) })
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Member { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// The displayed name: without user, password and session.
impl fmt::Display for ZooKeeperAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.encrypted { "zookeepers://" } else { "zookeeper://" })?;
        for (number, member) in self.members.iter().enumerate() {
            write!(f, "{}{member}", if number == 0 { "" } else { "," })?;
        }
        f.write_str(&self.path)
    }
}

impl fmt::Debug for ZooKeeperAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZooKeeperAddress").field(&self.to_string()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn members_path_and_login_are_parsed_and_the_login_is_hidden() {
        let address =
            ZooKeeperAddress::parse("ZOOKEEPER://ann:s%40cret@A,b:2180,[::1]/my/locks?session=20s").unwrap();
        assert_eq!(address.to_string(), "zookeeper://a:2181,b:2180,[::1]:2181/my/locks");
        let seams = Seams::default();
        let login = address.login(&seams).await.unwrap();
        assert_eq!(login, Some(("ann", "s@cret".into())));
        assert_eq!((&**address.path(), address.session()), ("/my/locks", Duration::from_secs(20)));
        assert!(!format!("{address:?}").contains("cret"));
        let plain = ZooKeeperAddress::parse("zookeeper://a").unwrap();
        assert!(plain.user(&Seams::default()).is_none());
        assert_eq!((&**plain.path(), plain.session()), ("", SESSION));
    }

    #[test]
    fn what_is_no_address_of_zookeeper_is_refused_without_its_password() {
        for wrong in [
            "zookeeper://",
            "zookeeper://a,,b",
            "zookeeper://a,a:2181",
            "zookeeper://u:secret@a?x=1",
            "zookeeper://u:secret@a?session=5",
            "zookeeper://u:secret@a?session=2h",
            "zookeeper://u:secret@a?sasl=yes",
        ] {
            let error = ZooKeeperAddress::parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("write `zookeeper://"), "{wrong}: {error}");
        }
    }
}
