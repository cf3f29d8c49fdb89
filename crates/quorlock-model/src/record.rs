//! A node of a model is the record that ships: [`quorlock::node::record`] answers its requests.
//!
//! Moments in a [`Kept`] record count from now, in ticks, so that equal situations are equal records. Each
//! record exists once, and a state holds a reference to it; what it becomes is computed once in each thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use quorlock::node::record::{Change, Entry, Record, Records};
use quorlock::node::{Request, Vote};
use quorlock::runtime::Mutex;
use quorlock_protocol::{Claim, FenceHint, FencingToken, Mode, Token, WaiterId, fence_counter, micros};

use crate::names::{name, renamed};

/// What a node keeps of one lock.
#[derive(Clone, Copy)]
pub(crate) struct Kept(&'static Known);

struct Known {
    record: Record,
    /// Identifies the record in all runs.
    digest: u64,
    /// Whose token the key has.
    holder: Option<usize>,
    /// A bit for each reader, and for each writer that waits.
    readers: u8,
    writers: u8,
    /// The ticks until the key expires.
    left: u8,
}

/// A request by an attempt, in the terms of the models.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    what: What,
    who: usize,
    /// In ticks.
    ttl: u8,
    /// For fencing: the hint, or the number.
    number: Option<FencingToken>,
    /// A bit for each key.
    keys: u8,
}

/// The kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Acquire(Mode),
    Renew(Mode),
    WriteBack,
    /// To replace the token of another attempt.
    Transfer {
        from: usize,
    },
    Release(Mode),
    /// To announce a writer that waits for readers, until it withdraws.
    Announce,
    Withdraw,
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Reply {
    Granted,
    /// The key had gone, and was stored again.
    Restored,
    /// The key is free, or the claim was cancelled.
    Free,
    /// The key is another attempt's, or a writer waits.
    Refused,
}

/// What becomes of the records of a request's keys, the reply, and its fencing token.
type Outcome<const L: usize> = ([Kept; L], Reply, FencingToken);

/// The most keys of a request.
const MOST: usize = 3;
const KEYS: [&str; MOST] = ["a", "b", "c"];
const TICK: Duration = Duration::from_secs(1);
/// Every request arrives at this moment. Zero would mean "never" in a record.
const NOW: u64 = 1_000_000_000;

static ALL: LazyLock<Mutex<HashMap<String, &'static Known>>> = LazyLock::new(Mutex::default);

thread_local! {
    static ASKED: RefCell<Memory<([Kept; 1], Ask), Outcome<1>>> = RefCell::default();
    static ASKED_FOR_SEVERAL: RefCell<Memory<([Kept; MOST], Ask), Outcome<MOST>>> = RefCell::default();
    static TICKED: RefCell<Memory<Kept, Kept>> = RefCell::default();
    static RENAMED: RefCell<Memory<(Kept, usize), Kept>> = RefCell::default();
}

type Memory<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

impl Ask {
    pub(crate) fn of(what: What, who: usize) -> Ask {
        Ask { what, who, ttl: 0, number: None, keys: 1 }
    }

    pub(crate) fn acquire(who: usize, ttl: u8) -> Ask {
        Ask::of(What::Acquire(Mode::Exclusive), who).lasting(ttl)
    }

    pub(crate) fn renew(who: usize, ttl: u8) -> Ask {
        Ask::of(What::Renew(Mode::Exclusive), who).lasting(ttl)
    }

    pub(crate) fn transfer(from: usize, to: usize, ttl: u8) -> Ask {
        Ask::of(What::Transfer { from }, to).lasting(ttl)
    }

    pub(crate) fn release(who: usize) -> Ask {
        Ask::of(What::Release(Mode::Exclusive), who)
    }

    pub(crate) fn lasting(self, ttl: u8) -> Ask {
        Ask { ttl, ..self }
    }

    pub(crate) fn numbered(self, number: Option<FencingToken>) -> Ask {
        Ask { number, ..self }
    }

