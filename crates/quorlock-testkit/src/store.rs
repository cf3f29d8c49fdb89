//! What one lock server remembers, without a network and without a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use quorlock::node::{Expiry, Holding, Vote};
use quorlock::protocol::{FencingToken, Moment, NoNumber, Token};

mod fence;
mod plain;
mod queue;
mod readers;
mod several;
mod watch;

use fence::Noted;
pub use fence::{Counter, Drawing};
pub use plain::{Fields, Scores};
pub use queue::{Enqueue, Offer};
pub use readers::Sharing;
pub use several::{Place, Several};
pub use watch::Change;

/// The keys of one lock server.
///
/// Pure: `now` is an argument, read on the server's own clock. Time counts in whole milliseconds
/// and a key is gone when its last millisecond has passed, as in Redis. Each method does the work
/// of one command or one script in a single step, and answers as Redis answers.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// What the wall clock showed last.
    wall: Duration,
    // Ordered, so that a simulation sees the keys in the same order in every run.
    keys: BTreeMap<Vec<u8>, Entry>,
    /// By the mark that somebody waits.
    queues: BTreeMap<Vec<u8>, queue::Queue>,
    /// Readers, and the writers that wait for them.
    sets: BTreeMap<Vec<u8>, readers::Members>,
    watched: BTreeSet<Vec<u8>>,
    changes: Vec<Change>,
    /// How many clients listen at each inbox.
    inboxes: BTreeMap<Vec<u8>, usize>,
    /// What stood under keys and does so no longer, for a simulation that looks between its events only.
    replaced: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    ends: Option<Millis>,
}

/// What stands under a key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: a lock meets a string, or something that is none")]
pub enum Value {
    /// A string, which is what locks are.
    Text(Vec<u8>),
    /// A list, for every type that is no string: commands for strings refuse it.
    List(Vec<Vec<u8>>),
    /// A sorted set, which is what counters of fencing tokens are.
    Number(Counter),
    /// A sorted set that is no counter.
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
        Value::Number(Counter { stands: number, notes: BTreeMap::new() })
    }
}

/// Why a command or a script was not carried out, in the words of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The key holds something else than what the command is for.
    WrongType,
    /// The counter of fencing tokens holds a number from which none can be drawn.
    OutOfRange,
    /// There is no counter of fencing tokens, and the hint is too far behind the wall clock.
    ClientClockBehind,
    /// A string would be longer than a server keeps.
    TooLong,
    /// Those who wait for a lock, or share it, stand there: the scripts alone change that here.
    OfScripts,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Failure::OutOfRange => "ERR the counter of fencing tokens is at its end",
            Failure::ClientClockBehind => {
                return write!(f, "ERR {}", NoNumber::ClientClockBehind);
            }
            Failure::TooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Failure::OfScripts => {
                "ERR the built-in server keeps those who wait for a lock, or share it, for scripts alone"
            }
        })
    }
}

impl std::error::Error for Failure {}

/// What a script says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the scripts")]
pub struct Told {
    /// The vote.
    pub vote: Vote,
    /// Where the counter of fencing tokens stands, if the script tells and the counter is not zero.
    pub fencing_token: Option<FencingToken>,
}

impl From<Vote> for Told {
    fn from(vote: Vote) -> Told {
        Told { vote, fencing_token: None }
    }
}

impl Told {
    fn with(vote: Vote, counter: Option<FencingToken>) -> Told {
        Told { vote, fencing_token: counter.filter(|counter| *counter > FencingToken::ZERO) }
    }
}

impl From<NoNumber> for Failure {
    fn from(why: NoNumber) -> Failure {
        if why == NoNumber::ClientClockBehind { Failure::ClientClockBehind } else { Failure::OutOfRange }
    }
}

impl Store {
    /// The wall clock shows this from now on: the time since 1970. Numbers are drawn by it.
    pub fn set_wall(&mut self, wall: Duration) {
        self.wall = wall;
    }
}

/// How long a mark stands that somebody wants a key.
const WANTED: Duration = Duration::from_secs(6);

