//! Polls the rows that clients of this process wait for, as the server sends no notifications.
//!
//! The row of a client near the front of a queue is read often, that of one at the back seldom or not at all,
//! so that all waiters for a lock together read its row not much more often than the first alone. Pure: rows
//! and time are arguments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::record::{Queue, Record, Records};
use quorlock::node::{Expiry, Reason, Request, Vote};
use quorlock::protocol::{MOST_PLACES, Mode, Moment, WaiterId, micros, turn_key};

/// The minimum time between two looks.
const SHORTEST: Duration = Duration::from_millis(2);
/// The maximum time for the first in a queue: no longer than a turn lasts.
const LONGEST_OF_FIRST: Duration = Duration::from_millis(25);
/// The maximum time for the others, doubled for each waiter ahead, so that all of them together look no more
/// often than the first.
const LONGEST: Duration = Duration::from_millis(50);
/// The minimum and the maximum time for a client that was refused and is not in a queue.
const REFUSED: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];
/// How long such a client is assumed to wait: longer than until it asks again.
const REFUSED_FOR: Duration = Duration::from_secs(4);

/// All watched rows.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    keys: BTreeMap<Arc<str>, Watch>,
}

/// A watched row.
#[derive(Debug)]
struct Watch {
    /// What a client was answered. A difference is a change, of which it is notified once.
    known: Option<Known>,
    /// When a client outside the queue was last refused, and whether such clients could have queued.
    refused: Option<(Moment, bool)>,
    /// The waiters of this process in the queue.
    waiters: BTreeMap<WaiterId, Waiter>,
    /// When the next look is due.
    next: Moment,
}

/// A waiter in the queue.
#[derive(Debug)]
struct Waiter {
    /// How many waiters are ahead of it.
    ahead: usize,
    /// Since when it is known to have this place.
    since: Moment,
    /// When it stops waiting unless it asks again.
    until: Moment,
}

/// What a client knows about a lock.
#[derive(Debug)]
struct Known {
    /// The holder.
    token: Option<Vec<u8>>,
    /// The expiry, in microseconds by the server's clock.
    ends: Option<u64>,
    /// Whether waiting writers block new readers.
    behind: bool,
}

impl Watches {
    /// Returns the time until the next look. `None` if no client waits.
    pub(crate) fn pause(&self, now: Moment) -> Option<Duration> {
        self.keys.values().map(|watch| watch.next).min().map(|next| next.since(now))
    }

    /// Returns the keys of at most `most` rows to read now, including those that are nearly due.
    pub(crate) fn due(&self, now: Moment, most: usize) -> Vec<Arc<str>> {
        let due = self.keys.iter().filter(|(_, watch)| watch.next <= now + SHORTEST / 2);
        due.take(most).map(|(key, _)| Arc::clone(key)).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    /// Records what a client waits for after the answer to its request.
    pub(crate) fn note(&mut self, request: &Request, vote: &Vote, rows: &Records, now: Moment) {
        match (request, vote) {
            (Request::Enqueue { key, waiter, patience, .. }, Vote::Queued(queued)) => {
                let row = rows.seen(key).and_then(Result::ok);
                let place = row.and_then(|row| row.queue.place(*waiter));
                if place.is_none() && queued.ahead >= MOST_PLACES {
                    // The queue is full.
                    return;
                }
                let watch = self.watch(key, now);
                if queued.ahead < 2 {
                    let known = queued.holding.as_ref();
                    let ends = known.and_then(|holding| ends(holding.expiry, rows));
                    let token = known.map(|holding| holding.token.as_bytes().to_vec());
                    watch.known = Some(Known { token, ends, behind: false });
                } else if watch.refused.is_none_or(|(_, queues)| queues) {
                    watch.known = None;
                }
                watch.refused.take_if(|(_, queues)| *queues);
                watch.stand(*waiter, place.unwrap_or_default(), now).until = now + *patience;
            }
            (Request::Enqueue { key, waiter, .. } | Request::LeaveQueue { key, waiter }, _) => {
                if let Some(watch) = self.keys.get_mut(key) {
                    watch.waiters.remove(waiter);
                }
            }
            (_, Vote::Held(holding)) => {
                let Some(key) = holding.key.clone().or_else(|| request.keys().next().cloned()) else {
                    return;
                };
                let queues = if let Request::Acquire { claim, .. } = request {
                    claim.mode() == Mode::Exclusive && !claim.is_several()
                } else {
                    false
                };
                let token = Some(holding.token.as_bytes().to_vec());
                let known = Known { token, ends: ends(holding.expiry, rows), behind: false };
                self.watch(&key, now).refuse(known, queues, now);
            }
            (Request::Acquire { .. }, Vote::NotYourTurn) => {
                for key in request.keys() {
                    let Some(Ok(row)) = rows.seen(key) else { continue };
                    let known = Known { behind: true, ..Known::of(row) };
                    self.watch(key, now).refuse(known, false, now);
                }
            }
            (Request::Inspect { key, .. }, Vote::Free) => {
                let known = Known { token: None, ends: None, behind: false };
                self.watch(key, now).refuse(known, false, now);
            }
            _ => {}
        }
    }

    /// Compares the rows that were read, and returns the keys of changed locks and of turns that have begun.
    pub(crate) fn look(&mut self, rows: &Records, now: Moment) -> Vec<String> {
        let mut changed = Vec::new();
        self.keys.retain(|key, watch| {
            let Some(row) = rows.seen(key) else { return true };
            watch.look(key, row, now, &mut changed);
            watch.known.is_some() || !watch.waiters.is_empty()
        });
        changed
    }

    fn watch(&mut self, key: &Arc<str>, now: Moment) -> &mut Watch {
        self.keys.entry(Arc::clone(key)).or_insert_with(|| Watch {
            known: None,
            refused: None,
            waiters: BTreeMap::new(),
            next: now,
        })
    }
}

impl Watch {
    fn refuse(&mut self, known: Known, queues: bool, now: Moment) {
        self.known = Some(known);
        self.refused = Some((now, queues && self.refused.is_none_or(|(_, queues)| queues)));
    }

