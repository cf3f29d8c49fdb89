//! One lock of a list.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use comfy_table::Row;
use humantime::format_rfc3339_seconds;
use quorlock::{FencingToken, duration, lock::QueueListing, votes::Holder};
use serde_json::{Value, json};

use crate::report::{left_in_millis, millis, row};
use crate::status::{Finding, Look, add_depth};
use crate::time_left;
use crate::width::{self, keep_whole};

/// A lock that is held or retained.
pub(crate) struct Entry {
    pub(crate) resource: String,
    holder: Holder,
    /// How many processes wait for it, and for how long the first of them has.
    waiters: usize,
    more_waiters: bool,
    longest_wait: Duration,
}

/// What the nodes say of a lock whose name is stored.
pub(crate) enum Seen {
    /// A quorum stores it.
    Taken(Entry),
    /// Too few nodes answered to say whether it is held.
    Unknown(String),
}

impl Seen {
    /// Returns what is known, unless the lock is free.
    pub(crate) fn of(look: Look) -> Option<Seen> {
        match look.finding {
            Finding::Held(holder) => Some(Seen::Taken(Entry::of(holder, look.resource, &look.queue))),
            Finding::Unclear(_) => Some(Seen::Unknown(look.resource)),
            Finding::Free => None,
        }
    }

    pub(crate) fn in_json(&self) -> Value {
        match self {
            Seen::Taken(entry) => entry.in_json(),
            Seen::Unknown(resource) => json!({ "resource": resource, "state": "unknown" }),
        }
    }

    /// Returns the locks that are held, and the names of those of which it is unknown.
    pub(crate) fn sorted(all: Vec<Seen>) -> (Vec<Entry>, Vec<String>) {
        let (mut taken, mut unknown) = (Vec::new(), Vec::new());
        for seen in all {
            match seen {
                Seen::Taken(entry) => taken.push(entry),
                Seen::Unknown(name) => unknown.push(name),
            }
        }
        (taken, unknown)
    }
}

impl Entry {
    fn of(holder: Holder, resource: String, queue: &QueueListing) -> Entry {
        let waits = queue.waiters.iter().map(|waiter| waiter.waited);
        Entry {
            resource,
            holder,
            waiters: queue.waiters.len(),
            // Where nothing is known of the queue there is no reason to think that it has any.
            more_waiters: queue.has_more && !queue.waiters.is_empty(),
            longest_wait: waits.max().unwrap_or_default(),
        }
    }

    /// Whether processes wait for it.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters > 0
    }

    /// The order of `quorlock top`: the longest wait first, then the longest hold; those of which that is unknown last.
    pub(crate) fn order(&self) -> (Reverse<Duration>, bool, Option<SystemTime>, &str) {
        let since = self.since();
        (Reverse(self.longest_wait), since.is_none(), since, &self.resource)
    }

    /// When the holder asked for its fencing token: its token names that time, by a clock in microseconds, as the number
    /// that it wanted to draw. Tokens of other programs name none.
    fn since(&self) -> Option<SystemTime> {
        let micros = self.holder.token.number()?.get();
        Some(SystemTime::UNIX_EPOCH + Duration::from_micros(micros))
    }

    fn state(&self) -> &'static str {
        if self.holder.token.is_retained() { "retained" } else { "held" }
    }

    /// Returns its cells in a table, under [`HEADINGS`].
    fn row(&self) -> [String; HEADINGS.len()] {
        let since = self.since().map(|since| format_rfc3339_seconds(since).to_string());
        let more = if self.more_waiters { "+" } else { "" };
        let waits = self.waiters > 0;
        row([
            self.resource.clone(),
            self.holder.describe(),
            since.unwrap_or_default().replace('T', " ").replace('Z', ""),
            time_left::in_cell(self.holder.remaining),
            if waits { format!("{}{more}", self.waiters) } else { String::new() },
            if waits { duration::format(self.longest_wait) } else { String::new() },
        ])
    }

    pub(crate) fn in_json(&self) -> Value {
        let Entry { resource, holder, waiters, more_waiters, longest_wait } = self;
        let mut shown = json!({
            "resource": resource,
            "state": self.state(),
            "holder": holder.describe(),
            "token": holder.token.short(),
            "fencing_token": holder.fencing_token.map(FencingToken::get),
            "since": self.since().map(|since| format_rfc3339_seconds(since).to_string()),
            "remaining_ms": left_in_millis(holder.remaining),
            "nodes": holder.nodes,
            "waiters": waiters,
            "more_waiters": more_waiters,
            "longest_wait_ms": millis(*longest_wait),
        });
        add_depth(&mut shown, holder.depth);
        shown
    }
}

