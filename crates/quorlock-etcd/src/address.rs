//! Parses node URLs: the members, and the login.

use quorlock::node::AddressError;
use quorlock::node::places::{Members, Scheme};

static SCHEME: Scheme = Scheme {
    plain: "etcd://",
    encrypted: "etcds://",
    port: 2379,
    without_tls: if cfg!(feature = "tls") {
        None
    } else {
        Some("asks for TLS, and this program was built without the feature `tls` of quorlock-etcd")
    },
    cure: "write `etcd://user:password@a:2379,b,c` with a host for each member, or `etcds://` for TLS",
};

/// Parses a URL with the scheme `etcd` or `etcds`.
pub(crate) fn parse(text: &str) -> Result<Members, AddressError> {
    let url = SCHEME.url(text)?;
    let rest = url.rest.strip_suffix('/').unwrap_or(url.rest);
    let (_, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
    if hosts.contains(['/', '?', '#']) {
        return Err(url.wrong("has a path or an option, and etcd has neither"));
    }
    url.members(rest)
}

#[cfg(test)]
mod tests {
    use quorlock::node::Seams;

    use super::*;

    #[tokio::test]
    async fn members_and_login_are_parsed_and_the_login_is_hidden() {
        let address = parse("ETCD://ann:s%40cret@A,b:2380,[::1]").unwrap();
        assert_eq!(address.to_string(), "etcd://a:2379,b:2380,[::1]:2379");
        let seams = Seams::default();
        let login = address.login(&seams).await.unwrap();
        assert_eq!(login, Some(("ann", "s@cret".into())));
        assert!(!format!("{address:?}").contains("cret"));
        assert!(parse("etcd://a").unwrap().user(&Seams::default()).is_none());
    }

    #[test]
    fn what_is_no_address_of_etcd_is_refused_without_its_password() {
        for wrong in
            ["etcd://", "etcd://a,,b", "etcd://a,a:2379", "etcd://u:secret@a/locks", "etcd://u:secret@a?x=1"]
        {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("secret") && error.contains("write `etcd://"), "{wrong}: {error}");
        }
    }
}
