//! The queue of waiters for a lock, as `queue.lua` keeps it.

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock::protocol::{
    Moment, OTHERS_FOR, OfferTerms, Token, WaiterId, entry_context, offer_renamed_after,
};
use quorlock::{
    lock::{QueueListing, QueuedWaiter},
    node::{Queued, Vote},
};

use super::{Drawing, Failure, Millis, Noted, ScriptResult, Store, Value, millis, span};

/// The arguments of [`Store::enqueue`]: the keys and the arguments of the script.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the script")]
pub struct Enqueue<'a> {
    /// The lock.
    pub key: &'a [u8],
    /// The key that signals the turn.
    pub turn_key: &'a [u8],
    /// The mark that clients wait, which is the prefix of the queue's other keys.
    pub mark: &'a [u8],
    /// The waiter's name in the queue.
    pub name: &'a [u8],
    /// How long it has waited.
    pub elapsed: Duration,
    /// After this long without another request the waiter is skipped.
    pub patience: Duration,
    /// How long a turn takes.
    pub turn: Duration,
    /// Its [`queue_entry`](quorlock::protocol::queue_entry).
    pub entry: &'a [u8],
    /// Whether it has seen a program outside the queue hold the lock.
    pub others_seen: bool,
}

/// The arguments of [`Store::offer`]: those of the script.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the script")]
pub struct Offer<'a> {
    /// The current token.
    pub token: &'a [u8],
    /// The mark of the queue.
    pub mark: &'a [u8],
    /// The next token.
    pub next: &'a [u8],
    /// How long it is stored.
    pub life: Duration,
    /// The inbox at which its owner receives the offer.
    pub inbox: &'a [u8],
    /// The number to draw.
    pub drawing: Option<Drawing<'a>>,
    /// The owner's name in the queue of this node. Empty if it is in the queue of another node.
    pub name: &'a [u8],
    /// The tombstone of the next token.
    pub tombstone: &'a [u8],
}

/// How many expired waiters one request drops at most.
const MOST_AT_ONCE: usize = 32;
/// At most this many waiters are listed.
const MOST_LISTED: usize = 100;
/// Positions beyond this one are not distinguished.
const MOST_PLACES: usize = 8;
/// How long the time of the last notification is kept.
const NOTIFIED_FOR: Duration = Duration::from_secs(6);

/// A queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// The waiters with their names, ordered by the start of the wait, in microseconds on this server's
    /// clock.
    waiters: BTreeMap<(i128, Vec<u8>), Waiting>,
    ends: Millis,
}

/// A waiter.
#[derive(Clone, Debug)]
struct Waiting {
    /// The key that signals its turn.
    turn_key: Vec<u8>,
    /// When it last asked.
    asked: Millis,
}

impl Queue {
    /// Whether it exists: until the end of its last millisecond, as for a key.
    pub(super) fn lives(&self, now: Millis) -> bool {
        now <= self.ends
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        let before = self.waiters.len();
        self.waiters.retain(|(_, other), _| other != name);
        self.waiters.len() < before
    }
}

