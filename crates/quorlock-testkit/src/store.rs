//! The state of one lock server, without a network and without a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use quorlock::node::{Holding, Vote};
use quorlock::protocol::{FencingToken, Moment, NoNumber, Token};

mod fence;
mod plain;
mod queue;
mod readers;
mod several;
mod strings;
mod watch;

use fence::Noted;
pub use fence::{Counter, Drawing};
pub use plain::{Fields, Scores};
pub use queue::{Enqueue, Offer};
pub use readers::Sharing;
pub use several::{Place, Several};
pub use strings::{SetLife, SetOptions, SetWhen};
pub use watch::Change;

/// The keys of one lock server.
///
/// Pure: `now` is an argument, read on the server's own clock. Times are in whole milliseconds, and a key is
/// gone when its last millisecond has passed, as in Redis. Each method does the work of one command or one
/// script in a single step, and answers as Redis does.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// The last value of the wall clock.
    wall: Duration,
    // Ordered, so that a simulation sees the keys in the same order in every run.
    keys: BTreeMap<Vec<u8>, Entry>,
    /// By mark, the key that records that clients wait.
    queues: BTreeMap<Vec<u8>, queue::Queue>,
    /// Readers, and the writers that wait for them.
    sets: BTreeMap<Vec<u8>, readers::Members>,
    watched: BTreeSet<Vec<u8>>,
    changes: Vec<Change>,
    /// The number of listeners at each inbox.
    inboxes: BTreeMap<Vec<u8>, usize>,
    /// Replaced and deleted values, for a simulation that inspects the store only between its events.
    replaced: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    ends: Option<Millis>,
}

/// The value of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a lock meets a string, or something that is none")]
pub enum Value {
    /// A string, which is what locks are.
    Text(Vec<u8>),
    /// A list, representing every type other than strings: commands for strings refuse it.
    List(Vec<Vec<u8>>),
    /// A sorted set, as used for fencing counters.
    Number(Counter),
    /// A sorted set that is not a counter.
    Scores(Scores),
    /// A hash.
    Fields(Fields),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(Counter { current: number, notes: BTreeMap::new() })
    }
}

/// Why a command or a script was not executed; displayed as a server's error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The key has the wrong type for the command.
    WrongType,
    /// No number can be drawn from the fencing counter.
    OutOfRange,
    /// There is no fencing counter, and the hint is too far behind the wall clock.
    ClientClockBehind,
    /// A string would exceed the server's maximum length.
    TooLong,
    /// The key holds waiters or readers, which only scripts can change here.
    OfScripts,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Failure::OutOfRange => "ERR the fencing counter is exhausted",
            Failure::ClientClockBehind => {
                return write!(f, "ERR {}", NoNumber::ClientClockBehind);
            }
            Failure::TooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Failure::OfScripts => "ERR only scripts can access waiters and readers on the built-in server",
        })
    }
}

impl std::error::Error for Failure {}

/// The result of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the scripts")]
pub struct ScriptResult {
    /// The vote.
    pub vote: Vote,
    /// The fencing counter, if the script reports it and it is not zero.
    pub fencing_token: Option<FencingToken>,
}

impl From<Vote> for ScriptResult {
    fn from(vote: Vote) -> ScriptResult {
        ScriptResult { vote, fencing_token: None }
    }
}

impl ScriptResult {
    fn with(vote: Vote, counter: Option<FencingToken>) -> ScriptResult {
        ScriptResult { vote, fencing_token: counter.filter(|counter| *counter > FencingToken::ZERO) }
    }
}

impl From<NoNumber> for Failure {
    fn from(why: NoNumber) -> Failure {
        if why == NoNumber::ClientClockBehind { Failure::ClientClockBehind } else { Failure::OutOfRange }
    }
}

impl Store {
    /// Sets the wall clock, as the time since 1970, by which numbers are drawn.
    pub fn set_wall(&mut self, wall: Duration) {
        self.wall = wall;
    }
}

/// How long the mark lasts that a client wants a key.
const WANTED: Duration = Duration::from_secs(6);