/// The requests about one key, with the meaning of the scripts in `quorlock::redis::scripts`.
impl Store {
    /// `acquire.lua`: stores the token and draws its number if the key is free and no tombstone
    /// stands.
    ///
    /// # Errors
    ///
    /// If something other than a string stands there, or no number can be drawn; then nothing is
    /// stored.
    pub fn acquire(
        &mut self,
        now: Moment,
        key: &[u8],
        tombstone: &[u8],
        token: &[u8],
        ttl: Duration,
        drawing: Drawing<'_>,
    ) -> Result<Told, Failure> {
        if self.exists(now, tombstone) {
            return Ok(Vote::Free.into());
        }
        let drawing = self.prepare(now, drawing)?;
        if !self.exists(now, key) {
            self.put(key, Value::Text(token.to_vec()), Some(millis(now).saturating_add(span(ttl))));
            return Ok(Told::with(Vote::Granted, Some(self.fence_hint(now, drawing, token))));
        }
        match self.get(now, key)? {
            Some(holder) if holder == token => Ok(Told::with(Vote::Granted, Some(drawing.stands))),
            Some(_) | None => Ok(Told::with(self.holding(now, key)?, Some(drawing.stands))),
        }
    }

    /// `take.lua`: stores the token if the key is free and no tombstone stands, and draws nothing.
    ///
    /// # Errors
    ///
    /// If something other than a string stands there.
    pub fn take(
        &mut self,
        now: Moment,
        key: &[u8],
        tombstone: &[u8],
        token: &[u8],
        ttl: Duration,
    ) -> Result<Told, Failure> {
        if self.exists(now, tombstone) {
            return Ok(Vote::Free.into());
        }
        let options = SetOptions { when: SetWhen::Missing, life: SetLife::For(ttl) };
        let stored = self.set(now, key, Value::Text(token.to_vec()), options);
        Ok(if stored { Vote::Granted } else { self.holding(now, key)? }.into())
    }

    /// `renew.lua`: prolongs the key if it is ours, never shortens it, and stores it anew if it is
    /// gone; then the counter is not left behind the number `fencing_token`, if there is one.
    ///
    /// # Errors
    ///
    /// If something other than a string stands there, or in the counter something from which no
    /// number can be drawn.
    pub fn renew(
        &mut self,
        now: Moment,
        key: &[u8],
        tombstone: &[u8],
        token: &[u8],
        ttl: Duration,
        fencing_token: Option<(&[u8], FencingToken)>,
    ) -> Result<Told, Failure> {
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

    /// `transfer.lua`: replaces one token by another, or stores it if the key is free, and draws its
    /// number.
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
    ) -> Result<Told, Failure> {
        if self.exists(now, tombstone) {
            return Ok(Vote::Free.into());
        }
        let drawing = drawing.map(|drawing| self.prepare(now, drawing)).transpose()?;
        let counter = drawing.map(|drawing| drawing.stands);
        match self.get(now, key)? {
            Some(holder) if holder == to => {
                self.prolong(now, key, ttl);
                Ok(Told::with(Vote::Granted, counter))
            }
            Some(holder) if holder != from => Ok(Told::with(self.holding(now, key)?, counter)),
            Some(_) | None => {
                self.put(key, Value::Text(to.to_vec()), Some(millis(now).saturating_add(span(ttl))));
                let drawn = drawing.map(|drawing| self.fence_hint(now, drawing, to));
                Ok(Told::with(Vote::Granted, drawn))
            }
        }
    }

    /// `release.lua`: deletes the key if it is ours, tells the first of those who wait in the queue, and whether
    /// somebody else wants it.
    ///
    /// # Errors
    ///
    /// If something other than a string stands there.
    pub fn release(&mut self, now: Moment, key: &[u8], mark: &[u8], token: &[u8]) -> Result<Told, Failure> {
        let vote = self.let_go(now, key, token)?;
        Ok(if vote == Vote::Granted { self.tell_of_release(now, key, mark) } else { vote }.into())
    }