    /// Records how many waiters are ahead of a waiter.
    fn stand(&mut self, waiter: WaiterId, ahead: usize, now: Moment) -> &mut Waiter {
        let place = self.waiters.entry(waiter).or_insert(Waiter { ahead, since: now, until: now });
        if place.ahead != ahead {
            (place.ahead, place.since) = (ahead, now);
        }
        place
    }

    fn look(&mut self, key: &str, row: Result<&Record, &Reason>, now: Moment, changed: &mut Vec<String>) {
        let has_changed = match (&self.known, row) {
            (Some(known), Ok(row)) => known.differs(row),
            (Some(_), Err(_)) => true,
            (None, _) => false,
        };
        // The wait is over: notify the client even if nothing has changed.
        let is_over = self.refused.is_some_and(|(asked, _)| now.since(asked) >= REFUSED_FOR);
        if has_changed || is_over {
            (self.known, self.refused) = (None, None);
            changed.push(key.to_owned());
        }
        let queue = row.ok().map(|row| &row.queue);
        self.waiters.retain(|waiter, place| {
            match queue.and_then(|queue| queue.place(*waiter)) {
                Some(ahead) if ahead != place.ahead => (place.ahead, place.since) = (ahead, now),
                Some(_) => {}
                None => {
                    changed.push(turn_key(key, *waiter));
                    return false;
                }
            }
            place.until > now
        });
        let pace = Duration::from_micros(queue.map_or(0, Queue::pace));
        let of_waiter = |waiter: &Waiter| pause(waiter.ahead, now.since(waiter.since), pace);
        let of_refused = self.refused.map(|(asked, _)| {
            let [shortest, longest] = REFUSED;
            (now.since(asked) / 4).clamp(shortest, longest)
        });
        let shortest = self.waiters.values().map(of_waiter).chain(of_refused).min();
        self.next = now + shortest.unwrap_or(LONGEST);
    }
}

/// Returns the time until the next look for a waiter that has had `ahead` waiters ahead of it for `quiet`,
/// where a turn recently took `pace`.
///
/// For the first it is a quarter of the elapsed time, so that it is at most a quarter late. The others look
/// when three quarters of the waiters ahead may have had their turns; if the pace is unknown, later for each
/// place.
fn pause(ahead: usize, quiet: Duration, pace: Duration) -> Duration {
    let places = u32::try_from(ahead).unwrap_or(u32::MAX).min(MOST_DOUBLED);
    let longest = if ahead == 0 { LONGEST_OF_FIRST } else { LONGEST * (1 << places) };
    let others = pace.saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX)) / 4 * 3;
    let shortest = if pace.is_zero() { SHORTEST * (1 << places) } else { SHORTEST };
    (quiet.max(pace) / 4).saturating_add(others).clamp(shortest, longest)
}

