use std::sync::atomic::{AtomicU64, Ordering};

use super::Moment;

/// The term of a lease: until when it may be trusted, or that it is over.
///
/// Loss is sticky (rule I-10): once the deadline has been seen to pass, no later renewal revives
/// the lease. Observation and renewal therefore meet in one atomic value: either the renewal comes
/// first and the observer sees the new deadline, or the observer comes first and the renewal is
/// refused.
#[derive(Debug)]
pub struct Term {
    /// Nanoseconds of the deadline, or [`OVER`].
    deadline: AtomicU64,
}

const OVER: u64 = 0;

impl Term {
    /// Creates a term that ends at `deadline`.
    #[must_use]
    #[inline]
    pub fn until(deadline: Moment) -> Term {
        Term { deadline: AtomicU64::new(deadline.nanos()) }
    }

    /// Returns the deadline, if the term still runs at `now`. Once `None`, always `None`. At the origin of the clock it runs,
    /// unless it was ended or seen to end.
    pub fn remaining(&self, now: Moment) -> Option<Moment> {
        let deadline = self.deadline.load(Ordering::Acquire);
        if deadline == OVER {
            return None;
        }
        if now.nanos() < deadline {
            return Some(Moment::from_nanos(deadline));
        }
        match self.deadline.compare_exchange(deadline, OVER, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => None,
            // A concurrent renewal. Its deadline is later than the one that has passed.
            Err(renewed) => {
                debug_assert!(renewed == OVER || renewed > deadline, "the deadline moved back");
                self.remaining(now)
            }
        }
    }

    /// Moves the deadline to `renewed`, if the quorum's last answer was counted at `now`, before
    /// the old deadline (rule I-9), and the term has not been seen to end. Never moves it back:
    /// after a shorter renewal the keys live longer than the holder trusts them, which is safe
    /// (rule I-6).
    ///
    /// Returns whether the term still runs.
    pub fn renew(&self, renewed: Moment, now: Moment) -> bool {
        let mut old = self.deadline.load(Ordering::Acquire);
        loop {
            if old == OVER || now.nanos() >= old {
                self.end();
                return false;
            }
            let new = renewed.nanos().max(old);
            debug_assert!(new >= old && new > now.nanos(), "the deadline moved back");
            match self.deadline.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(current) => old = current,
            }
        }
    }

    /// Ends the term for good.
    #[inline]
    pub fn end(&self) {
        self.deadline.store(OVER, Ordering::Release);
    }
}