/// The requests about one key, with the semantics of the scripts in `quorlock::redis::scripts`.
impl Store {
    /// `acquire.lua`: stores the token and draws its number, if the key is free and has no tombstone.
    ///
    /// # Errors
    ///
    /// If the key is not a string, or no number can be drawn; then nothing is stored.
    pub fn acquire(
        &mut self,
        now: Moment,
        key: &[u8],
        tombstone: &[u8],
        token: &[u8],
        ttl: Duration,
        drawing: Drawing<'_>,
    ) -> Result<ScriptResult, Failure> {
        if self.exists(now, tombstone) {
            return Ok(Vote::Free.into());
        }
        let drawing = self.prepare(now, drawing)?;
        if !self.exists(now, key) {
            self.put(key, Value::Text(token.to_vec()), Some(millis(now).saturating_add(span(ttl))));
            return Ok(ScriptResult::with(Vote::Granted, Some(self.fence_hint(now, drawing, token))));
        }
        match self.get(now, key)? {
            Some(holder) if holder == token => Ok(ScriptResult::with(Vote::Granted, Some(drawing.current))),
            Some(_) | None => Ok(ScriptResult::with(self.holding(now, key)?, Some(drawing.current))),
        }
    }

    /// `take.lua`: stores the token if the key is free and has no tombstone, and draws no number.
    ///
    /// # Errors
    ///
    /// If the key is not a string.
    pub fn take(
        &mut self,
        now: Moment,
        key: &[u8],
        tombstone: &[u8],
        token: &[u8],
        ttl: Duration,
    ) -> Result<ScriptResult, Failure> {
        if self.exists(now, tombstone) {
            return Ok(Vote::Free.into());
        }
        let options = SetOptions { when: SetWhen::Missing, life: SetLife::For(ttl) };
        let stored = self.set(now, key, Value::Text(token.to_vec()), options);
        Ok(if stored { Vote::Granted } else { self.holding(now, key)? }.into())
    }

    /// `renew.lua`: extends the key if the token holds it, never shortens it, and stores it again if it is
    /// gone; then the counter is raised to at least `fencing_token`, if there is one.
    ///
    /// # Errors
    ///
    /// If the key is not a string, or no number can be drawn from the counter.
    pub fn renew(
        &mut self,
        now: Moment,
        key: &[u8],
        tombstone: &[u8],
        token: &[u8],
        ttl: Duration,
        fencing_token: Option<(&[u8], FencingToken)>,
    ) -> Result<ScriptResult, Failure> {
        let ours = self.get(now, key)?.map(|holder| holder == token);
        let vote = match ours {
            Some(true) => {
                self.prolong(now, key, ttl);
                Vote::Granted
            }
            Some(false) => self.holding(now, key)?,
            None if self.exists(now, tombstone) => Vote::Free,
            None => {
                if let Some((name, fencing_token)) = fencing_token {
                    let counter = self.counter(now, name)?;
                    self.raise(now, name, counter.max(fencing_token));
                    self.note(now, name, token, Noted { number: fencing_token, usual: None });
                }
                self.put(key, Value::Text(token.to_vec()), Some(millis(now).saturating_add(span(ttl))));
                Vote::Restored
            }
        };
        Ok(vote.into())
    }

    /// `transfer.lua`: replaces one token by another, or stores it if the key is free, and draws its number.
    ///
    /// # Errors
    ///
    /// As [`Store::acquire`].
    pub fn transfer(
        &mut self,
        now: Moment,
        key: &[u8],
        tombstone: &[u8],
        [from, to]: [&[u8]; 2],
        ttl: Duration,
        drawing: Option<Drawing<'_>>,
    ) -> Result<ScriptResult, Failure> {
        if self.exists(now, tombstone) {
            return Ok(Vote::Free.into());
        }
        let drawing = drawing.map(|drawing| self.prepare(now, drawing)).transpose()?;
        let counter = drawing.map(|drawing| drawing.current);
        match self.get(now, key)? {
            Some(holder) if holder == to => {
                self.prolong(now, key, ttl);
                Ok(ScriptResult::with(Vote::Granted, counter))
            }
            Some(holder) if holder != from => Ok(ScriptResult::with(self.holding(now, key)?, counter)),
            Some(_) | None => {
                self.put(key, Value::Text(to.to_vec()), Some(millis(now).saturating_add(span(ttl))));
                let drawn = drawing.map(|drawing| self.fence_hint(now, drawing, to));
                Ok(ScriptResult::with(Vote::Granted, drawn))
            }
        }
    }