    fn request(self) -> Request {
        let mut keys = KEYS.iter().enumerate().filter(|(key, _)| self.keys & (1 << key) != 0);
        let key: Arc<str> = Arc::from(keys.next().map_or(KEYS[0], |(_, key)| key));
        let others: Vec<Arc<str>> = keys.map(|(_, key)| Arc::from(*key)).collect();
        let claim = |mode: Mode, who: usize| {
            let claim = Claim::new(Arc::clone(&key), token(who)).and(others.as_slice().into());
            Arc::new(if mode == Mode::Shared { claim.shared() } else { claim })
        };
        let alone = |who| claim(Mode::Exclusive, who);
        let (ttl, waiter) = (TICK * u32::from(self.ttl), WaiterId::new(self.who as u64));
        let fence_hint = self.number.map(|hint| FenceHint::at(Duration::ZERO, Some(hint), Duration::MAX));
        let forever = Duration::MAX;
        match self.what {
            What::Acquire(mode) => Request::Acquire { claim: claim(mode, self.who), ttl, fence_hint },
            What::Renew(mode) => {
                Request::Renew { claim: claim(mode, self.who), ttl, fencing_token: self.number }
            }
            What::WriteBack => Request::WriteBack {
                claim: alone(self.who),
                fencing_token: self.number.unwrap_or(FencingToken::ZERO),
            },
            What::Transfer { from } => {
                Request::Transfer { from: alone(from), to: alone(self.who), ttl, fence_hint }
            }
            What::Release(mode) => Request::Release { claim: claim(mode, self.who) },
            What::Announce => Request::AnnounceWriter { key, waiter, patience: forever },
            What::Withdraw => Request::WithdrawWriter { key, waiter },
        }
    }
}

impl Kept {
    /// No record.
    pub(crate) fn nothing() -> Kept {
        static NOTHING: LazyLock<Kept> = LazyLock::new(|| Kept::of(Record::default()));
        *NOTHING
    }

