//! One lock of a list.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use humantime::format_rfc3339_seconds;
use quorlock::{FencingToken, duration, votes::Holder};
use serde_json::{Value, json};

use crate::report::{millis, row};
use crate::status::{Finding, Look};

/// A lock that is held or retained.
pub(crate) struct Entry {
    pub(crate) resource: String,
    holder: Holder,
    /// How many processes wait for it, and for how long the first of them has.
    waiters: usize,
    more_waiters: bool,
    longest_wait: Duration,
}

impl Entry {
    /// Returns the lock, if a quorum stores it.
    pub(crate) fn of(look: Look) -> Option<Entry> {
        let Finding::Held(holder) = look.finding else { return None };
        let waits = look.queue.waiters.iter().map(|waiter| waiter.waited);
        Some(Entry {
            resource: look.resource,
            holder,
            waiters: look.queue.waiters.len(),
            // Where nothing is known of the queue there is no reason to think that it has any.
            more_waiters: look.queue.has_more && !look.queue.waiters.is_empty(),
            longest_wait: waits.max().unwrap_or_default(),
        })
    }

    /// Whether processes wait for it.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters > 0
    }

    /// The order of `quorlock top`: the longest wait first, then the longest hold.
    pub(crate) fn order(&self) -> (Reverse<Duration>, Option<SystemTime>, &str) {
        (Reverse(self.longest_wait), self.since(), &self.resource)
    }

    /// When the holder got its fencing token, which is drawn from a clock in microseconds.
    fn since(&self) -> Option<SystemTime> {
        let micros = self.holder.fencing_token?.get();
        Some(SystemTime::UNIX_EPOCH + Duration::from_micros(micros))
    }

    fn state(&self) -> &'static str {
        if self.holder.token.is_retained() { "retained" } else { "held" }
    }

    pub(crate) fn in_json(&self) -> Value {
        let Entry { resource, holder, waiters, more_waiters, longest_wait } = self;
        json!({
            "resource": resource,
            "state": self.state(),
            "holder": holder.describe(),
            "token": holder.token.short(),
            "fencing_token": holder.fencing_token.map(FencingToken::get),
            "since": self.since().map(|since| format_rfc3339_seconds(since).to_string()),
            "remaining_ms": millis(holder.remaining),
            "nodes": holder.nodes,
            "waiters": waiters,
            "more_waiters": more_waiters,
            "longest_wait_ms": millis(*longest_wait),
        })
    }
}

/// Returns a table of the locks, in lines of at most `width` characters if given.
pub(crate) fn table<'a>(entries: impl IntoIterator<Item = &'a Entry>, width: Option<usize>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "lock",
        "holder",
        "since (UTC)",
        "remaining",
        "waiting",
        "longest wait",
    ]);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    }
    for entry in entries {
        let since = entry.since().map(|since| format_rfc3339_seconds(since).to_string());
        let more = if entry.more_waiters { "+" } else { "" };
        let waits = entry.waiters > 0;
        table.add_row(row([
            entry.resource.clone(),
            entry.holder.describe(),
            since.unwrap_or_default().replace('T', " ").replace('Z', ""),
            duration::format(entry.holder.remaining),
            if waits { format!("{}{more}", entry.waiters) } else { String::new() },
            if waits { duration::format(entry.longest_wait) } else { String::new() },
        ]));
    }
    for column in 3..=5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