    fn let_go(&mut self, now: Moment, key: &[u8], token: &[u8]) -> Result<Vote, Failure> {
        let ours = self.get(now, key)? == Some(token);
        Ok(if ours && self.del(now, key) { Vote::Granted } else { Vote::Free })
    }

    /// `cancel.lua`: deletes the key if it is ours, and leaves a tombstone.
    ///
    /// # Errors
    ///
    /// If something other than a string stands there; then no tombstone is left either, because the
    /// script stops.
    pub fn cancel(
        &mut self,
        now: Moment,
        key: &[u8],
        tombstone: &[u8],
        token: &[u8],
        linger: Duration,
    ) -> Result<Told, Failure> {
        let vote = self.let_go(now, key, token)?;
        self.put(tombstone, Value::from("1"), Some(millis(now).saturating_add(span(linger))));
        Ok(vote.into())
    }

    /// `inspect.lua`: tells who holds the key, and where its counter stands if it holds a number; and
    /// those who share it.
    ///
    /// # Errors
    ///
    /// If something other than a string stands under the key.
    pub fn inspect(
        &mut self,
        now: Moment,
        key: &[u8],
        counter: &[u8],
        readers: &[u8],
    ) -> Result<Told, Failure> {
        let vote = self.holding(now, key)?;
        let vote = self.with_readers(now, key, readers, vote);
        let fencing_token = if let Vote::Held(holding) = &vote {
            self.fence_of(now, counter, &holding.token)
        } else {
            self.fencing_token(now, counter).ok()
        };
        Ok(Told::with(vote, fencing_token))
    }

    /// Who holds the key, and for how much longer.
    fn holding(&mut self, now: Moment, key: &[u8]) -> Result<Vote, Failure> {
        let Some(holder) = self.get(now, key)?.map(Token::found) else { return Ok(Vote::Free) };
        Ok(self.pttl(now, key).map_or(Vote::Free, |expiry| Vote::from(Holding::new(holder, expiry))))
    }
}

/// The options of `SET`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "complete: the options that a lock client may use")]
pub struct SetOptions {
    /// `NX`, `XX` or neither.
    pub when: SetWhen,
    /// `PX`, `EX`, `KEEPTTL` or none of them.
    pub life: SetLife,
}

/// When `SET` acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_enums, reason = "complete: as the command")]
pub enum SetWhen {
    /// Whatever stands there.
    #[default]
    Always,
    /// `NX`: if nothing does.
    Missing,
    /// `XX`: if something does.
    Present,
}

/// How long a key lives after `SET`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_enums, reason = "complete: as the command")]
pub enum SetLife {
    /// Until it is deleted.
    #[default]
    Forever,
    /// `PX` or `EX`: so long.
    For(Duration),
    /// `KEEPTTL`: as long as before.
    Kept,
}

/// Plain commands.
impl Store {
    /// `GET`.
    ///
    /// # Errors
    ///
    /// If something other than a string stands there.
    pub fn get(&mut self, now: Moment, key: &[u8]) -> Result<Option<&[u8]>, Failure> {
        match self.live(now, key) {
            Some(Entry { value: Value::Text(text), .. }) => Ok(Some(text)),
            Some(Entry {
                value: Value::List(_) | Value::Number(_) | Value::Scores(_) | Value::Fields(_),
                ..
            }) => Err(Failure::WrongType),
            None => Ok(None),
        }
    }

    /// `max_ttl.lua`: the largest that a client has noted, and notes `ours`, in milliseconds, where none is
    /// larger.
    ///
    /// # Errors
    ///
    /// As [`Store::get`].
    pub fn max_ttl(
        &mut self,
        now: Moment,
        note: &[u8],
        ours: Duration,
        kept: Duration,
    ) -> Result<i64, Failure> {
        let noted = self.get(now, note)?.and_then(|noted| std::str::from_utf8(noted).ok()?.parse().ok());
        let (theirs, ours) = (noted.unwrap_or(0), i64::try_from(ours.as_millis()).unwrap_or(i64::MAX));
        if theirs <= ours {
            let ends = millis(now).saturating_add(span(kept));
            self.put(note, Value::Text(ours.to_string().into_bytes()), Some(ends));
        }
        Ok(theirs)
    }

