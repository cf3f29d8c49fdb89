use std::path::Path;
use std::sync::Arc;

use url::{Host, ParseError, Url};

use super::{Address, AddressError, Endpoint, LIST};

mod sentinel;

/// The default port of Redis and Valkey.
const DEFAULT_PORT: u16 = 6379;

pub(super) fn parse(text: &str) -> Result<Address, AddressError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    match text.split_once("://") {
        None if text.starts_with('/') => {
            Err(malformed("/…", "looks like a path", "write `redis+unix:///path`"))
        }
        None => parse_tcp(&format!("redis://{text}"), Scheme::Plain),
        Some((scheme, rest)) => match Scheme::named(scheme) {
            Some((Scheme::Unix, _)) => parse_unix(rest),
            Some((Scheme::Tls, _)) if !cfg!(feature = "tls") => Err(AddressError::NoTls),
            Some((scheme, Kind::Service)) => sentinel::parse(rest, scheme),
            Some((scheme, Kind::Server)) => parse_tcp(text, scheme),
            None => Err(AddressError::scheme(SCHEMES)),
        },
    }
}

/// The schemes of single servers and of services.
pub(crate) const SCHEMES: [&str; 11] = [
    "redis",
    "rediss",
    "valkey",
    "valkeys",
    "redis+unix",
    "valkey+unix",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "valkey+sentinel",
    "valkeys+sentinel",
];

/// What follows the scheme.
enum Kind {
    Server,
    Service,
}

#[derive(Clone, Copy)]
pub(super) enum Scheme {
    Plain,
    Tls,
    Unix,
}

impl Scheme {
    fn named(name: &str) -> Option<(Scheme, Kind)> {
        match name.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => Some((Scheme::Plain, Kind::Server)),
            "rediss" | "valkeys" => Some((Scheme::Tls, Kind::Server)),
            "redis+unix" | "valkey+unix" | "unix" => Some((Scheme::Unix, Kind::Server)),
            "redis+sentinel" | "valkey+sentinel" => Some((Scheme::Plain, Kind::Service)),
            "rediss+sentinel" | "valkeys+sentinel" => Some((Scheme::Tls, Kind::Service)),
            _ => None,
        }
    }
}

pub(super) const ENCODE: &str = "percent-encode `/`, `?`, `#`, `@` and `%` in user and password (`%2F` for `/`), or give the password apart from the address";

fn parse_tcp(text: &str, scheme: Scheme) -> Result<Address, AddressError> {
    let bare = match scheme {
        Scheme::Plain => "redis://…",
        Scheme::Tls => "rediss://…",
        Scheme::Unix => "redis+unix://…",
    };
    // A password with a slash in it looks like a host and a path.
    let (_, rest) = text.split_once("://").unwrap_or(("", text));
    let (host, behind) = rest.split_once(['/', '?', '#']).unwrap_or((rest, ""));
    if behind.contains('@') {
        return Err(malformed(bare, "has an `@` after its host", ENCODE));
    }
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    if host.contains(',') || behind.contains(',') {
        return Err(malformed(bare, LIST.0, LIST.1));
    }
    let url = Url::parse(text).map_err(|error| unreadable(bare, error))?;
    let endpoint = endpoint_in(&url, scheme, DEFAULT_PORT, bare)?;
    let shown = endpoint.to_string();
    if url.fragment().is_some() {
        return Err(malformed(&shown, "has a `#`", "leave it out: certificates are always checked"));
    }
    // `?protocol=` is accepted for compatibility with other clients and ignored: RESP3 is used where the
    // server supports it.
    let known = |name: &str| matches!(name, "protocol" | "layout" | "forgets");
    if url.query_pairs().any(|(name, _)| !known(&name)) {
        return Err(malformed(
            &shown,
            "has settings after a `?`",
            "leave them out: only layout and forgets are known",
        ));
    }
    let mut address = Address::new(endpoint);
    address.database = parse_database(url.path().trim_start_matches('/'), &shown)?;
    if let Some((_, layout)) = url.query_pairs().find(|(name, _)| name == "layout") {
        address.set_layout(&layout, &shown)?;
    }
    if let Some((_, forgets)) = url.query_pairs().find(|(name, _)| name == "forgets") {
        address.set_forgets(&forgets, &shown)?;
    }
    let undecodable = || malformed(&shown, "has a wrong percent-encoding before its host", ENCODE);
    let user = percent_decoded(url.username()).ok_or_else(undecodable)?;
    let password = percent_decoded(url.password().unwrap_or("")).ok_or_else(undecodable)?;
    (address.user, address.password) = (given(&user), given(&password));
    Ok(address)
}

