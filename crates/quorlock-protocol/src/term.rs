use std::sync::atomic::{AtomicU64, Ordering};

use super::Moment;

/// The term of one held lease: until when it may be trusted, or that it is over.
///
/// Loss is sticky (rule I-10): once anybody has seen the deadline pass, no renewal that arrives
/// later revives the lease. That is why observation and renewal meet in one atomic value: either
/// the renewal comes first and the observer sees the new deadline, or the observer does and the
/// renewal is refused.
#[derive(Debug)]
pub struct Term {
    /// Nanoseconds of the deadline, or [`OVER`].
    deadline: AtomicU64,
}

const OVER: u64 = 0;

impl Term {
    /// A term that ends at `deadline`.
    #[must_use]
    #[inline]
    pub fn until(deadline: Moment) -> Term {
        Term { deadline: AtomicU64::new(deadline.nanos()) }
    }

    /// The deadline, if the term still runs at `now`. `None` is for ever.
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
            // A renewal came between. Its deadline is later than the one that has passed.
            Err(_) => self.remaining(now),
        }
    }

    /// Moves the deadline to `renewed`, if the quorum's last answer was counted at `now`, before
    /// the old deadline (rule I-9), and nobody has seen the term end. Never moves it back: a
    /// shorter renewal leaves the keys living longer than the holder trusts them, which harms
    /// nobody (rule I-6).
    ///
    /// Returns whether the term runs.
    pub fn renew(&self, renewed: Moment, now: Moment) -> bool {
        let mut old = self.deadline.load(Ordering::Acquire);
        loop {
            if old == OVER || now.nanos() >= old {
                self.end();
                return false;
            }
            let new = renewed.nanos().max(old);
            match self.deadline.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(current) => old = current,
            }
        }
    }

    /// Ends the term, for ever.
    #[inline]
    pub fn end(&self) {
        self.deadline.store(OVER, Ordering::Release);
    }
}
