//! Addresses of masters that Sentinels monitor.

use url::Url;

use super::{ENCODE, Scheme, endpoint_in, given, malformed, parse_database, percent_decoded, unreadable};
use crate::address::{Address, AddressError, Endpoint};

/// The default port of Sentinels.
const SENTINEL_PORT: u16 = 26379;

const FORM: &str = "write `redis+sentinel://host:26379,host:26379/service`";

/// Parses what follows `redis+sentinel://`. Errors never show a password, wherever it is in the text.
pub(super) fn parse(rest: &str, hosts: Scheme) -> Result<Address, AddressError> {
    let bare = match hosts {
        Scheme::Tls => "rediss+sentinel://…",
        Scheme::Plain | Scheme::Unix => "redis+sentinel://…",
    };
    let wrong = |problem, cure| malformed(bare, problem, cure);
    let (head, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = head.split_once('/').unwrap_or((head, ""));
    if path.contains('@') || query.contains('@') || query.contains('#') || head.contains('#') {
        return Err(wrong("has an `@` or a `#` after its hosts", ENCODE));
    }
    let (credentials, members) = authority.rsplit_once('@').unwrap_or(("", authority));
    if credentials.contains('@') {
        return Err(wrong("has two `@`", ENCODE));
    }
    let mut sentinels = Vec::new();
    for member in members.split(',').map(str::trim) {
        if member.is_empty() {
            return Err(wrong("names no host", FORM));
        }
        let url = Url::parse(&format!("redis://{member}")).map_err(|error| unreadable(bare, error))?;
        let sentinel = endpoint_in(&url, hosts, SENTINEL_PORT, bare)?;
        if !sentinels.contains(&sentinel) {
            sentinels.push(sentinel);
        }
    }
    let decoded =
        |text: &str| percent_decoded(text).ok_or_else(|| wrong("has a wrong percent-encoding", ENCODE));
    let (service, database) = path.split_once('/').unwrap_or((path, ""));
    let service = decoded(service)?;
    if service.is_empty() || service.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(wrong("names no service", FORM));
    }
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let endpoint = Endpoint::Sentinel { service, sentinels };
    let mut address = Address::new(endpoint);
    address.user = given(&decoded(user)?);
    address.password = given(&decoded(password)?);
    address.database = parse_database(database, bare)?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value)?;
        match name {
            "sentinel_username" => address.sentinel_user = given(&value),
            "sentinel_password" => address.sentinel_password = given(&value),
            "layout" => address.set_layout(&value, bare)?,
            "forgets" => address.set_forgets(&value, bare)?,
            "protocol" => {}
            _ => {
                let cure = "only layout, forgets, sentinel_username and sentinel_password are known";
                return Err(wrong("has an unknown setting", cure));
            }
        }
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_read_and_shown_without_its_secrets() {
        let address = Address::parse(
            "redis+sentinel://anna:s3c%2Fret@S1,10.0.0.2:26380,[::1]/orders/3?sentinel_password=qq7",
        )
        .unwrap();
        assert_eq!(address.to_string(), "redis+sentinel://s1:26379,10.0.0.2:26380,[::1]:26379/orders/3");
        assert_eq!((address.user(), address.password()), (Some("anna"), Some("s3c/ret")));
        assert_eq!(address.database(), 3);
        let sentinel = address.sentinels().next().unwrap();
        assert_eq!((sentinel.user(), sentinel.password()), (None, Some("qq7")));
        assert_eq!(sentinel.to_string(), "redis://s1:26379");
        assert!(!format!("{address:?}").contains("qq7"), "{address:?}");
    }

    #[test]
    fn a_shown_service_names_the_same_one() {
        for text in [
            "redis+sentinel://s1/m-m",
            "valkey+sentinel://s1,s2:1/m",
            "redis+sentinel://s1/m/3?layout=redisson",
        ] {
            let address = Address::parse(text).unwrap();
            let again = Address::parse(&address.to_string()).unwrap();
            assert!(again.same_server(&address) && again.endpoint() == address.endpoint(), "{address}");
            assert_eq!(again.layout(), address.layout(), "{address}");
        }
    }

    #[test]
    fn services_are_the_same_if_they_share_a_sentinel_and_a_name() {
        let same =
            |one: &str, two: &str| Address::parse(one).unwrap().same_server(&Address::parse(two).unwrap());
        assert!(same("redis+sentinel://a,b/m", "redis+sentinel://b,c/m?protocol=resp3"));
        assert!(!same("redis+sentinel://a,b/m", "redis+sentinel://a,b/n"));
        assert!(!same("redis+sentinel://a/m", "redis+sentinel://b/m"));
        assert!(!same("redis+sentinel://a/m", "redis://a:26379"));
    }

    #[test]
    fn a_bad_service_is_refused_with_its_cure_and_without_its_password() {
        for (text, words) in [
            ("redis+sentinel://", "names no host"),
            ("redis+sentinel://a", "names no service"),
            ("redis+sentinel://a,/m", "names no host"),
            ("redis+sentinel://a:0/m", "port 0"),
            ("redis+sentinel://a:x/m", "not a number"),
            ("redis+sentinel://a/m/three", "not a number"),
            ("redis+sentinel://a/m?what=Qq7Zz9", "only layout"),
            ("redis+sentinel://a/m?wait=1", "only layout"),
            ("redis+sentinel://u:Qq7/Zz9@a/m", "percent-encode"),
            ("redis+sentinel://u:Qq7@Zz9@a/m", "percent-encode"),
            ("redis+sentinel://u:Qq7%zz@a/m", "percent-encod"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("Qq7"), "{text}: {error}");
        }
    }
}
