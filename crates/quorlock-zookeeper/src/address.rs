//! Parses node URLs: the members, the path below which the locks are, the session timeout, and the login.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::AddressError;
use quorlock::node::places::{Member, Members, Scheme};

use crate::layout::escaped;

/// A parsed node URL: `zookeeper://user:password@a:2181,b,c/path?session=10s`.
#[derive(Clone, Debug)]
pub(crate) struct ZooKeeperAddress {
    pub(crate) members: Members,
    /// Empty, or a path of ZooKeeper that begins with a slash.
    path: Arc<str>,
    session: Duration,
}

static SCHEME: Scheme = Scheme {
    plain: "zookeeper://",
    encrypted: "zookeepers://",
    port: 2181,
    without_tls: if cfg!(feature = "tls") {
        None
    } else {
        Some("asks for TLS, and this program was built without the feature `tls` of quorlock-zookeeper")
    },
    cure: "write `zookeeper://user:password@a:2181,b,c/path?session=10s` with a host for each member, or `zookeepers://` for TLS",
};
/// For how long the locks of a process that dies stay, unless the URL says so: as long as the usual TTL, which a shorter session
/// would cut. A usual server grants 40 s.
const SESSION: Duration = Duration::from_secs(30);

impl ZooKeeperAddress {
    /// Parses a URL with the scheme `zookeeper` or `zookeepers`.
    pub(crate) fn parse(text: &str) -> Result<ZooKeeperAddress, AddressError> {
        let url = SCHEME.url(text)?;
        let (rest, query) =
            url.rest.split_once('?').map_or((url.rest, None), |(rest, query)| (rest, Some(query)));
        let (login, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, path) = hosts.split_once('/').unwrap_or((hosts, ""));
        let members = url.members(&format!("{login}@{hosts}"))?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let path = if path.is_empty() { String::new() } else { format!("/{}", escaped(&url.decoded(path)?)) };
        Ok(ZooKeeperAddress {
            members,
            path: path.into(),
            session: session(query, |problem| url.wrong(problem))?,
        })
    }

    pub(crate) fn members(&self) -> &[Member] {
        self.members.all()
    }

    pub(crate) fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// Returns for how long the session outlives its connections.
    pub(crate) fn session(&self) -> Duration {
        self.session
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

/// The displayed name: without user, password and session.
impl fmt::Display for ZooKeeperAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.members.fmt(f)?;
        f.write_str(&self.path)
    }
}

impl AsRef<Members> for ZooKeeperAddress {
    fn as_ref(&self) -> &Members {
        &self.members
    }
}

#[cfg(test)]
mod tests {
    use quorlock::node::Seams;

    use super::*;

    #[tokio::test]
    async fn members_path_and_login_are_parsed_and_the_login_is_hidden() {
        let address =
            ZooKeeperAddress::parse("ZOOKEEPER://ann:s%40cret@A,b:2180,[::1]/my/locks?session=20s").unwrap();
        assert_eq!(address.to_string(), "zookeeper://a:2181,b:2180,[::1]:2181/my/locks");
        let seams = Seams::default();
        let login = address.members.login(&seams).await.unwrap();
        assert_eq!(login, Some(("ann", "s@cret".into())));
        assert_eq!((&**address.path(), address.session()), ("/my/locks", Duration::from_secs(20)));
        assert!(!format!("{address:?}").contains("cret"));
        let plain = ZooKeeperAddress::parse("zookeeper://a").unwrap();
        assert!(plain.members.user(&Seams::default()).is_none());
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
