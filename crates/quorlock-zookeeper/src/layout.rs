//! Where locks are stored, in the layout of Curator's `InterProcessMutex`. Pure.
//!
//! A lock is a node, below the path of the URL: each client that wants it has an ephemeral child there, to whose name
//! ZooKeeper appends a number, and the child with the smallest number is the holder's. Curator calls it
//! `_c_GUID-lock-0000000042`, and other clients something else before the number; so every child that ends in ten digits
//! counts.
//!
//! Names are escaped by per cent, where ZooKeeper does not allow them, or where they would be taken for such a child.

use std::fmt::Write as _;
use std::sync::Arc;

use quorlock::node::QueuedWaiter;
use quorlock::node::places::{Owner, RESERVED};
use quorlock::protocol::{FencingToken, Token, WaiterId, fence_counter};

/// A fencing counter, and the version of its data; nothing if it does not exist.
pub(crate) type Counter = Option<(FencingToken, i32)>;

/// Returns where a counter stands.
pub(crate) fn stands(counter: Counter) -> FencingToken {
    counter.map_or(FencingToken::ZERO, |(number, _)| number)
}

/// The number of digits that ZooKeeper appends to a name, and that which newer servers append.
const DIGITS: usize = 10;
const MORE_DIGITS: usize = 19;

/// The paths of a deployment.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    base: Arc<str>,
}

/// A child of a lock's node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    /// The number that ZooKeeper has appended.
    pub(crate) sequence: u64,
    pub(crate) path: Arc<str>,
}

impl Layout {
    /// Creates the layout below this path, which is empty for the root.
    pub(crate) fn below(base: &Arc<str>) -> Layout {
        Layout { base: Arc::clone(base) }
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The path of the node, or that of ZooKeeper's root.
    pub(crate) fn base_or_root(&self) -> String {
        if self.base.is_empty() { "/".to_owned() } else { self.base.to_string() }
    }

    /// Returns the node of a lock, whose children are its places.
    pub(crate) fn dir(&self, lock: &str) -> String {
        let escaped = escaped(lock);
        // ZooKeeper's own.
        let own = self.base.is_empty() && escaped.split('/').next() == Some("zookeeper");
        match escaped.strip_prefix('z').filter(|_| own) {
            Some(rest) => format!("/%7A{rest}"),
            None => format!("{}/{escaped}", self.base),
        }
    }

    /// Returns the lock of such a node.
    pub(crate) fn lock(&self, dir: &str) -> Option<String> {
        unescaped(dir.strip_prefix(&*self.base)?.strip_prefix('/')?)
    }

    /// A node of ours that is no lock.
    fn own(&self, name: &str) -> String {
        format!("{}/{RESERVED}{name}", self.base)
    }

    /// The nodes above all others of ours.
    pub(crate) fn roots(&self) -> Vec<String> {
        let mut roots = with_parents(&self.base);
        roots.extend([
            self.own("").trim_end_matches('/').to_owned(),
            self.own("fence"),
            self.own("alive"),
            self.grants(),
        ]);
        roots
    }

    /// The name of the history, and for how long it was kept from voting.
    pub(crate) fn history(&self) -> String {
        self.own("id")
    }

    /// Exists while the history is too young to vote.
    pub(crate) fn young(&self) -> String {
        self.own("young")
    }

    /// The largest `max_ttl` of the clients, in milliseconds.
    pub(crate) fn max_ttl(&self) -> String {
        self.own("max-ttl")
    }

    /// Written with each grant, so that clients notice an older copy of the data.
    pub(crate) fn grants(&self) -> String {
        self.own("grants")
    }

    /// The node that a session writes to be kept.
    pub(crate) fn alive(&self, session: i64) -> String {
        self.own(&format!("alive/{session:016x}"))
    }

    /// Returns the fencing counter of a lock, which all locks of its hash slot below the prefix share.
    pub(crate) fn counter(&self, prefix: &str, lock: &str) -> String {
        self.own(&format!("fence/{}", flat(&fence_counter(prefix, lock))))
    }
}

/// Returns a path and those above it, from the top.
pub(crate) fn with_parents(path: &str) -> Vec<String> {
    let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).chain([path.len()]);
    ends.filter_map(|end| path.get(..end)).filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

/// Returns the places among the children of a lock's node, in their order.
pub(crate) fn places<'a>(dir: &str, children: impl IntoIterator<Item = &'a str>) -> Vec<Place> {
    let place = |name: &str| {
        let sequence = sequence(name)?;
        Some(Place { sequence, path: format!("{dir}/{name}").into() })
    };
    let mut places: Vec<Place> = children.into_iter().filter_map(place).collect();
    places.sort_unstable();
    places
}

