//! Which caller of a process is next for a lock, among those that want it there.
//!
//! Nodes know one waiter of a process: its callers wait for each other without a request, in the order in which they came.
//!
//! ```text
//!             a caller comes                  it has the lock
//!  no queue ─────────────────► one is served ─────────────────► held ──┐
//!     ▲                         ▲         │                      │     │ given up
//!     │ no one waits            └─────────┘ it fails, or leaves  │     ▼
//!     └───────────────────────────── the next is served ◄────────┴── handed over: held again
//! ```
//!
//! | event | effect |
//! |---|---|
//! | a caller that waits comes ([`join`](LocalQueue::join)) | It is the last. |
//! | one that does not wait comes | It is refused, as the lock is held here, or others came before. |
//! | the caller that is served has failed or left ([`serve_next`](LocalQueue::serve_next)) | The first that still waits is served; if there is none, the queue ends. |
//! | a lease ends ([`take_next`](LocalQueue::take_next)) | The first that still waits may get the lock as it is: see [`Streak`](super::Streak). |
//! | it could not get the lock ([`put_back`](LocalQueue::put_back)) | It has its former place again. |
//! | a reader has the lock ([`followers`](LocalQueue::followers)) | Those behind it ask as well, many in parallel, until one is refused. |
//!
//! # Invariants
//!
//! - Callers are served in the order of their arrival, except those that have left.
//! - A caller that does not wait gets the lock only if no other caller of its process has or wants it.

use std::collections::VecDeque;
use std::num::NonZeroU64;

/// A caller in a [`LocalQueue`].
pub trait LocalWaiter {
    /// Returns its number: later callers have larger ones.
    fn arrival(&self) -> NonZeroU64;

    /// Whether it has stopped to wait. Its owner takes it out by [`LocalQueue::leave`].
    fn is_gone(&self) -> bool;
}

/// The callers of a process that want one lock, in order of arrival.
#[derive(Debug)]
pub struct LocalQueue<W> {
    is_held: bool,
    /// The caller that was taken from the queue and still waits for the lock.
    served: Option<NonZeroU64>,
    waiters: VecDeque<W>,
}

/// How many readers follow one that has the lock, in parallel. Limits the requests queued for a node, which accepts 512
/// votes.
const FOLLOWERS: usize = 64;

impl<W> Default for LocalQueue<W> {
    fn default() -> LocalQueue<W> {
        LocalQueue { is_held: false, served: None, waiters: VecDeque::new() }
    }
}

impl<W: LocalWaiter> LocalQueue<W> {
    /// Begins a queue that serves the caller with this number.
    #[must_use]
    pub fn serving(first: NonZeroU64) -> LocalQueue<W> {
        LocalQueue { served: Some(first), ..LocalQueue::default() }
    }

    /// Whether the process holds the lock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Records whether the process holds the lock exclusively. The caller that was served has it then, or has given it up.
    pub fn set_held(&mut self, is_held: bool) {
        self.is_held = is_held;
        self.served = None;
    }

