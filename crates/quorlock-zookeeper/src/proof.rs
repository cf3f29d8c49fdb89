//! From when the session is certain to live for its timeout. Pure.
//!
//! Only the leader ends sessions, and it counts from when it last heard of one. An answer does not prove that it has: a
//! member answers what it can by itself, for some ticks also when it is cut off from its leader, and tells the leader which
//! sessions it has heard of when that asks, twice in a tick. Nor does a committed write prove it of itself: the leader
//! carries it out, but hears of the session only when it asks the member the next time. So a write is proven by a *later*
//! write over the same connection, that was sent at least a tick after the first was answered, and has been committed: in
//! between the member was asked, and what it said has reached the leader before the later write did.
//!
//! A new session needs no proof, as making it is a commit of the leader, which begins to count then. Continuing a session
//! over a new connection is reported to the leader immediately, but by itself does not prove that this is the leader still: any
//! later write does.

use std::collections::VecDeque;
use std::time::Duration;

use quorlock::protocol::Moment;

/// What is known of the time of a session.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    /// The longest tick that the servers may have.
    tick: Duration,
    /// What the leader may have heard of, and from when on a write must be sent to prove that it has.
    heard: VecDeque<(Moment, Moment)>,
    from: Moment,
}

impl Proof {
    /// A session that was made by a message that was sent then, on servers with ticks of this length at most.
    pub(crate) fn of_new(sent: Moment, tick: Duration) -> Proof {
        Proof { tick, heard: VecDeque::new(), from: sent }
    }

    /// The session is continued over a new connection, by a message that was sent and answered at these moments. Writes over
    /// the old connection are not proven by those over this one.
    pub(crate) fn continued(&mut self, sent: Moment, answered: Moment) {
        self.heard.clear();
        self.heard.push_back((sent, answered));
    }

    /// A write that was sent and answered at these moments was committed.
    pub(crate) fn committed(&mut self, sent: Moment, answered: Moment) {
        while let Some((from, proving)) = self.heard.front().copied()
            && proving <= sent
        {
            self.from = self.from.max(from);
            self.heard.pop_front();
        }
        // One of several that are close together is enough.
        let is_close = |(from, _): &(Moment, Moment)| sent.since(*from) < self.tick / 4;
        if !self.heard.back().is_some_and(is_close) {
            self.heard.push_back((sent, answered + self.tick));
        }
    }

    /// Returns the moment from which the timeout of the session counts.
    pub(crate) fn from(&self) -> Moment {
        self.from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::since_origin(Duration::from_millis(millis))
    }

    fn new() -> Proof {
        Proof::of_new(at(0), Duration::from_secs(1))
    }

    #[test]
    fn a_write_is_proven_by_one_that_was_sent_a_tick_after_its_answer() {
        let mut proof = new();
        proof.committed(at(100), at(150));
        assert_eq!(proof.from(), at(0), "no write proves itself");
        proof.committed(at(1149), at(1160));
        assert_eq!(proof.from(), at(0), "the leader may not have asked since");
        proof.committed(at(1150), at(1160));
        assert_eq!(proof.from(), at(100));
        proof.committed(at(2200), at(2300));
        assert_eq!(proof.from(), at(1149), "not that of the last write");
    }

    #[test]
    fn no_write_proves_one_over_an_earlier_connection() {
        let mut proof = new();
        proof.committed(at(100), at(150));
        proof.continued(at(5000), at(5010));
        assert_eq!(proof.from(), at(0), "it may be the leader no more");
        proof.committed(at(5010), at(5020));
        assert_eq!(proof.from(), at(5000));
        proof.committed(at(5100), at(5120));
        assert_eq!(proof.from(), at(5000));
        proof.committed(at(6100), at(6120));
        assert_eq!(proof.from(), at(5010));
    }

    #[test]
    fn many_writes_take_no_memory() {
        let mut proof = new();
        for millis in 0..10_000 {
            proof.committed(at(millis), at(millis + 1));
        }
        assert!(proof.heard.len() < 12, "{}", proof.heard.len());
        assert!(proof.from() > at(8000));
    }
}