/// Returns the node above.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Returns the number at the end of the name of a child that wants the lock; nothing for other children.
pub(crate) fn sequence(name: &str) -> Option<u64> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let length = match digits {
        MORE_DIGITS.. => MORE_DIGITS,
        DIGITS..MORE_DIGITS => DIGITS,
        _ => return None,
    };
    name.get(name.len() - length..)?.parse().ok()
}

/// Returns the path of an attempt's place, up to the number.
pub(crate) fn attempt(dir: &str, token: &Token) -> String {
    let random = String::from_utf8_lossy(token.random_part());
    let mut digits: String = random.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    while digits.len() < 32 {
        digits.push('0');
    }
    place(dir, &digits)
}

/// Returns the path of a waiter's place, up to the number.
pub(crate) fn waiter(dir: &str, waiter: WaiterId, session: i64) -> String {
    place(dir, &format!("{waiter:0>16}{session:016x}"))
}

/// As Curator does it.
fn place(dir: &str, digits: &str) -> String {
    let mut guid = String::with_capacity(36);
    for (at, digit) in digits.chars().enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            guid.push('-');
        }
        guid.push(digit);
    }
    format!("{dir}/_c_{guid}-lock-")
}

/// Returns the name of the next child.
pub(crate) fn numbered(path: &str, created: i32) -> String {
    format!("{path}{created:010}")
}

/// The largest number. A server gives it to all places that come after, so that nothing says which of them is first.
pub(crate) const LAST: i32 = i32::MAX;

/// Whether the number of a place that was created with this path, up to the number, orders it among the others.
pub(crate) fn is_ordered(place: &str, path: &str) -> bool {
    let number = place.strip_prefix(path).and_then(|number| number.parse::<i64>().ok());
    // One that is negative comes after the largest.
    number.is_some_and(|number| number >= 0 && number != i64::from(LAST))
}

/// Returns the entry of a list for the place of a waiter, of whatever program.
pub(crate) fn listed(data: &[u8], place: &Place, wall: std::time::Duration) -> QueuedWaiter {
    Owner::of(data).listed(WaiterId::new(place.sequence), wall)
}

/// Whether ZooKeeper does not allow the character in a name, or it begins an escape.
fn is_escaped(letter: char) -> bool {
    let code = u32::from(letter);
    letter == '%' || letter.is_control() || (0xd800..=0xf8ff).contains(&code) || code >= 0xfff0
}

fn escape(to: &mut String, letter: char) {
    let mut bytes = [0; 4];
    for byte in letter.encode_utf8(&mut bytes).bytes() {
        // Writing to a string does not fail.
        let _ = write!(to, "%{byte:02X}");
    }
}

/// Returns the path for a name, whose slashes separate its parts, without a slash in front.
pub(crate) fn escaped(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for (number, part) in name.split('/').enumerate() {
        if number > 0 {
            path.push('/');
        }
        match part {
            // No part is escaped to this.
            "" => path.push('%'),
            "." => path.push_str("%2E"),
            ".." => path.push_str("%2E%2E"),
            part => {
                let last = part.len() - 1;
                let is_numbered = sequence(part).is_some();
                for (at, letter) in part.char_indices() {
                    if is_escaped(letter) || (is_numbered && at == last) {
                        escape(&mut path, letter);
                    } else {
                        path.push(letter);
                    }
                }
            }
        }
    }
    path
}

