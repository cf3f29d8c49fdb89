//! When a writer that waits for readers announces itself, so that no new ones are admitted (rule S-5).
//!
//! All nodes are asked: with one alone, readers would find a quorum among the others. Only while readers hold the lock, or
//! writers that wait for each other would keep readers out forever.

use std::sync::Arc;

use crate::node::Request;
use crate::votes::{NodeVote, VoteOutcome, VoteReport};
use crate::{INTENT_AGE, INTENT_PATIENCE, Moment, WaiterId};

/// The announcement of one writer.
#[derive(Clone, Debug, Default)]
pub struct Intent {
    /// The key that the readers share, and when it was last announced.
    announced: Option<(Arc<str>, Moment)>,
}

impl Intent {
    /// Returns what to send to all nodes, in this order, after a writer was refused by these votes. `key` is what the votes
    /// are about that name none.
    pub fn refused(
        &mut self,
        (key, report): (&Arc<str>, &VoteReport),
        waiter: WaiterId,
        now: Moment,
    ) -> impl Iterator<Item = Request> + use<> {
        let by_readers = |vote: &NodeVote| {
            let VoteOutcome::Held(holding) = &vote.outcome else { return None };
            holding.token.is_marker().then(|| holding.key.as_ref().unwrap_or(key).clone())
        };
        let shared = report.votes().iter().find_map(by_readers);
        let is_known = |key: &Arc<str>| {
            self.announced.as_ref().is_some_and(|(known, at)| known == key && now.since(*at) < INTENT_AGE)
        };
        let key = shared.filter(|key| !is_known(key));
        let is_other = |key: &Arc<str>| self.announced.as_ref().is_some_and(|(known, _)| known != key);
        let withdrawn = if key.as_ref().is_some_and(is_other) { self.withdraw(waiter) } else { None };
        let announced = key.map(|key| {
            self.announced = Some((key.clone(), now));
            Request::AnnounceWriter { key, waiter, patience: INTENT_PATIENCE }
        });
        withdrawn.into_iter().chain(announced)
    }

    /// Whether it is announced for this key.
    #[must_use]
    pub fn is_announced_for(&self, key: &Arc<str>) -> bool {
        self.announced.as_ref().is_some_and(|(announced, _)| announced == key)
    }

    /// Whether nothing is announced.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.announced.is_none()
    }

    /// Returns what to send to all nodes once the writer has the lock, or does not wait as the first any more.
    pub fn withdraw(&mut self, waiter: WaiterId) -> Option<Request> {
        self.announced.take().map(|(key, _)| Request::WithdrawWriter { key, waiter })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::machine::tests;
    use crate::node::{Expiry, Holding};
    use crate::{SHARED_MARKER, Token};

    const NOW: Moment = Moment::ORIGIN;

    fn report(token: Token, key: Option<&str>) -> VoteReport {
        let mut holding = Holding::new(token, Expiry::In(Duration::from_secs(9)));
        holding.key = key.map(Arc::from);
        tests::report([VoteOutcome::Held(holding)])
    }

    fn sent(intent: &mut Intent, report: &VoteReport, now: Moment) -> Vec<String> {
        let text = |request| {
            if let Request::AnnounceWriter { key, .. } = &request {
                format!("announce {key}")
            } else if let Request::WithdrawWriter { key, .. } = &request {
                format!("withdraw {key}")
            } else {
                format!("{request:?}")
            }
        };
        intent.refused((&"r".into(), report), WaiterId::new(1), now).map(text).collect()
    }

    #[test]
    fn s5_a_writer_announces_itself_while_readers_hold_the_lock_and_again_before_that_ends() {
        let mut intent = Intent::default();
        assert_eq!(
            sent(&mut intent, &report(Token::new(7, ""), None), NOW),
            [""; 0],
            "another writer has it"
        );
        assert!(intent.is_none());
        let readers = report(Token::found(SHARED_MARKER.as_bytes()), None);
        assert_eq!(sent(&mut intent, &readers, NOW), ["announce r"]);
        assert!(!intent.is_none());
        assert_eq!(sent(&mut intent, &readers, NOW + INTENT_AGE / 2), [""; 0]);
        assert_eq!(sent(&mut intent, &readers, NOW + INTENT_AGE), ["announce r"]);
        assert!(INTENT_AGE < INTENT_PATIENCE, "a node forgets it no sooner");
        let others = report(Token::found(SHARED_MARKER.as_bytes()), Some("s"));
        assert_eq!(sent(&mut intent, &others, NOW + INTENT_AGE), ["withdraw r", "announce s"]);
        assert!(intent.is_announced_for(&"s".into()) && !intent.is_announced_for(&"r".into()));
        assert!(intent.withdraw(WaiterId::new(1)).is_some() && intent.withdraw(WaiterId::new(1)).is_none());
    }
}