/// Returns the host and port as an endpoint.
pub(super) fn endpoint_in(
    url: &Url,
    scheme: Scheme,
    default_port: u16,
    bare: &str,
) -> Result<Endpoint, AddressError> {
    let host = match url.host() {
        Some(Host::Domain(name)) if !name.is_empty() && !name.contains('%') => name.to_ascii_lowercase(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        Some(Host::Domain(_)) | None => {
            return Err(malformed(bare, "names no host", "write `redis://host:port`"));
        }
    };
    let port = match url.port() {
        Some(0) => return Err(malformed(bare, "has the port 0", "give the port that the server listens on")),
        Some(port) => port,
        None => default_port,
    };
    Ok(match scheme {
        Scheme::Tls => Endpoint::Tls { host, port },
        Scheme::Plain | Scheme::Unix => Endpoint::Tcp { host, port },
    })
}

fn parse_unix(rest: &str) -> Result<Address, AddressError> {
    const BARE: &str = "redis+unix://…";
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') {
        return Err(malformed(
            BARE,
            "has no absolute path",
            "write `redis+unix:///path`, with three slashes",
        ));
    }
    let path =
        percent_decoded(path).ok_or_else(|| malformed(BARE, "has a wrong percent-encoding", ENCODE))?;
    let path = Path::new(&path).components().collect();
    let mut address = Address::new(Endpoint::Unix { path });
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decoded(value)
            .ok_or_else(|| malformed(BARE, "has a wrong percent-encoding after its `?`", ENCODE))?;
        match name {
            "db" => address.database = parse_database(&value, BARE)?,
            "user" => address.user = given(&value),
            "pass" => address.password = given(&value),
            "layout" => address.set_layout(&value, BARE)?,
            "forgets" => address.set_forgets(&value, BARE)?,
            "protocol" => {}
            _ => {
                return Err(malformed(
                    BARE,
                    "has an unknown setting",
                    "only db, user, pass, layout and forgets are known",
                ));
            }
        }
    }
    Ok(address)
}

pub(super) fn parse_database(text: &str, shown: &str) -> Result<u32, AddressError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        malformed(shown, "has a database that is not a number", "write `/0` to `/15`, or nothing")
    })
}

pub(super) fn unreadable(shown: &str, error: ParseError) -> AddressError {
    let (problem, cure) = if error == ParseError::InvalidPort {
        (
            "has a port that is not a number from 1 to 65535",
            "put IPv6 addresses in brackets, and an `@` after the password",
        )
    } else if error == ParseError::InvalidIpv6Address {
        ("has an IPv6 address that cannot be read", "write it as in `redis://[2001:db8::1]:6379`")
    } else if error == ParseError::EmptyHost {
        ("names no host", "write `redis://host:port`")
    } else {
        ("cannot be read", "write `redis://host:port`, and IPv6 addresses in brackets")
    };
    malformed(shown, problem, cure)
}

pub(super) fn malformed(shown: &str, problem: &'static str, cure: &'static str) -> AddressError {
    AddressError::Malformed { shown: shown.into(), problem, cure }
}

pub(super) fn given(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| text.into())
}

