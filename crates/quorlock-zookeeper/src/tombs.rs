//! Attempts that were cancelled. Pure.
//!
//! No other client need know of them: late requests of a process come over its connection, in order, or are refused by the
//! leader, because the session has moved to another connection or has ended.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use quorlock::protocol::{Moment, Token};

/// The cancelled attempts.
#[derive(Default)]
pub(crate) struct Tombs {
    until: HashMap<Token, Moment>,
    due: BTreeSet<(Moment, Vec<u8>)>,
}

impl Tombs {
    /// Cancels an attempt for this long.
    pub(crate) fn bury(&mut self, token: &Token, now: Moment, linger: Duration) {
        while self.due.first().is_some_and(|(until, _)| *until <= now) {
            let Some((until, token)) = self.due.pop_first() else { break };
            let token = Token::found(&token);
            // It may have been cancelled again.
            if self.until.get(&token) == Some(&until) {
                self.until.remove(&token);
            }
        }
        let until = now + linger;
        self.until.insert(token.clone(), until);
        self.due.insert((until, token.as_bytes().to_vec()));
    }

    /// Whether an attempt was cancelled.
    pub(crate) fn have(&self, token: &Token, now: Moment) -> bool {
        self.until.get(token).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tomb_lasts_as_long_as_it_was_last_asked_for_and_is_then_forgotten() {
        let at = |seconds| Moment::since_origin(Duration::from_secs(seconds));
        let (mut tombs, one, other) = (Tombs::default(), Token::new(1, "a"), Token::new(2, "a"));
        tombs.bury(&one, at(0), Duration::from_secs(10));
        tombs.bury(&one, at(5), Duration::from_secs(10));
        assert!(tombs.have(&one, at(14)) && !tombs.have(&one, at(15)) && !tombs.have(&other, at(0)));
        tombs.bury(&other, at(12), Duration::from_secs(10));
        assert!(tombs.have(&one, at(14)));
        tombs.bury(&other, at(20), Duration::from_secs(10));
        assert_eq!(tombs.until.len(), 1);
    }
}