/// The last place for which the maximum doubles: clients further back ask again before that.
const MOST_DOUBLED: u32 = 6;

impl Known {
    fn of(row: &Record) -> Known {
        let held = row.held.as_ref();
        let token = held.map(|held| held.token.as_bytes().to_vec());
        Known { token, ends: held.and_then(|held| held.ends), behind: !row.intents.is_empty() }
    }

    fn differs(&self, row: &Record) -> bool {
        let now = Known::of(row);
        // Readers share one token, and its expiry moves forward when one of them leaves.
        let shortened = row.is_shared() && self.ends.zip(now.ends).is_some_and(|(known, ends)| ends < known);
        self.token != now.token || shortened || (self.behind && !now.behind)
    }
}

/// Returns the expiry of the lock, by the server's clock.
fn ends(expiry: Expiry, rows: &Records) -> Option<u64> {
    let Expiry::In(left) = expiry else { return None };
    Some(rows.now().saturating_add(micros(left)))
}

#[cfg(test)]
mod tests {
    use std::iter::successors;

    use quorlock::node::record::Held;
    use quorlock::protocol::Token;

    use super::*;

    const KEY: &str = "a";
    const PATIENCE: Duration = Duration::from_secs(6);

    fn at(millis: u64) -> Moment {
        Moment::since_origin(Duration::from_millis(millis))
    }

    fn enqueue(waiter: u64) -> Request {
        Request::enqueue(
            KEY.into(),
            WaiterId::new(waiter),
            Duration::ZERO,
            PATIENCE,
            Duration::from_millis(25),
        )
    }

    fn rows(row: &Record) -> Records {
        let mut rows = Records::at(1_000);
        rows.add(KEY.into(), Some(1), Ok(row.clone()));
        rows
    }

    fn held(token: &[u8]) -> Record {
        let held = Held {
            token: Token::found(token),
            ends: Some(u64::MAX),
            number: None,
            wanted: false,
            mark: None,
        };
        Record { held: Some(held), ..Record::default() }
    }

    /// Returns the row after these requests, and a watch that has recorded the last answer.
    fn asked(mut row: Record, requests: &[Request], now: Moment) -> (Watches, Record) {
        let mut watches = Watches::default();
        for request in requests {
            let mut rows = rows(&row);
            let (vote, _) = rows.apply(request).unwrap();
            watches = Watches::default();
            watches.note(request, &vote, &rows, now);
            assert!(watches.look(&rows, now).is_empty(), "the answer itself is not a change");
            row = rows.seen(KEY).unwrap().unwrap().clone();
        }
        (watches, row)
    }

    #[test]
    fn a_waiter_no_longer_in_the_queue_has_its_turn() {
        let (mut watches, mut row) = asked(held(b"x"), &[enqueue(1), enqueue(2)], at(0));
        assert!(watches.look(&rows(&row), at(1)).is_empty());
        // The first gets its turn, and there is another holder: the second is near, and is notified.
        row.queue.next_turn(2_000);
        row.held = held(b"y").held;
        assert_eq!(watches.look(&rows(&row), at(2)), [KEY]);
        assert!(watches.look(&rows(&row), at(3)).is_empty(), "once");
        row.queue.next_turn(3_000);
        assert_eq!(watches.look(&rows(&row), at(4)), [turn_key(KEY, WaiterId::new(2))]);
        assert_eq!(watches.pause(at(5)), None, "no client waits");
    }

    #[test]
    fn a_waiter_far_from_the_front_is_notified_only_of_its_turn() {
        let (mut watches, mut row) = asked(held(b"x"), &[enqueue(1), enqueue(2), enqueue(3)], at(0));
        row.held = None;
        assert!(watches.look(&rows(&row), at(1)).is_empty());
        for _ in 0..3 {
            row.queue.next_turn(2_000);
        }
        assert_eq!(watches.look(&rows(&row), at(2)), [turn_key(KEY, WaiterId::new(3))]);
    }

