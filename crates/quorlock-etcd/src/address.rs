//! Parses node URLs: the members, and the login.

use std::fmt;

use quorlock::node::AddressError;
pub(crate) use quorlock::node::places::Member;
use quorlock::node::places::Members;

/// A parsed node URL: `etcd://user:password@a:2379,b,c`.
#[derive(Clone)]
pub(crate) struct EtcdAddress {
    encrypted: bool,
    pub(crate) members: Members,
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
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (_, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
        if hosts.contains(['/', '?', '#']) {
            return Err(wrong("has a path or an option, and etcd has neither"));
        }
        Ok(EtcdAddress { encrypted, members: Members::parse(rest, PORT, wrong)? })
    }

    #[cfg(feature = "tls")]
    pub(crate) fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    pub(crate) fn members(&self) -> &[Member] {
        self.members.all()
    }
}

/// The displayed name: without user and password.
impl fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.encrypted { "etcds://" } else { "etcd://" })?;
        self.members.fmt(f)
    }
}

impl fmt::Debug for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdAddress").field(&self.to_string()).finish()
    }
}

#[cfg(test)]
mod tests {
    use quorlock::node::Seams;

    use super::*;

    #[tokio::test]
    async fn members_and_login_are_parsed_and_the_login_is_hidden() {
        let address = EtcdAddress::parse("ETCD://ann:s%40cret@A,b:2380,[::1]").unwrap();
        assert_eq!(address.to_string(), "etcd://a:2379,b:2380,[::1]:2379");
        let seams = Seams::default();
        let login = address.members.login(&seams).await.unwrap();
        assert_eq!(login, Some(("ann", "s@cret".into())));
        assert!(!format!("{address:?}").contains("cret"));
        assert!(EtcdAddress::parse("etcd://a").unwrap().members.user(&Seams::default()).is_none());
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