    /// `SET`. Tells whether it was done.
    pub fn set(&mut self, now: Moment, key: &[u8], value: Value, options: SetOptions) -> bool {
        let before = self.live(now, key).map(|entry| entry.ends);
        let go = match options.when {
            SetWhen::Always => true,
            SetWhen::Missing => before.is_none(),
            SetWhen::Present => before.is_some(),
        };
        if go {
            let ends = match options.life {
                SetLife::Forever => None,
                SetLife::For(life) => Some(millis(now).saturating_add(span(life))),
                SetLife::Kept => before.flatten(),
            };
            self.put(key, value, ends);
        }
        go
    }

    /// `DEL` of one key. Tells whether it was there.
    pub fn del(&mut self, now: Moment, key: &[u8]) -> bool {
        let there = self.exists(now, key);
        self.remove(key);
        there
    }

    /// `EXISTS` of one key.
    pub fn exists(&mut self, now: Moment, key: &[u8]) -> bool {
        self.live(now, key).is_some()
    }

    /// `PTTL`: `None` when there is no such key.
    pub fn pttl(&mut self, now: Moment, key: &[u8]) -> Option<Expiry> {
        let now_millis = millis(now);
        self.live(now, key).map(|entry| match entry.ends {
            Some(ends) => Expiry::In(Duration::from_millis(ends.saturating_sub(now_millis))),
            None => Expiry::Never,
        })
    }

    /// `PEXPIRE`. Tells whether the key is there.
    pub fn pexpire(&mut self, now: Moment, key: &[u8], ttl: Duration) -> bool {
        let ends = millis(now).saturating_add(span(ttl));
        let there = self.live(now, key).map(|entry| entry.ends = Some(ends)).is_some();
        if there {
            self.changed(key);
        }
        there
    }

    /// `FLUSHALL`.
    pub fn flush(&mut self) {
        self.keys.clear();
        self.queues.clear();
        self.sets.clear();
        self.all_changed();
    }

    /// `KEYS *`, in order.
    pub fn keys(&mut self, now: Moment) -> Vec<Vec<u8>> {
        let at = millis(now);
        for key in self.keys.keys().cloned().collect::<Vec<_>>() {
            self.live(now, &key);
        }
        self.queues.retain(|_, queue| queue.lives(at) && !queue.is_empty());
        self.sets.retain(|_, set| set.lives(at));
        let sets = self.sets.keys().cloned();
        let queues = self.queues.keys().map(|mark| [mark, &b":order"[..]].concat());
        let mut keys: Vec<_> = self.keys.keys().cloned().chain(queues).chain(sets).collect();
        keys.sort_unstable();
        keys
    }

    /// Lets the key live for at least `ttl`.
    fn prolong(&mut self, now: Moment, key: &[u8], ttl: Duration) {
        let ends = millis(now).saturating_add(span(ttl));
        // `PTTL` says -1 of a key without expiry, which is less than any TTL: the scripts give such
        // a key an end.
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

    /// From now on keeps what is replaced or deleted, and returns what was since the last time.
    pub fn take_replaced(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.replaced.replace(Vec::new()).unwrap_or_default()
    }

    fn note_replaced(&mut self, key: &[u8], before: Option<Entry>) {
        if let (Some(replaced), Some(Entry { value: Value::Text(text), .. })) = (&mut self.replaced, before) {
            replaced.push((key.to_vec(), text));
        }
    }

    /// The entry, after removing it if it has ended.
    fn live(&mut self, now: Moment, key: &[u8]) -> Option<&mut Entry> {
        if self.keys.get(key).is_some_and(|entry| !entry.lives(millis(now))) {
            self.remove(key);
        }
        self.keys.get_mut(key)
    }
}

type Millis = u64;

impl Entry {
    /// Redis' rule: a key is there until the clock shows more than its end.
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
