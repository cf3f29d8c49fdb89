//! The queue of those who wait for a lock, as `queue.lua` keeps it.

use std::collections::BTreeMap;
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{Queued, Vote};

use super::{Failure, Millis, Store, Told, Value, millis, span};

/// What [`Store::enqueue`] is asked: the keys and the arguments of the script.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete: as the script")]
pub struct Enqueue<'a> {
    /// The lock.
    pub key: &'a [u8],
    /// The key that tells the turn.
    pub turn_key: &'a [u8],
    /// The mark that somebody waits, with which the other keys of the queue begin.
    pub mark: &'a [u8],
    /// The name in the queue.
    pub name: &'a [u8],
    /// For how long it has waited.
    pub elapsed: Duration,
    /// Who has not asked again for this long is no longer waited for.
    pub patience: Duration,
    /// How long a turn takes.
    pub turn: Duration,
}

/// How many who have stopped asking are dropped by one request.
const MOST_AT_ONCE: usize = 32;
/// How many places are told apart.
const MOST_PLACES: usize = 8;
/// For how long it is kept when somebody was told last.
const TOLD: Duration = Duration::from_secs(6);

/// One queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// Since when each waits, in microseconds on the clock of this server, and whose turn is told by which key.
    waiters: BTreeMap<(i128, Vec<u8>), Vec<u8>>,
    ends: Millis,
}

impl Queue {
    /// Its end is its last millisecond, as that of a key.
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
    /// `enqueue.lua`: waits in the queue, unless the lock is free and nobody's turn.
    ///
    /// # Errors
    ///
    /// If something other than a string stands under the lock.
    pub fn enqueue(&mut self, now: Moment, asked: &Enqueue<'_>) -> Result<Told, Failure> {
        let Enqueue { key, turn_key, mark, name, elapsed, patience, turn } = *asked;
        let at = millis(now);
        let ends = at.saturating_add(span(patience));
        self.put_silently(turn_key, ends);
        self.put(mark, Value::from("1"), Some(ends));
        let since = i128::try_from(now.since(Moment::ORIGIN).as_micros()).unwrap_or(i128::MAX)
            - i128::try_from(elapsed.as_micros()).unwrap_or(i128::MAX);
        let queue = self.live_queue(now, mark);
        queue.remove(name);
        queue.waiters.insert((since, name.to_vec()), turn_key.to_vec());
        queue.ends = ends;
        let place = queue.waiters.keys().position(|(_, other)| other == name).unwrap_or(MOST_PLACES);
        let ahead = u32::try_from(place.min(MOST_PLACES)).unwrap_or(u32::MAX);
        // The first two look at the lock, and the others only whether it is there.
        if ahead < 2 {
            if let Vote::Held(holding) = self.holding(now, key)? {
                return Ok(Vote::from(Queued::new(ahead, Some(*holding))).into());
            }
        } else if self.exists(now, key) {
            return Ok(Vote::from(Queued::new(ahead, None)).into());
        }
        let told = [mark, b":told"].concat();
        let since = self.get(now, &told)?.and_then(|since| std::str::from_utf8(since).ok()?.parse().ok());
        let is_over = since.is_none_or(|since: Millis| at.saturating_sub(since) >= span(turn));
        if !is_over {
            return Ok(Vote::from(Queued::new(ahead, None)).into());
        }
        self.live_queue(now, mark).remove(name);
        self.keys.remove(turn_key);
        self.note_told(now, mark);
        Ok(Vote::Free.into())
    }

    /// `leave_queue.lua`: waits no longer, and leaves its turn to the next.
    pub fn leave_queue(&mut self, now: Moment, [key, turn_key, mark]: [&[u8]; 3], name: &[u8]) -> Vote {
        let waited = self.live_queue(now, mark).remove(name);
        self.keys.remove(turn_key);
        match () {
            () if waited => Vote::Granted,
            () if !self.exists(now, key) && self.tell_next(now, mark) => Vote::Notified,
            () => Vote::Free,
        }
    }

    /// Tells the first who lives, by deleting its key, and says whether anybody waits.
    pub(super) fn tell_next(&mut self, now: Moment, mark: &[u8]) -> bool {
        for _ in 0..MOST_AT_ONCE {
            let Some((_, turn_key)) = self.live_queue(now, mark).waiters.pop_first() else { return false };
            if self.del(now, &turn_key) {
                break;
            }
        }
        self.note_told(now, mark);
        self.put(mark, Value::from("1"), Some(millis(now).saturating_add(span(TOLD))));
        true
    }

    fn note_told(&mut self, now: Moment, mark: &[u8]) {
        let at = Value::Text(millis(now).to_string().into_bytes());
        self.put(&[mark, b":told"].concat(), at, Some(millis(now).saturating_add(span(TOLD))));
    }

    /// As a client that is not told of what it changes itself.
    fn put_silently(&mut self, key: &[u8], ends: Millis) {
        self.keys.insert(key.to_vec(), super::Entry { value: Value::from("1"), ends: Some(ends) });
    }

    /// The queue, made anew if it has ended.
    fn live_queue(&mut self, now: Moment, mark: &[u8]) -> &mut Queue {
        let queue = self.queues.entry(mark.to_vec()).or_default();
        if !queue.lives(millis(now)) {
            *queue = Queue::default();
        }
        queue
    }
}