/// Returns the name of a path; nothing if it is of another program, which escapes otherwise.
fn unescaped(path: &str) -> Option<String> {
    let parts: Option<Vec<String>> = path
        .split('/')
        .map(|part| if part == "%" { Some(String::new()) } else { quorlock::node::percent_decoded(part) })
        .collect();
    parts.map(|parts| parts.join("/"))
}

/// Returns one part of a path for a name.
fn flat(name: &str) -> String {
    escaped(name).replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(base: &str) -> Layout {
        Layout::below(&base.into())
    }

    #[test]
    fn names_become_paths_that_zookeeper_takes_and_back() {
        let layout = layout("/locks");
        for (name, path) in [
            ("jobs/nightly", "/locks/jobs/nightly"),
            ("a//b/", "/locks/a/%/b/%"),
            ("./..", "/locks/%2E/%2E%2E"),
            ("...", "/locks/..."),
            ("100%", "/locks/100%25"),
            ("a\0\n\u{7f}\u{9f}", "/locks/a%00%0A%7F%C2%9F"),
            ("Schlüssel 錠 🔒", "/locks/Schlüssel 錠 %F0%9F%94%92"),
            ("\u{e000}\u{fff0}\u{ffef}", "/locks/%EE%80%80%EF%BF%B0\u{ffef}"),
            ("job-0000000001", "/locks/job-000000000%31"),
            ("job-000000001", "/locks/job-000000001"),
            ("zookeeper/a", "/locks/zookeeper/a"),
        ] {
            assert_eq!(layout.dir(name), path);
            assert_eq!(layout.lock(path).as_deref(), Some(name));
        }
        assert_eq!(layout.lock("/other/a"), None);
    }

    #[test]
    fn zookeepers_own_node_is_no_lock() {
        let root = layout("");
        for (name, path) in
            [("zookeeper", "/%7Aookeeper"), ("zookeeper/a", "/%7Aookeeper/a"), ("zookeepers", "/zookeepers")]
        {
            assert_eq!(root.dir(name), path);
            assert_eq!(root.lock(path).as_deref(), Some(name));
        }
        assert_eq!(root.roots(), ["/quorlock", "/quorlock/fence", "/quorlock/alive", "/quorlock/grants"]);
        assert_eq!(layout("/my/locks").roots()[..2], ["/my", "/my/locks"]);
        assert_eq!(with_parents("/a/b/c"), ["/a", "/a/b", "/a/b/c"]);
    }

    #[test]
    fn every_child_that_ends_in_ten_digits_wants_the_lock() {
        let token = Token::new(0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978, "db-7:41");
        let ours = numbered(&attempt("/a", &token), 7);
        assert_eq!(ours, "/a/_c_01234567-89ab-cdef-0f1e-2d3c4b5a6978-lock-0000000007");
        let waits = numbered(&waiter("/a", WaiterId::new(9), 0x1f), 8);
        assert_eq!(waits, "/a/_c_00000000-0000-0009-0000-00000000001f-lock-0000000008");
        let children = [
            &waits[3..],
            &ours[3..],
            "9f86__lock__0000000003",
            "lock-0000000000000000004",
            "0000000012",
            "below",
            "job-12",
            "000000000%31",
        ];
        let found = places("/a", children);
        assert_eq!(found.iter().map(|place| place.sequence).collect::<Vec<_>>(), [3, 4, 7, 8, 12]);
        assert_eq!(*found[2].path, *ours);
        assert_eq!(sequence("17000000000000000042"), Some(7_000_000_000_000_000_042));
    }

    #[test]
    fn a_place_after_the_largest_number_is_in_no_order() {
        for (number, ordered) in [
            ("0000000000", true),
            ("2147483646", true),
            ("2147483647", false),
            ("-2147483648", false),
            ("-000000001", false),
            ("0000000003000000000", true),
        ] {
            assert_eq!(is_ordered(&format!("/a/_c_1-lock-{number}"), "/a/_c_1-lock-"), ordered, "{number}");
        }
    }

    #[test]
    fn a_counter_is_one_node() {
        assert!(!layout("").counter("a/b", "a/b/c")["/quorlock/fence/".len()..].contains('/'));
    }
}