    /// Whether the process holds the lock, or a caller came before.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.is_held || self.served.is_some() || self.is_waited_for()
    }

    /// Whether a caller waits that is not being served yet.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Returns the callers that are not being served yet.
    pub fn waiters(&self) -> impl Iterator<Item = &W> {
        self.waiters.iter()
    }

    /// Adds a caller. Returns whether it did: not one that does not wait (`may_wait`), if others came before.
    pub fn join(&mut self, may_wait: bool, waiter: impl FnOnce() -> W) -> bool {
        let joins = may_wait || !self.is_taken();
        if joins {
            self.waiters.push_back(waiter());
        }
        debug_assert!(self.is_in_order(), "a caller has the number of an earlier one");
        joins
    }

    /// Takes the first caller that still waits. The others stay until they [leave](LocalQueue::leave): what they own is not
    /// dropped here, under a lock.
    pub fn take_next(&mut self) -> Option<W> {
        let first = self.waiters.iter().position(|waiter| !waiter.is_gone())?;
        self.waiters.remove(first)
    }

    /// Takes the first caller that still waits, which is served now. If there is none, the queue has ended.
    pub fn serve_next(&mut self) -> Option<W> {
        let next = self.take_next();
        self.served = next.as_ref().map(W::arrival);
        next
    }

    /// Takes those that may follow a reader.
    pub fn followers(&mut self) -> Vec<W> {
        std::iter::from_fn(|| self.take_next()).take(FOLLOWERS).collect()
    }

    /// Puts a caller back in its former place. A lock that was held for it must be [given up](LocalQueue::set_held) only
    /// after that, or a caller that does not wait might come in front of it.
    pub fn put_back(&mut self, waiter: W) {
        let place = self.waiters.partition_point(|other| other.arrival() < waiter.arrival());
        self.waiters.insert(place, waiter);
        debug_assert!(self.is_in_order(), "a caller was put back twice");
    }

    /// Takes out a caller that has stopped to wait, whether or not it is being served.
    pub fn leave(&mut self, arrival: NonZeroU64) -> Option<W> {
        self.served.take_if(|served| *served == arrival);
        let place = self.waiters.binary_search_by_key(&arrival, W::arrival).ok()?;
        self.waiters.remove(place)
    }

    fn is_in_order(&self) -> bool {
        self.waiters.iter().is_sorted_by(|one, next| one.arrival() < next.arrival())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Caller {
        arrival: u64,
        is_gone: bool,
    }

    impl LocalWaiter for Caller {
        fn arrival(&self) -> NonZeroU64 {
            number(self.arrival)
        }

        fn is_gone(&self) -> bool {
            self.is_gone
        }
    }

    fn number(arrival: u64) -> NonZeroU64 {
        NonZeroU64::new(arrival).unwrap()
    }

    fn caller(arrival: u64) -> Caller {
        Caller { arrival, is_gone: false }
    }

    /// The first is served, the others wait.
    fn queue(callers: u64) -> LocalQueue<Caller> {
        let mut queue = LocalQueue::serving(number(1));
        (2..=callers).for_each(|arrival| assert!(queue.join(true, || caller(arrival))));
        queue
    }

    fn next(queue: &mut LocalQueue<Caller>) -> Option<u64> {
        queue.take_next().map(|caller| caller.arrival)
    }

    #[test]
    fn callers_are_served_in_order_of_arrival() {
        let mut queue = queue(4);
        assert_eq!(queue.serve_next().map(|caller| caller.arrival), Some(2));
        assert_eq!(queue.serve_next().map(|caller| caller.arrival), Some(3));
        queue.put_back(caller(3));
        assert_eq!((next(&mut queue), next(&mut queue), next(&mut queue)), (Some(3), Some(4), None));
    }

    #[test]
    fn one_that_could_not_get_the_lock_has_its_former_place_again() {
        let mut queue = queue(5);
        let taken = queue.followers();
        assert!(!queue.is_waited_for() && queue.waiters().next().is_none());
        for caller in [0, 2, 3, 1].map(|index| taken[index].arrival) {
            queue.put_back(self::caller(caller));
        }
        assert_eq!(queue.waiters().map(|caller| caller.arrival).collect::<Vec<_>>(), [2, 3, 4, 5]);
    }

    #[test]
    fn one_that_has_left_is_passed_over_and_stays_until_its_owner_takes_it_out() {
        let mut queue = queue(1);
        assert!(queue.join(true, || Caller { arrival: 2, is_gone: true }));
        assert!(queue.join(true, || caller(3)));
        assert_eq!(next(&mut queue), Some(3));
        assert!(queue.is_waited_for());
        assert_eq!(queue.leave(number(2)).map(|caller| caller.arrival), Some(2));
        assert!(queue.leave(number(2)).is_none() && !queue.is_waited_for());
        assert!(queue.serve_next().is_none());
    }

    #[test]
    fn one_that_does_not_wait_joins_only_if_no_other_has_or_wants_the_lock() {
        let joins = |queue: &mut LocalQueue<Caller>| queue.join(false, || caller(9));
        assert!(!joins(&mut queue(1)), "one is served");
        let mut left = queue(1);
        assert!(left.leave(number(1)).is_none());
        assert!(!left.is_taken() && !left.is_held() && joins(&mut left));
        let mut held = queue(1);
        held.set_held(true);
        assert!(held.is_held() && !joins(&mut held));
        held.set_held(false);
        assert!(joins(&mut held) && !joins(&mut held), "one waits");
    }

    #[test]
    fn readers_follow_in_batches() {
        let mut queue = queue(2 + FOLLOWERS as u64);
        assert_eq!(queue.followers().len(), FOLLOWERS);
        let rest = queue.followers();
        assert_eq!(rest.len(), 1);
        for refused in rest {
            queue.put_back(refused);
        }
        assert_eq!(next(&mut queue), Some(2 + FOLLOWERS as u64));
    }
}