/// Decodes `%XX` in a part of a URL, for a [`NodeKind`](crate::node::NodeKind) that parses its own URLs.
///
/// Returns `None` if a `%` is not followed by two hex digits, or if the bytes are not UTF-8.
///
/// # Examples
///
/// ```
/// use quorlock::node::percent_decoded;
///
/// assert_eq!(percent_decoded("/var/lib/a%2Cb").as_deref(), Some("/var/lib/a,b"));
/// assert_eq!(percent_decoded("100%"), None);
/// ```
#[must_use]
pub fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or("").as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        decoded.push(u8::from_str_radix(digits, 16).ok()?);
        decoded.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_read_and_shown_without_its_secrets() {
        for (text, shown) in [
            ("10.0.0.1", "redis://10.0.0.1:6379"),
            ("db-7:6380", "redis://db-7:6380"),
            (" redis://DB-7 ", "redis://db-7:6379"),
            ("redis://db-7/", "redis://db-7:6379"),
            ("valkey://db-7/3", "redis://db-7:6379/3"),
            ("redis://db-7?protocol=resp3", "redis://db-7:6379"),
            ("redis://[2001:DB8::1]", "redis://[2001:db8::1]:6379"),
            ("redis://anna:s3cret@db-7:1/3", "redis://db-7:1/3"),
            (
                "redis+unix:///run/redis.sock?db=2&user=anna&pass=s3c%40ret",
                "redis+unix:///run/redis.sock?db=2",
            ),
            ("unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
            ("redis://db-7?layout=redisson", "redis://db-7:6379?layout=redisson"),
            ("redis://db-7/3?protocol=resp3&layout=redisson", "redis://db-7:6379/3?layout=redisson"),
            ("unix:///s?layout=redisson&db=2", "redis+unix:///s?db=2&layout=redisson"),
            ("unix:///s?layout=redisson", "redis+unix:///s?layout=redisson"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.to_string(), shown, "{text}");
            assert_eq!(format!("{address:?}"), format!("Address({shown})"), "{text}");
        }
    }

    #[test]
    fn credentials_are_percent_decoded() {
        let address = Address::parse("redis://an%2Fna:p%40%20%C3%A4@db-7").unwrap();
        assert_eq!((address.user(), address.password()), (Some("an/na"), Some("p@ ä")));
        let address = Address::parse("redis://:only@db-7").unwrap();
        assert_eq!((address.user(), address.password()), (None, Some("only")));
        let address = Address::parse("unix:///s?pass=a%26b+c").unwrap();
        assert_eq!(address.password(), Some("a&b+c"), "a plus sign is a plus sign");
    }

    #[test]
    fn a_bad_address_is_refused_with_its_cure() {
        for (text, words) in [
            ("", "empty"),
            ("http://db-7", "unknown scheme"),
            ("redis://", "names no host"),
            ("redis://db-7:0", "port 0"),
            ("redis://db-7:70000", "not a number from 1 to 65535"),
            ("redis://db-7/three", "not a number"),
            ("redis://db-7?tls=1", "settings"),
            ("redis://db-7#insecure", "always checked"),
            ("redis://u:a/b@db-7", "percent-encode"),
            ("redis://u:a%zz@db-7", "percent-encod"),
            ("unix://socket", "three slashes"),
            ("unix:///s?what=1", "only db, user, pass, layout and forgets"),
            ("redis://db-7?wait=1", "only layout and forgets are known"),
            ("redis://db-7?layout=shedlock", "layout=redisson"),
            ("unix:///s?layout=", "layout=redisson"),
            ("redis://db-7?forgets=always", "forgets=never"),
            ("/run/redis.sock", "redis+unix"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn tls_needs_its_feature() {
        let parsed = Address::parse("rediss://db-7");
        if cfg!(feature = "tls") {
            assert_eq!(parsed.unwrap().to_string(), "rediss://db-7:6379");
        } else {
            assert_eq!(parsed.unwrap_err(), AddressError::NoTls);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,60}", scheme in "(redis|rediss|unix|valkey)://") {
            drop(Address::parse(&text));
            drop(Address::parse(&format!("{scheme}{text}")));
        }

        #[test]
        fn a_misplaced_password_is_never_shown(
            before in "(redis|rediss|valkey|http|redis\\+sentinel)://(/|user:|:|user@)?[a@:/?#%&=]{0,3}",
            after in "[a@:/?#%&=]{0,3}@db-7(:1)?(/x)?(\\?pass=)?",
        ) {
            shows_no_password(&before, &after)?;
        }

        #[test]
        fn the_password_of_a_socket_is_never_shown(
            before in "(unix|redis\\+unix)://(/s)?\\?[a@:/?#%&=]{0,3}(pass=)?[a@:/?#%&=]{0,3}",
            after in "[a@:/?#%&=]{0,3}(&db=x)?",
        ) {
            shows_no_password(&before, &after)?;
        }
    }

    proptest! {
        #[test]
        fn a_shown_address_names_the_same_server(
            text in prop_oneof![
                "(redis|rediss|valkey)://([a-z]{1,3}:[a-z]{1,3}@)?\\PC{1,12}(:[0-9]{1,5})?(/[0-9]{1,3})?",
                "unix:///(\\PC|%[0-7][0-9a-f]|/|\\.){0,12}(\\?db=[0-9])?",
                "\\PC{0,20}",
            ],
        ) {
            if let Ok(address) = Address::parse(&text) {
                let shown = address.to_string();
                prop_assert!(!shown.chars().any(char::is_control), "{:?} could move the cursor", shown);
                let again = Address::parse(&shown);
                prop_assert!(
                    again.as_ref().is_ok_and(|again| again.same_server(&address)
                        && again.endpoint() == address.endpoint()
                        && again.database() == address.database()),
                    "{:?} is shown as {:?}, which is {:?}", text, shown, again
                );
            }
        }
    }

    fn shows_no_password(before: &str, after: &str) -> Result<(), TestCaseError> {
        const PASSWORD: &str = "qq7zz9";
        let shown = match Address::parse(&format!("{before}{PASSWORD}{after}")) {
            Ok(address) => format!("{address} {address:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        prop_assert!(!shown.contains(PASSWORD), "{}", shown);
        Ok(())
    }
}
