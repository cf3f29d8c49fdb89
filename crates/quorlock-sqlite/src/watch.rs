//! Watches refused locks, and detects when they may have become free.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{Request, Vote};
use quorlock::protocol::Moment;

use crate::failure::Failure;
use crate::store::{Store, since_boot};
use crate::table::Table;

/// The minimum and maximum time between two looks; in between, a 32nd of how long clients have been waiting.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(50);
const SHARE: u32 = 32;

/// What clients wait for.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    keys: BTreeMap<String, Awaited>,
    /// Since when clients have been waiting without a longer break.
    since: Option<Moment>,
    last: Option<Moment>,
    /// The version of the database at the last look.
    version: Option<i64>,
}

/// What clients wait for at one key.
#[derive(Debug)]
enum Awaited {
    /// The end of this holder, by expiry or earlier.
    End { ends: Option<u64>, mark: Option<Arc<str>>, shared: bool },
    /// The absence of waiting writers.
    NoIntent,
    /// The presence of a holder.
    Holder,
}

impl Watch {
    /// Returns the time until the next look; `None` if no client waits.
    pub(crate) fn pause(&self, now: Moment) -> Option<Duration> {
        let since = self.since.filter(|_| !self.keys.is_empty())?;
        Some((now.since(since) / SHARE).clamp(SHORTEST, LONGEST))
    }

    /// Records what a client waits for after the answer to its request.
    pub(crate) fn note(&mut self, request: &Request, vote: &Vote, store: &Store, now: Moment) {
        let (key, awaited) = match (request, vote) {
            (_, Vote::Held(holding)) => {
                let Some(key) = holding.key.as_deref().or_else(|| key_of(request)) else { return };
                let found = store.read(|table| look(table, key));
                // Already free: the next look reports it.
                let gone = Awaited::End { ends: Some(0), mark: None, shared: false };
                (key, found.ok().flatten().unwrap_or(gone))
            }
            (Request::Acquire { claim, .. }, Vote::NotYourTurn) => (claim.key(), Awaited::NoIntent),
            (Request::Inspect { key, .. }, Vote::Free) => (&**key, Awaited::Holder),
            _ => return,
        };
        if self.keys.is_empty() && self.last.is_none_or(|last| now.since(last) > LONGEST * SHARE) {
            self.since = Some(now);
        }
        self.keys.insert(key.to_owned(), awaited);
        self.version = None;
    }

    /// Returns the keys whose waiters must be notified.
    pub(crate) fn look(&mut self, store: &Store, now: Moment) -> Result<Vec<String>, Failure> {
        if self.keys.is_empty() {
            return Ok(Vec::new());
        }
        self.last = Some(now);
        let version = store.version()?;
        let unchanged = self.version.replace(version) == Some(version);
        let at = since_boot(now);
        let mut changed = Vec::new();
        store.read(|table| {
            for (key, awaited) in &mut self.keys {
                let due = match awaited {
                    Awaited::End { ends, mark, .. } => {
                        ends.is_some_and(|ends| ends <= at) || table.is_gone(mark.as_deref())
                    }
                    Awaited::NoIntent => true,
                    Awaited::Holder => false,
                };
                // Readers have their own marks.
                let shared = matches!(awaited, Awaited::End { shared: true, .. });
                if (due || shared || !unchanged) && has_changed(table, key, awaited)? {
                    changed.push(key.clone());
                }
            }
            Ok(())
        })?;
        for key in &changed {
            self.keys.remove(key);
        }
        Ok(changed)
    }

    /// Records a change by this connection, which does not change its own `data_version`.
    pub(crate) fn touch(&mut self) {
        self.version = None;
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.version = None;
    }
}

fn key_of(request: &Request) -> Option<&str> {
    if let Request::Acquire { claim, .. }
    | Request::Transfer { to: claim, .. }
    | Request::Renew { claim, .. }
    | Request::WriteBack { claim, .. } = request
    {
        return Some(claim.key());
    }
    if let Request::Inspect { key, .. } = request { Some(key) } else { None }
}

fn look(table: &Table<'_>, key: &str) -> Result<Option<Awaited>, Failure> {
    Ok(table.record(key)?.held.map(|held| {
        let shared = held.token.is_marker();
        Awaited::End { ends: held.ends, mark: held.mark, shared }
    }))
}

/// Whether the state has changed for a waiter. A change from one holder to another does not count: the waiter
/// would still be refused.
fn has_changed(table: &Table<'_>, key: &str, awaited: &mut Awaited) -> Result<bool, Failure> {
    match awaited {
        Awaited::Holder => Ok(table.record(key).map_or(true, |record| record.held.is_some())),
        Awaited::NoIntent => {
            let record = table.record(key)?;
            Ok(record.held.is_none() || record.intents.is_empty())
        }
        Awaited::End { shared, .. } => {
            let Some(found) = look(table, key)? else { return Ok(true) };
            // A writer that has become a reader lets others share the lock.
            let opened = !*shared && matches!(found, Awaited::End { shared: true, .. });
            *awaited = found;
            Ok(opened)
        }
    }
}
