//! The queue of clients that wait for a lock.

use std::time::Duration;

use crate::{MOST_PLACES, WaiterId};

use super::{Decision, Record, Records, micros};
use crate::node::{QueueListing, Queued, QueuedWaiter, Vote};

impl Records {
    /// Enqueues a waiter, unless the lock is free and no waiter's turn. The first two waiters learn the
    /// holder.
    pub(super) fn enqueue(
        &mut self,
        key: &str,
        (waiter, since, context): (WaiterId, u64, &str),
        patience: Duration,
        turn: u64,
    ) -> Decision {
        let (now, ends) = (self.now, self.after(patience));
        let Record { held, queue, .. } = self.record(key)?;
        // The first may be one that cannot take the lock yet, and asks in each turn to keep it free (rule W-9).
        let turn = if queue.is_first(waiter, since, now) { turn } else { turn.saturating_mul(2) };
        if held.is_none() && queue.is_turn_of(waiter, now, turn) {
            self.change_queue(key)?.begin_turn(waiter, now);
            return Ok((Vote::Free, None));
        }
        if !queue.keeps(waiter, ends, micros(patience)) {
            self.change_queue(key)?.join(waiter, since, ends, context);
        }
        let Record { held, queue, .. } = self.record(key)?;
        let ahead = queue.place(waiter).and_then(|place| u32::try_from(place).ok());
        let ahead = ahead.map_or(MOST_PLACES, |ahead| ahead.min(MOST_PLACES));
        let holding = held.as_ref().filter(|_| ahead < 2).map(|held| self.holding(held));
        Ok((Queued::new(ahead, holding).into(), None))
    }

    /// Removes a waiter from the queue. If it was its turn, the turn goes to the next one.
    pub(super) fn leave_queue(&mut self, key: &str, waiter: WaiterId) -> Decision {
        let Record { held, queue, .. } = self.record(key)?;
        if queue.place(waiter).is_some() {
            self.change_queue(key)?.leave(waiter);
            return Ok((Vote::Granted, None));
        }
        let now = self.now;
        let turn = held.is_none() && !queue.is_empty() && self.change_queue(key)?.next_turn(now);
        Ok((if turn { Vote::Notified } else { Vote::Free }, None))
    }

    pub(super) fn list_waiters(&self, key: &str) -> Decision {
        let mut living = self.record(key)?.queue.living(self.now);
        let waited = |since| Duration::from_micros(self.now.saturating_sub(since));
        let listed = living.by_ref().take(MOST_LISTED);
        let listed =
            listed.map(|(id, since, context)| QueuedWaiter::new(id, waited(since), context.to_owned()));
        let listed = listed.collect();
        Ok((QueueListing::new(listed, living.next().is_some()).into(), None))
    }
}

/// At most this many waiters are listed.
const MOST_LISTED: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Request;

    const TURN: Duration = Duration::from_millis(25);
    const START: u64 = 1_000_000_000;

    /// Returns whether it is the waiter's turn, and the record after its request.
    fn ask(record: &Record, waiter: u64, elapsed: u64, now: u64) -> (bool, Record) {
        let (waiter, elapsed) = (WaiterId::new(waiter), Duration::from_secs(elapsed));
        let request = Request::enqueue("a".into(), waiter, elapsed, Duration::from_secs(6), TURN);
        let mut records = Records::at(now);
        records.add("a".into(), None, Ok(record.clone()));
        let (vote, _) = records.apply(&request).unwrap();
        (vote == Vote::Free, records.seen("a").unwrap().unwrap().clone())
    }

    #[test]
    fn w9_others_wait_two_turns_behind_the_first() {
        let (has_turn, record) = ask(&Record::default(), 1, 2, START);
        assert!(has_turn, "no turn has ever begun");
        let (has_turn, record) = ask(&record, 1, 2, START);
        assert!(!has_turn, "it is in the queue again");
        let (_, record) = ask(&record, 2, 0, START);
        let turns = |waiter, turns: u64| ask(&record, waiter, 2, START + turns * micros(TURN)).0;
        assert!(!turns(2, 1) && turns(1, 1), "the first may begin another turn");
        assert!(turns(2, 2));
    }
}