    fn of(mut record: Record) -> Kept {
        // What only answers to holders contain makes no difference.
        if let Some(held) = &mut record.held {
            (held.number, held.wanted) = (None, false);
        }
        let text = record.at(NOW).encode();
        let decoded = Record::decode(text.as_bytes());
        assert!(decoded.is_some(), "{text}");
        let record = decoded.unwrap_or_default();
        let mut all = ALL.lock();
        let known = all.entry(text).or_insert_with_key(|text| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            let holder = record.held.as_ref().and_then(|held| name_of(held.token.as_bytes()));
            let ends = record.held.as_ref().and_then(|held| held.ends).unwrap_or(NOW);
            let left = u8::try_from((ends - NOW) / micros(TICK)).unwrap_or(u8::MAX);
            let bits = |attempt: Option<usize>| attempt.map_or(0, |attempt| 1 << attempt);
            let readers = record.readers.keys().fold(0, |all, token| all | bits(name_of(token)));
            let of = |writer| record.intents.contains_key(&WaiterId::new(writer));
            let writers = (0..8).filter(|writer| of(*writer)).fold(0, |all, writer| all | 1 << writer);
            let digest = hasher.finish();
            Box::leak(Box::new(Known { record, digest, holder, readers, writers, left }))
        });
        Kept(known)
    }

    /// Returns the attempt whose token the key has.
    pub(crate) fn holder(self) -> Option<usize> {
        self.0.holder
    }

    pub(crate) fn is_of(self, attempt: usize) -> bool {
        self.0.holder == Some(attempt)
    }

    /// Whether the key is the attempt's, or it has a share.
    pub(crate) fn has(self, attempt: usize) -> bool {
        self.is_of(attempt) || self.0.readers & (1 << attempt) != 0
    }

    /// Whether the key is another's.
    pub(crate) fn is_foreign(self, attempt: usize) -> bool {
        !self.is_free() && !self.has(attempt)
    }

    /// Whether the attempt is a writer that waits for readers.
    pub(crate) fn awaits(self, attempt: usize) -> bool {
        self.0.writers & (1 << attempt) != 0
    }

    pub(crate) fn is_shared(self) -> bool {
        self.0.record.is_shared()
    }

    /// Returns the ticks until the key expires.
    pub(crate) fn left(self) -> u8 {
        self.0.left
    }

    pub(crate) fn is_free(self) -> bool {
        self.0.record.held.is_none()
    }

    pub(crate) fn record(self) -> &'static Record {
        &self.0.record
    }

    pub(crate) fn counter(self) -> FencingToken {
        FencingToken::new(self.record().counter).unwrap_or(FencingToken::MAX)
    }

    /// Carries out a request, and returns the reply and its fencing token.
    pub(crate) fn ask(&mut self, ask: Ask) -> (Reply, FencingToken) {
        let (kept, reply, number) = remembered(&ASKED, ([*self], ask), || outcome([*self], ask));
        [*self] = kept;
        (reply, number)
    }

    /// The same, if the reply is lost.
    pub(crate) fn apply(&mut self, ask: Ask) {
        self.ask(ask);
    }

    /// Returns the reply to a request that does not arrive.
    pub(crate) fn would(mut self, ask: Ask) -> Reply {
        self.ask(ask).0
    }

    /// Returns the record after what no request does to it.
    pub(crate) fn with(self, change: impl FnOnce(&mut Record)) -> Kept {
        let mut record = self.0.record.clone();
        change(&mut record);
        Kept::of(record)
    }

    /// Returns the record with a key that expires no later than this.
    pub(crate) fn ending(self, ends: Option<u64>) -> Kept {
        self.with(|record| record.held.iter_mut().for_each(|held| held.ends = held.ends.min(ends)))
    }

    /// Returns when the attempt's share expires.
    pub(crate) fn share_ends(self, attempt: usize) -> Option<u64> {
        self.0.record.readers.get(token(attempt).as_bytes()).map(|share| share.ends)
    }

    /// Returns the record a tick later.
    pub(crate) fn ticked(self) -> Kept {
        remembered(&TICKED, self, || {
            let mut record = self.0.record.clone().at(NOW + micros(TICK));
            let entries = record.readers.values_mut().chain(record.intents.values_mut());
            let entries = entries.map(|Entry { ends, .. }| ends);
            let held = record.held.iter_mut().filter_map(|held| held.ends.as_mut());
            held.chain(entries).filter(|ends| **ends < u64::MAX).for_each(|ends| *ends -= micros(TICK));
            Kept::of(record)
        })
    }

    /// Renames the holder, where `order[new] = old`.
    pub(crate) fn renamed<const K: usize>(self, order: [usize; K]) -> Kept {
        let Some(new) = self.holder().and_then(|old| renamed(order, old)) else { return self };
        if self.is_of(new) {
            return self;
        }
        remembered(&RENAMED, (self, new), || {
            self.with(|record| record.held.iter_mut().for_each(|held| held.token = token(new)))
        })
    }
}

/// Carries out a request for several keys, a bit for each.
pub(crate) fn ask_all<const L: usize>(kept: &mut [Kept; L], keys: u8, ask: Ask) -> Reply {
    let mut all = [Kept::nothing(); MOST];
    all[..L].copy_from_slice(kept);
    let ask = Ask { keys, ..ask };
    let (all, reply, _) = remembered(&ASKED_FOR_SEVERAL, (all, ask), || outcome(all, ask));
    kept.copy_from_slice(&all[..L]);
    reply
}