/// The scripts about the queue.
impl Store {
    /// `enqueue.lua`: enqueues a waiter, unless the lock is free and no waiter's turn.
    ///
    /// # Errors
    ///
    /// If the lock's key is not a string.
    pub fn enqueue(&mut self, now: Moment, asked: &Enqueue<'_>) -> Result<ScriptResult, Failure> {
        let Enqueue { key, turn_key, mark, name, elapsed, patience, turn, entry, others_seen } = *asked;
        let at = millis(now);
        let ends = at.saturating_add(span(patience));
        self.put_silently(turn_key, entry, ends);
        self.put(mark, Value::from("1"), Some(ends));
        if others_seen {
            let until = at.saturating_add(span(OTHERS_FOR));
            self.put(&[mark, b":others"].concat(), Value::from("1"), Some(until));
        }
        let since = i128::try_from(now.since(Moment::ORIGIN).as_micros()).unwrap_or(i128::MAX)
            - i128::try_from(elapsed.as_micros()).unwrap_or(i128::MAX);
        let queue = self.live_queue(now, mark);
        queue.remove(name);
        let waiting = Waiting { turn_key: turn_key.to_vec(), asked: at };
        queue.waiters.insert((since, name.to_vec()), waiting);
        queue.ends = ends;
        let place = queue.waiters.keys().position(|(_, other)| other == name).unwrap_or(MOST_PLACES);
        let ahead = u32::try_from(place.min(MOST_PLACES)).unwrap_or(u32::MAX);
        // The first two read the lock, the others only check that it exists.
        if ahead < 2 {
            if let Vote::Held(holding) = self.holding(now, key)? {
                if ahead == 0 && OfferTerms::parse(entry).is_some() {
                    let to = holding.token.random_part();
                    let next = self.next_message(now, mark, [to, name, key, entry]);
                    self.send_to(to.get(16..).unwrap_or_default(), next);
                }
                return Ok(Vote::from(Queued::new(ahead, Some(*holding))).into());
            }
        } else if self.exists(now, key) {
            return Ok(Vote::from(Queued::new(ahead, None)).into());
        }
        let told = [mark, b":told"].concat();
        let since = self.get(now, &told)?.and_then(|since| std::str::from_utf8(since).ok()?.parse().ok());
        let is_over = since.is_none_or(|since: Millis| {
            at.saturating_sub(since) >= span(turn) * if ahead > 0 { 2 } else { 1 }
        });
        if !is_over {
            return Ok(Vote::from(Queued::new(ahead, None)).into());
        }
        self.live_queue(now, mark).remove(name);
        self.keys.remove(turn_key);
        self.note_told(now, mark);
        Ok(Vote::Free.into())
    }

    /// `leave_queue.lua`: removes a waiter, and passes its turn to the next.
    pub fn leave_queue(&mut self, now: Moment, [key, turn_key, mark]: [&[u8]; 3], name: &[u8]) -> Vote {
        let waited = self.live_queue(now, mark).remove(name);
        self.keys.remove(turn_key);
        match () {
            () if waited => Vote::Granted,
            () if !self.exists(now, key) && self.tell_next(now, key, mark) => Vote::Notified,
            () => Vote::Free,
        }
    }

    /// `list_waiters.lua`: lists the waiters that have asked recently.
    pub fn list_waiters(&mut self, now: Moment, mark: &[u8]) -> Vote {
        let at = i128::try_from(now.since(Moment::ORIGIN).as_micros()).unwrap_or(i128::MAX);
        let queue: Vec<_> = self.live_queue(now, mark).waiters.clone().into_iter().collect();
        let mut waiters = Vec::new();
        for ((since, name), waiting) in queue.iter().take(MOST_LISTED) {
            let Ok(Some(entry)) = self.get(now, &waiting.turn_key) else { continue };
            let context = entry_context(entry);
            let waited = Duration::from_micros(u64::try_from(at - since).unwrap_or_default());
            waiters.extend(WaiterId::parse(name).map(|id| QueuedWaiter::new(id, waited, context)));
        }
        QueueListing::new(waiters, queue.len() > MOST_LISTED).into()
    }

    /// `offer.lua`: releases the lock if the token holds it, and offers it to the next.
    ///
    /// # Errors
    ///
    /// If the key is not a string.
    pub fn offer(&mut self, now: Moment, key: &[u8], offer: &Offer<'_>) -> Result<ScriptResult, Failure> {
        let Offer { token, mark, next, life, inbox, drawing, name, tombstone } = *offer;
        if self.get(now, key)? != Some(token) {
            return Ok(Vote::Free.into());
        }
        if self.exists(now, tombstone) {
            self.del(now, key);
            return Ok(self.tell_of_release(now, key, mark).into());
        }
        // The lock is released whether or not a number can be drawn.
        let drawn = drawing.map(|drawing| {
            let prepared = self.prepare(now, drawing)?;
            let drawn = self.fence_hint(now, prepared, next);
            self.note(
                now,
                drawing.counter,
                next,
                Noted { number: drawn, usual: Token::found(next).number() },
            );
            Ok::<_, Failure>(drawn.get())
        });
        if let Ok(drawn) = drawn.transpose() {
            self.put(key, Value::Text(next.to_vec()), Some(millis(now).saturating_add(span(life))));
            let random = next.get(..32).unwrap_or(next);
            let mut said = [b"o ", random].concat();
            said.extend_from_slice(format!(" {} {}", drawn.unwrap_or(0), span(life)).as_bytes());
            if !name.is_empty() {
                self.live_queue(now, mark).remove(name);
                said.extend(
                    self.next_in_queue(now, key, mark, random)
                        .into_iter()
                        .flat_map(|next| [b"\n", &*next].concat()),
                );
            }
            let heard = self.send_to(inbox, said);
            if !name.is_empty() {
                self.del(now, &[mark, b":", name].concat());
            }
            if heard {
                return Ok(Vote::Notified.into());
            }
        }
        self.del(now, key);
        Ok(self.tell_of_release(now, key, mark).into())
    }

