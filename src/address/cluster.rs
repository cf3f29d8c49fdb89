use std::fmt;
use std::str::FromStr;

use super::{Address, AddressError, Endpoint, Layout};

/// The address of a whole Redis Cluster, which is one node: some of its members, with the credentials to log
/// in.
///
/// `redis+cluster://host:port,host:port`, or `rediss+cluster://` over TLS (feature `tls`); `valkey` and
/// `valkeys` work in the place of `redis` and `rediss`. User and password precede the first host and apply to
/// all members, as do settings after a `?`, which are those of an [`Address`]. One reachable member is enough
/// to discover the others; name two or three in case one is down.
///
/// `Display` and `Debug` show neither user nor password.
#[derive(Clone)]
pub struct ClusterAddress {
    seeds: Vec<Address>,
}

pub(crate) const SCHEMES: [&str; 4] =
    ["redis+cluster", "rediss+cluster", "valkey+cluster", "valkeys+cluster"];

const FORM: &str = "write `redis+cluster://host:port,host:port`";

impl ClusterAddress {
    /// Parses an address of that form.
    ///
    /// # Errors
    ///
    /// The error names the problem and the fix, and shows only the parts that were understood.
    pub fn parse(text: &str) -> Result<ClusterAddress, AddressError> {
        let (scheme, rest) = scheme_of(text).ok_or_else(|| AddressError::scheme(SCHEMES))?;
        let malformed =
            |problem, cure| AddressError::Malformed {
                shown: format!("{scheme}+cluster://…"), problem, cure
            };
        let (login, hosts) = match rest.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), rest),
        };
        let (hosts, settings) = match hosts.split_once('?') {
            Some((hosts, settings)) => (hosts, format!("?{settings}")),
            None => (hosts, String::new()),
        };
        let mut seeds: Vec<Address> = Vec::new();
        for host in hosts.trim_end_matches('/').split(',') {
            if host.trim().is_empty() {
                return Err(malformed("has an empty entry in its list of members", FORM));
            }
            let seed = Address::parse(&format!("{scheme}://{login}{}{settings}", host.trim()))?;
            if seed.database() != 0 {
                return Err(malformed("names a database, but clusters have only database 0", "leave it out"));
            }
            if !seeds.iter().any(|known| known.same_server(&seed)) {
                seeds.push(seed);
            }
        }
        Ok(ClusterAddress { seeds })
    }

    /// Returns whether `text` has the scheme of a cluster.
    pub(crate) fn is_meant(text: &str) -> bool {
        scheme_of(text).is_some()
    }

    /// Returns the members named in the address.
    pub(crate) fn seeds(&self) -> &[Address] {
        &self.seeds
    }

    /// Returns how locks are stored there.
    pub(crate) fn layout(&self) -> Layout {
        self.seeds.first().map_or(Layout::Own, Address::layout)
    }

    /// Applies a change to the address of each named member.
    pub(crate) fn each_seed(&mut self, change: impl FnMut(&mut Address)) {
        self.seeds.iter_mut().for_each(change);
    }
}

/// Returns the scheme of the members, and the rest of the text.
fn scheme_of(text: &str) -> Option<(&'static str, &str)> {
    let (scheme, rest) = text.trim().split_once("://")?;
    match scheme.to_ascii_lowercase().as_str() {
        "redis+cluster" | "valkey+cluster" => Some(("redis", rest)),
        "rediss+cluster" | "valkeys+cluster" => Some(("rediss", rest)),
        _ => None,
    }
}

impl FromStr for ClusterAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<ClusterAddress, AddressError> {
        ClusterAddress::parse(text)
    }
}

impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, seed) in self.seeds.iter().enumerate() {
            let shown = seed.to_string();
            let (shown, _) = shown.split_once('?').unwrap_or((&shown, ""));
            let (scheme, host) = shown.split_once("://").unwrap_or(("redis", shown));
            if place == 0 {
                write!(f, "{scheme}+cluster://{host}")?;
            } else {
                write!(f, ",{host}")?;
            }
        }
        self.seeds.first().map_or(Ok(()), |first| first.write_settings("?", f))
    }
}

impl fmt::Debug for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterAddress({self})")
    }
}

impl Address {
    /// Returns the address of another member of the same cluster, with the same transport and credentials.
    pub(crate) fn at_host(&self, host: &str, port: u16) -> Address {
        let host = host.to_ascii_lowercase();
        let endpoint = match self.endpoint {
            Endpoint::Tls { .. } => Endpoint::Tls { host, port },
            Endpoint::Tcp { .. } | Endpoint::Unix { .. } | Endpoint::Sentinel { .. } => {
                Endpoint::Tcp { host, port }
            }
        };
        Address { endpoint, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_read_and_shown_without_its_secrets() {
        for (text, shown) in [
            ("redis+cluster://A:7000,b:7001", "redis+cluster://a:7000,b:7001"),
            ("valkey+cluster://a,b,a:6379/", "redis+cluster://a:6379,b:6379"),
            ("redis+cluster://a,b?layout=redisson", "redis+cluster://a:6379,b:6379?layout=redisson"),
            ("redis+cluster://a,b?forgets=never", "redis+cluster://a:6379,b:6379?forgets=never"),
            (" redis+cluster://anna:s3,cr@t@a:1,[::1]:2 ", "redis+cluster://a:1,[::1]:2"),
        ] {
            let text = text.replace("s3,cr@t", "s3,cr%40t");
            let address = ClusterAddress::parse(&text).unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(format!("{address:?}"), format!("ClusterAddress({shown})"));
        }
        let address = ClusterAddress::parse("redis+cluster://anna:s3,cret@a,b").unwrap();
        for seed in address.seeds() {
            assert_eq!((seed.user(), seed.password()), (Some("anna"), Some("s3,cret")));
        }
    }

    #[test]
    fn a_bad_address_is_refused_with_its_cure() {
        for (text, words) in [
            ("redis+cluster://", "empty entry"),
            ("redis+cluster://a,,b", "empty entry"),
            ("redis+cluster://a,b/3", "names a database"),
            ("redis+cluster://a:0", "port 0"),
            ("redis+cluster://a,b?what=1", "settings"),
            ("http+cluster://a", "unknown scheme"),
        ] {
            let error = ClusterAddress::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn tls_needs_its_feature() {
        let parsed = ClusterAddress::parse("rediss+cluster://a,b");
        if cfg!(feature = "tls") {
            assert_eq!(parsed.unwrap().to_string(), "rediss+cluster://a:6379,b:6379");
        } else {
            assert_eq!(parsed.unwrap_err(), AddressError::NoTls);
        }
    }

    proptest! {
        #[test]
        fn a_misplaced_password_is_never_shown(
            before in "redis\\+cluster://(user:|:|user@)?[a@:/?#%&=,]{0,3}",
            after in "[a@:/?#%&=,]{0,3}@db-7(:1)?(/x)?(,db-8)?",
        ) {
            const PASSWORD: &str = "qq7zz9";
            let shown = match ClusterAddress::parse(&format!("{before}{PASSWORD}{after}")) {
                Ok(address) => format!("{address} {address:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            prop_assert!(!shown.contains(PASSWORD), "{}", shown);
        }
    }
}
