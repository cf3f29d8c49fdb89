//! Removes what can make no difference any more, so that equivalent states become equal.

use quorlock_protocol::FencingToken;

use super::Fence;
use super::state::{Node, Phase, State, Vote, WriteBack};

impl<const N: usize, const K: usize> Fence<N, K> {
    pub(super) fn tidy(&self, state: &mut State<N, K>) {
        for attempt in 0..K {
            if self.cannot_succeed(state, attempt) {
                stop(state, attempt);
            }
        }
        if self.world.is_literal() {
            return;
        }
        for attempt in 0..K {
            self.tidy_write_backs(state, attempt);
            tidy_clock(state, attempt);
        }
        self.tidy_nodes(state);
    }

    /// Whether the attempt can no longer return.
    fn cannot_succeed(&self, state: &State<N, K>, attempt: usize) -> bool {
        let asking = &state.attempts[attempt];
        let is_late = self.world.has_time() && state.now - asking.sent >= self.world.limit;
        match asking.phase {
            Phase::Idle | Phase::Returned { .. } | Phase::Stopped { .. } => false,
            Phase::Voting => {
                let may_count = |node: &Node<K>| node.mail[attempt].vote != Vote::Spent;
                is_late || !self.is_carried(&state.nodes, may_count)
            }
            Phase::WritingBack { token, .. } => {
                let may_count = |node: &Node<K>| {
                    let write_back = node.mail[attempt].write_back;
                    write_back == WriteBack::Acknowledged
                        || write_back == WriteBack::Unarrived && self.confirms(node, token)
                };
                is_late || !self.is_carried(&state.nodes, may_count)
            }
        }
    }

    fn tidy_write_backs(&self, state: &mut State<N, K>, attempt: usize) {
        let asking = state.attempts[attempt];
        let Some(token) = asking.writes_back() else { return };
        let may_forget = state.restarts < self.world.restarts;
        for node in &mut state.nodes {
            let may_be_granted = may_forget || self.confirms(node, token);
            let write_back = &mut node.mail[attempt].write_back;
            let matters = match write_back {
                WriteBack::Unarrived => may_be_granted,
                WriteBack::Acknowledged => asking.is_open(),
                WriteBack::Spent => false,
            };
            if !matters {
                *write_back = WriteBack::Spent;
            }
        }
    }

    fn tidy_nodes(&self, state: &mut State<N, K>) {
        let waiting = state.attempts.iter().filter(|asking| asking.is_open() && asking.phase != Phase::Idle);
        let earliest = waiting.map(|asking| asking.sent).min().unwrap_or(state.now);
        for node in &mut state.nodes {
            if !self.world.is_quarantined(node.restarted, earliest) {
                node.restarted = None;
            }
        }
    }
}

fn stop<const N: usize, const K: usize>(state: &mut State<N, K>, attempt: usize) {
    let asking = &mut state.attempts[attempt];
    asking.phase = Phase::Stopped { token: asking.writes_back() };
    asking.floor = FencingToken::ZERO;
    state.nodes.iter_mut().for_each(|node| node.mail[attempt].spend_vote());
}

/// The clock of an attempt that waits for no vote does not matter.
fn tidy_clock<const N: usize, const K: usize>(state: &mut State<N, K>, attempt: usize) {
    let is_awaited = state.nodes.iter().any(|node| node.mail[attempt].vote == Vote::Unarrived);
    let asking = &mut state.attempts[attempt];
    if !asking.is_open() && !is_awaited {
        (asking.ahead, asking.sent) = (0, 0);
    }
}