    /// After the lock was deleted: notifies the first in the queue.
    pub(super) fn tell_of_release(&mut self, now: Moment, key: &[u8], mark: &[u8]) -> Vote {
        match self.del(now, mark).then(|| self.tell_next(now, key, mark)) {
            Some(true) => Vote::Notified,
            Some(false) => Vote::ReleasedContended,
            None => Vote::Granted,
        }
    }

    /// Returns the message about the first in the queue, for an inbox; `None` if that waiter accepts no
    /// offer.
    fn next_in_queue(&mut self, now: Moment, key: &[u8], mark: &[u8], to: &[u8]) -> Option<Vec<u8>> {
        let front = self.live_queue(now, mark).waiters.iter().take(2);
        let front: Vec<_> = front.map(|((_, name), waiting)| (name.clone(), waiting.clone())).collect();
        if let Some((_, Waiting { turn_key, asked })) = front.get(1)
            && let Some(terms) = self.get(now, turn_key).ok().flatten().and_then(OfferTerms::parse)
            && asked + span(offer_renamed_after(terms.life)) <= millis(now)
        {
            let soon = [b"s ", terms.token.random_part()].concat();
            self.send_to(terms.inbox.to_string().as_bytes(), soon);
        }
        let (name, Waiting { turn_key, .. }) = front.into_iter().next()?;
        let terms = self.get(now, &turn_key).ok()??;
        OfferTerms::parse(terms)?;
        let terms = terms.to_vec();
        Some(self.next_message(now, mark, [to, &name, key, &terms]))
    }

    /// Encodes the message about the next waiter as `queue.lua` does.
    fn next_message(&mut self, now: Moment, mark: &[u8], [to, name, key, terms]: [&[u8]; 4]) -> Vec<u8> {
        let seen = if self.exists(now, &[mark, b":others"].concat()) { b"1 " } else { b"0 " };
        [b"n ", seen, to, b" ", name, format!(" {} ", key.len()).as_bytes(), key, b" ", terms].concat()
    }

    /// Notifies the first live waiter by deleting its key, and returns whether there is any waiter.
    pub(super) fn tell_next(&mut self, now: Moment, key: &[u8], mark: &[u8]) -> bool {
        for _ in 0..MOST_AT_ONCE {
            let Some(((_, name), Waiting { turn_key, .. })) = self.live_queue(now, mark).waiters.pop_first()
            else {
                return false;
            };
            let terms = self.get(now, &turn_key).ok().flatten().map(<[u8]>::to_vec);
            let inbox =
                terms.and_then(|entry| OfferTerms::parse(&entry)).map(|terms| terms.inbox.to_string());
            let has_died = inbox.as_ref().is_some_and(|inbox| !self.has_listener(inbox.as_bytes()));
            if self.del(now, &turn_key) && !has_died {
                if let Some(inbox) = inbox
                    && let Some(next) = self.next_in_queue(now, key, mark, &name)
                {
                    self.send_to(inbox.as_bytes(), next);
                }
                break;
            }
        }
        self.note_told(now, mark);
        self.put(mark, Value::from("1"), Some(millis(now).saturating_add(span(NOTIFIED_FOR))));
        true
    }

    fn note_told(&mut self, now: Moment, mark: &[u8]) {
        let at = Value::Text(millis(now).to_string().into_bytes());
        self.put(&[mark, b":told"].concat(), at, Some(millis(now).saturating_add(span(NOTIFIED_FOR))));
    }

    /// Stores a key without notifying the client of its own change.
    fn put_silently(&mut self, key: &[u8], value: &[u8], ends: Millis) {
        self.keys.insert(key.to_vec(), super::Entry { value: Value::Text(value.to_vec()), ends: Some(ends) });
    }

    /// Returns the queue, replaced by a new one if it has expired.
    fn live_queue(&mut self, now: Moment, mark: &[u8]) -> &mut Queue {
        let queue = self.queues.entry(mark.to_vec()).or_default();
        if !queue.lives(millis(now)) {
            *queue = Queue::default();
        }
        queue
    }
}
