//! Parses node URLs: the members, and the login.

use std::fmt;
use std::sync::Arc;

use quorlock::node::{AddressError, NodeError, Seams, percent_decoded};
use url::Url;

/// A parsed node URL: `etcd://user:password@a:2379,b,c`.
#[derive(Clone)]
pub(crate) struct EtcdAddress {
    encrypted: bool,
    members: Arc<[Member]>,
    user: Option<Arc<str>>,
    password: Option<Arc<str>>,
}

/// The client address of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) host: String,
    pub(crate) port: u16,
}

const PORT: u16 = 2379;
const CURE: &str =
    "write `etcd://user:password@a:2379,b,c` with a host for each member, or `etcds://` for TLS";

impl EtcdAddress {
    /// Parses a URL with the scheme `etcd` or `etcds`.
    pub(crate) fn parse(text: &str) -> Result<EtcdAddress, AddressError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("etcd", text));
        let encrypted = scheme.eq_ignore_ascii_case("etcds");
        let shown = if encrypted { "etcds://…" } else { "etcd://…" };
        let wrong = |problem| AddressError::malformed(shown, problem, CURE);
        if encrypted && !cfg!(feature = "tls") {
            return Err(wrong(
                "asks for TLS, and this program was built without the feature `tls` of quorlock-etcd",
            ));
        }
        let (login, hosts) =
            rest.rsplit_once('@').map_or((None, rest), |(login, hosts)| (Some(login), hosts));
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if hosts.contains(['/', '?', '#']) {
            return Err(wrong("has a path or an option, and etcd has neither"));
        }
        let decoded =
            |text| percent_decoded(text).ok_or_else(|| wrong("has a `%` in its login that is not UTF-8"));
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
        Ok(EtcdAddress {
            encrypted,
            members: members.into(),
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

impl Member {
    fn parse(text: &str) -> Option<Member> {
        let url = Url::parse(&format!("etcd://{text}")).ok()?;
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

/// The displayed name: without user and password.
impl fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.encrypted { "etcds://" } else { "etcd://" })?;
        for (number, member) in self.members.iter().enumerate() {
            write!(f, "{}{member}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdAddress").field(&self.to_string()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn members_and_login_are_parsed_and_the_login_is_hidden() {
        let address = EtcdAddress::parse("ETCD://ann:s%40cret@A,b:2380,[::1]").unwrap();
        assert_eq!(address.to_string(), "etcd://a:2379,b:2380,[::1]:2379");
        let seams = Seams::default();
        let login = address.login(&seams).await.unwrap();
        assert_eq!(login, Some(("ann", "s@cret".into())));
        assert!(!format!("{address:?}").contains("cret"));
        assert!(EtcdAddress::parse("etcd://a").unwrap().user(&Seams::default()).is_none());
    }

    #[test]
    fn what_is_no_address_of_etcd_is_refused_without_its_password() {
        for wrong in
            ["etcd://", "etcd://a,,b", "etcd://a,a:2379", "etcd://u:secret@a/locks", "etcd://u:secret@a?x=1"]
        {
            let error = EtcdAddress::parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("write `etcd://"), "{wrong}: {error}");
        }
    }
}