    #[test]
    fn a_waiter_that_left_or_expired_is_not_polled() {
        let (mut watches, row) = asked(held(b"x"), &[enqueue(1), enqueue(2), enqueue(3)], at(0));
        let leave = Request::LeaveQueue { key: KEY.into(), waiter: WaiterId::new(3) };
        watches.note(&leave, &Vote::Granted, &rows(&row), at(1));
        assert!(watches.look(&rows(&row), at(1)).is_empty());
        assert_eq!(watches.pause(at(1)), None);
        let (mut watches, row) = asked(held(b"x"), &[enqueue(1), enqueue(2), enqueue(3)], at(0));
        watches.look(&rows(&row), at(5_999));
        assert!(watches.pause(at(5_999)).is_some());
        watches.look(&rows(&row), at(6_000));
        assert_eq!(watches.pause(at(6_000)), None);
    }

    #[test]
    fn a_refused_client_is_notified_of_a_change_or_after_four_seconds() {
        let inspect = Request::inspect(KEY);
        let (mut watches, row) = asked(held(b"x"), &[inspect], at(0));
        assert!(watches.look(&rows(&row), at(3_999)).is_empty());
        assert_eq!(watches.look(&rows(&row), at(4_000)), [KEY]);
        assert_eq!(watches.pause(at(4_000)), None);
        let (mut watches, mut row) = asked(row, &[Request::inspect(KEY)], at(0));
        row.held = None;
        assert_eq!(watches.look(&rows(&row), at(10)), [KEY]);
        // A client that was answered "free" is notified when that changes.
        let (mut watches, _) = asked(row, &[Request::inspect(KEY)], at(0));
        assert_eq!(watches.look(&rows(&held(b"y")), at(10)), [KEY]);
    }

    #[test]
    fn a_place_in_the_queue_replaces_the_earlier_refusal() {
        let mut row = held(b"x");
        for waiter in 1..=7 {
            row.queue.join(WaiterId::new(waiter), waiter, u64::MAX, "");
        }
        let (mut watches, mut now) = (Watches::default(), at(0));
        let refused: Vote = quorlock::node::Holding::new(Token::found(b"x"), Expiry::Never).into();
        let claim = Arc::new(quorlock::protocol::Claim::new(KEY.into(), Token::found(b"z")));
        let acquire = Request::Acquire { claim, ttl: PATIENCE, fence_hint: None };
        watches.note(&acquire, &refused, &rows(&row), now);
        let mut of_row = rows(&row);
        let (vote, _) = of_row.apply(&enqueue(8)).unwrap();
        watches.note(&enqueue(8), &vote, &of_row, now);
        let mut looks = 0;
        while now < at(5_000) {
            watches.look(&of_row, now);
            now = now + watches.pause(now).unwrap();
            looks += 1;
        }
        assert!(looks < 20, "{looks} looks for a waiter with seven ahead");
    }

    /// While nothing happens, all waiters together look little more often than the first alone.
    #[test]
    fn a_queue_of_any_length_is_polled_less_than_twice_as_often() {
        let per_second = |ahead: usize, pace: u64| {
            let longest = pause(ahead, Duration::from_secs(60), Duration::from_millis(pace));
            1.0 / longest.as_secs_f64()
        };
        for pace in [0, 5, 100, 60_000] {
            // Waiters further back ask again before their looks are due.
            let all: f64 = (0..=6).map(|ahead| per_second(ahead, pace)).sum();
            let first = per_second(0, pace);
            assert!((39.0..41.0).contains(&first), "{first}");
            assert!(all < first * 2.0, "{all} looks per second, {first} by the first");
        }
    }

    /// A waiter that joins a moving queue looks only a few times until its turn, however long the queue is,
    /// and never so late that it is still recorded as far from its turn.
    #[test]
    fn a_waiter_in_a_moving_queue_polls_a_few_times() {
        let pace = Duration::from_millis(8);
        for length in [1, 7, 31, 99] {
            let ahead_at =
                |now: Duration| length - usize::try_from(now.as_micros() / 8_000).unwrap().min(length);
            let looks = successors(Some(Duration::ZERO), |now| {
                let ahead = ahead_at(*now);
                (ahead > 0).then(|| *now + pause(ahead, Duration::ZERO, pace))
            });
            let looks: Vec<_> = looks.collect();
            assert!(looks.len() <= 9, "{} looks of {length}", looks.len());
            let last = looks.last().unwrap().as_micros();
            let due = u128::try_from(length).unwrap() * 8_000;
            assert!(last < due + 8_000, "the first knows its place after {last}, due at {due}");
        }
    }
}