/// Does what a store does: reads the records, applies the request, and writes what has changed. There each counter
/// is a record of its own.
fn outcome<const L: usize>(kept: [Kept; L], ask: Ask) -> Outcome<L> {
    let counters = KEYS.map(|key| fence_counter("", key));
    let mut records = Records::at(NOW).with_wall(Duration::ZERO);
    for ((key, counter), kept) in KEYS.into_iter().zip(&counters).zip(kept) {
        let lock = kept.0.record.clone();
        let number = Record { counter: lock.counter, ..Record::default() };
        records.add(counter.as_str().into(), None, Ok(number));
        records.add(key.into(), None, Ok(Record { counter: 0, ..lock }));
    }
    let decision = records.apply(&ask.request());
    assert!(decision.is_ok(), "{ask:?} at {kept:?}: {decision:?}");
    let (reply, number) =
        decision.map_or((Reply::Refused, None), |(vote, number)| (Reply::of(&vote, ask.what), number));
    let mut after = kept;
    for Change { key, record, queue, .. } in records.changes() {
        for ((lock, counter), kept) in KEYS.into_iter().zip(&counters).zip(&mut after) {
            if key == lock {
                *kept = kept.with(|mine| {
                    let queue = if queue { record.queue.clone() } else { mine.queue.clone() };
                    *mine = Record { counter: mine.counter, queue, ..record.clone() };
                });
            } else if key == counter {
                *kept = kept.with(|mine| mine.counter = record.counter);
            }
        }
    }
    (after, reply, number.unwrap_or(FencingToken::ZERO))
}

/// Fast: it leaves out what rarely differs.
impl Hash for Ask {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        std::mem::discriminant(&self.what).hash(hasher);
        let number = self.number.map_or(0, |number| number.get() + 1);
        hasher.write_u64(
            number << 24 | u64::from(self.keys) << 16 | u64::from(self.ttl) << 8 | self.who as u64,
        );
    }
}

impl Reply {
    fn of(vote: &Vote, what: What) -> Reply {
        match vote {
            Vote::Granted | Vote::ReleasedContended => Reply::Granted,
            // For the next holder it counts, though the one before had lost the key.
            Vote::Restored if matches!(what, What::Transfer { .. }) => Reply::Granted,
            Vote::Restored => Reply::Restored,
            Vote::Free => Reply::Free,
            // Another holds it, or goes first; or a kind of answer that no such request has.
            Vote::Held(_)
            | Vote::NotYourTurn
            | Vote::Notified
            | Vote::Queued(_)
            | Vote::Waiters(_)
            | Vote::Log(_)
            | Vote::FenceAhead
            | _ => Reply::Refused,
        }
    }
}

/// Returns the token of an attempt.
fn token(attempt: usize) -> Token {
    Token::new(attempt as u128, "")
}

/// Returns the attempt of a token.
fn name_of(token: &[u8]) -> Option<usize> {
    let random = Token::found(token);
    usize::from_str_radix(str::from_utf8(random.random_part()).ok()?, 16).ok()
}

fn remembered<K: Copy + Eq + Hash, V: Copy>(
    memory: &'static std::thread::LocalKey<RefCell<Memory<K, V>>>,
    key: K,
    value: impl FnOnce() -> V,
) -> V {
    if let Some(known) = memory.with_borrow(|memory| memory.get(&key).copied()) {
        return known;
    }
    let value = value();
    memory.with_borrow_mut(|memory| memory.insert(key, value));
    value
}

/// A fast hash of a few numbers.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number.cast_unsigned() as u64);
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Kept) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Kept {}

impl Hash for Kept {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.0.digest);
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Kept) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// By their digests, which are the same in all runs.
impl Ord for Kept {
    fn cmp(&self, other: &Kept) -> std::cmp::Ordering {
        self.0.digest.cmp(&other.0.digest)
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |is: fn(Kept, usize) -> bool| (0..8).filter(|one| is(*self, *one)).map(name).collect();
        let (has, waits): (String, String) = (names(Kept::has), names(Kept::awaits));
        let (left, counter) = (self.left(), self.0.record.counter);
        write!(f, "[{has} for {left}, writers {waits}, counter {counter}]")
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reply::Granted => "is granted",
            Reply::Restored => "stores the key again",
            Reply::Free => "finds nothing",
            Reply::Refused => "is refused",
        })
    }
}