    /// `release.lua`: deletes the key if the token holds it, notifies the first waiter in the queue, and
    /// reports whether another client wants it.
    ///
    /// # Errors
    ///
    /// If the key is not a string.
    pub fn release(
        &mut self,
        now: Moment,
        key: &[u8],
        mark: &[u8],
        token: &[u8],
    ) -> Result<ScriptResult, Failure> {
        let vote = self.delete_own(now, key, token)?;
        Ok(if vote == Vote::Granted { self.tell_of_release(now, key, mark) } else { vote }.into())
    }

    fn delete_own(&mut self, now: Moment, key: &[u8], token: &[u8]) -> Result<Vote, Failure> {
        let ours = self.get(now, key)? == Some(token);
        Ok(if ours && self.del(now, key) { Vote::Granted } else { Vote::Free })
    }

    /// `cancel.lua`: deletes the key if the token holds it, and leaves a tombstone.
    ///
    /// # Errors
    ///
    /// If the key is not a string; then there is no tombstone either, because the script stops.
    pub fn cancel(
        &mut self,
        now: Moment,
        key: &[u8],
        tombstone: &[u8],
        token: &[u8],
        linger: Duration,
    ) -> Result<ScriptResult, Failure> {
        let vote = self.delete_own(now, key, token)?;
        self.put(tombstone, Value::from("1"), Some(millis(now).saturating_add(span(linger))));
        Ok(vote.into())
    }

    /// `inspect.lua`: returns the holder of the key, its counter if that holds a number, and its readers.
    ///
    /// # Errors
    ///
    /// If the key is not a string.
    pub fn inspect(
        &mut self,
        now: Moment,
        key: &[u8],
        counter: &[u8],
        readers: &[u8],
    ) -> Result<ScriptResult, Failure> {
        let vote = self.holding(now, key)?;
        let vote = self.with_readers(now, key, readers, vote);
        let fencing_token = if let Vote::Held(holding) = &vote {
            self.fence_of(now, counter, &holding.token)
        } else {
            self.fencing_token(now, counter).ok()
        };
        Ok(ScriptResult::with(vote, fencing_token))
    }

    /// Returns the holder of the key, and the remaining time.
    fn holding(&mut self, now: Moment, key: &[u8]) -> Result<Vote, Failure> {
        let Some(holder) = self.get(now, key)?.map(Token::found) else { return Ok(Vote::Free) };
        Ok(self.pttl(now, key).map_or(Vote::Free, |expiry| Vote::from(Holding::new(holder, expiry))))
    }
}

/// Access to the keys.
impl Store {
    /// Extends the life of the key to at least `ttl`.
    fn prolong(&mut self, now: Moment, key: &[u8], ttl: Duration) {
        let ends = millis(now).saturating_add(span(ttl));
        // `PTTL` returns -1 for a key without expiry, which is less than any TTL: the scripts give such a key
        // an expiry.
        if let Some(entry) = self.live(now, key)
            && entry.ends.is_none_or(|old| old < ends)
        {
            entry.ends = Some(ends);
            self.changed(key);
        }
    }

    fn put(&mut self, key: &[u8], value: Value, ends: Option<Millis>) {
        let before = self.keys.insert(key.to_vec(), Entry { value, ends });
        self.note_replaced(key, before);
        self.changed(key);
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(before) = self.keys.remove(key) {
            self.note_replaced(key, Some(before));
            self.changed(key);
        }
    }

    /// Returns the values that were replaced or deleted since the last call; the first call starts recording.
    pub fn take_replaced(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.replaced.replace(Vec::new()).unwrap_or_default()
    }

    fn note_replaced(&mut self, key: &[u8], before: Option<Entry>) {
        if let (Some(replaced), Some(Entry { value: Value::Text(text), .. })) = (&mut self.replaced, before) {
            replaced.push((key.to_vec(), text));
        }
    }

    /// Returns the entry, or removes it if it has expired.
    fn live(&mut self, now: Moment, key: &[u8]) -> Option<&mut Entry> {
        if self.keys.get(key).is_some_and(|entry| !entry.lives(millis(now))) {
            self.remove(key);
        }
        self.keys.get_mut(key)
    }
}

type Millis = u64;

impl Entry {
    /// Whether the entry exists, by Redis' rule: until the clock is past its expiry.
    fn lives(&self, now: Millis) -> bool {
        self.ends.is_none_or(|ends| now <= ends)
    }
}

fn millis(now: Moment) -> Millis {
    span(now.since(Moment::ORIGIN))
}

fn span(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