/// Returns a table of the locks, in lines of at most `width` characters if given.
pub(crate) fn table<'a>(entries: impl IntoIterator<Item = &'a Entry>, width: Option<usize>) -> String {
    let mut table = width::table(HEADINGS, &[3, 4, 5], width);
    table.add_rows(entries.into_iter().map(Entry::row));
    keep_whole(&mut table, width, &[2, 3, 4, 5]);
    table.trim_fmt()
}

/// Returns a table of the locks in lines of at most `width` characters, one for each lock. What has no room is cut, and
/// the time since when it is held left out.
pub(crate) fn lines<'a>(entries: impl IntoIterator<Item = &'a Entry>, width: usize) -> Vec<String> {
    let is_narrow = width < ROOM_FOR_SINCE;
    let shown = |row: [String; HEADINGS.len()]| {
        let cells = row.into_iter().enumerate().filter(|(column, _)| *column != SINCE || !is_narrow);
        let mut row = Row::from(cells.map(|(_, cell)| cell).collect::<Vec<_>>());
        row.max_height(1);
        row
    };
    let right: &[usize] = if is_narrow { &[2, 3, 4] } else { &[3, 4, 5] };
    let mut table = width::table(shown(HEADINGS.map(str::to_owned)), right, Some(width));
    table.set_truncation_indicator("…").add_rows(entries.into_iter().map(|entry| shown(entry.row())));
    keep_whole(&mut table, Some(width), if is_narrow { right } else { &[2, 3, 4, 5] });
    table.trim_fmt().lines().map(str::to_owned).collect()
}

const HEADINGS: [&str; 6] = ["lock", "holder", "since (UTC)", "remaining", "waiting", "longest wait"];
const SINCE: usize = 2;

/// The least width that has room for it beside names of the usual length.
const ROOM_FOR_SINCE: usize = 80;

#[cfg(test)]
mod tests {
    use quorlock::{Token, node::Expiry};

    use super::*;

    fn entry(name: &str, token: Token, waited: u64) -> Entry {
        let holder = Holder::new(token, None, 5, Expiry::In(Duration::from_secs(9)));
        let mut entry = Entry::of(holder, name.to_owned(), &QueueListing::default());
        entry.longest_wait = Duration::from_secs(waited);
        entry
    }

    /// The token of a holder that asked for the lock this many seconds after 1970.
    fn since(seconds: u64) -> Token {
        Token::numbered(1, FencingToken::new(seconds * 1_000_000).unwrap(), "db-7:4121")
    }

    #[test]
    fn a_hold_is_as_old_as_its_token_also_while_the_nodes_disagree_about_its_number() {
        assert_eq!(entry("a", since(60), 0).in_json()["since"], "1970-01-01T00:01:00Z");
        assert!(entry("a", Token::found(b"another program's"), 0).in_json()["since"].is_null());
    }

    #[test]
    fn a_hold_of_unknown_age_is_not_taken_for_the_longest() {
        let mut entries = [
            entry("unfenced", Token::new(1, "db-7:4121"), 0),
            entry("young", since(90), 0),
            entry("old", since(60), 0),
            entry("waited for", Token::new(1, "db-7:4121"), 1),
        ];
        entries.sort_by(|one, other| one.order().cmp(&other.order()));
        assert_eq!(entries.map(|entry| entry.resource), ["waited for", "old", "young", "unfenced"]);
    }
}
