//! What a lease follows until all nodes have responded: an attempt, or a round that renews it.

use std::sync::Arc;

use quorlock_protocol::{Verdict, machine::NodeSet};

use super::{Driven, KeyStates, Listener, Machine, Moment, Round};

/// The latest round about the key of a lease.
pub(crate) trait Followed: Send + Sync {
    /// Returns when the nodes were asked.
    fn sent(&self) -> Moment;

    /// See [`Driven::key_states`].
    fn key_states(&self) -> KeyStates;

    /// Whether no response is outstanding.
    fn all_responded(&self) -> bool;

    /// Returns the nodes that had lost the key, which they had `before`, unless a quorum had it: see
    /// [`had_lost`](quorlock_protocol::machine::Round::had_lost).
    fn had_lost(&self, before: KeyStates) -> NodeSet;

    /// See [`Driven::abandon`].
    fn abandon(&self);

    /// Keeps only the key states from now on. When all nodes have responded, `listener` is notified
    /// and the round drops it. Returns the states so far, and whether all nodes have already responded; the listener is
    /// then not notified.
    fn notify_settled(&self, listener: Arc<dyn Listener>) -> (KeyStates, bool);
}

impl<M: Machine> Followed for Driven<M> {
    fn sent(&self) -> Moment {
        self.sent
    }

    fn key_states(&self) -> KeyStates {
        self.key_states()
    }

    fn all_responded(&self) -> bool {
        self.inner.lock().machine.round().all_responded()
    }

    fn had_lost(&self, before: KeyStates) -> NodeSet {
        let inner = self.inner.lock();
        let round = inner.machine.round();
        let lost = round.had_lost(before);
        let is_lost =
            || round.tally(&*self.nodes, self.nodes.clock.now()).granted() < self.nodes.quorum.needed();
        if !lost.is_empty() && is_lost() { lost } else { NodeSet::default() }
    }

    fn abandon(&self) {
        self.abandon();
    }

    fn notify_settled(&self, listener: Arc<dyn Listener>) -> (KeyStates, bool) {
        let mut inner = self.inner.lock();
        let round = inner.machine.round();
        let (key_states, all_responded) = (round.key_states(), round.all_responded());
        let before = if all_responded { None } else { inner.listener.replace(listener) };
        inner.awaits_verdict = false;
        drop(inner);
        drop(before);
        (key_states, all_responded)
    }
}

impl Round {
    /// Has `listener` notified once responses have made the verdict certain: now, if they have.
    pub(crate) fn notify_decided(&self, listener: Arc<dyn Listener>) {
        let mut inner = self.inner.lock();
        if inner.machine.certain().is_none() {
            inner.awaits_verdict = true;
            let before = inner.listener.replace(listener);
            drop(inner);
            return drop(before);
        }
        drop(inner);
        listener.decided();
    }

    /// Returns the verdict, if responses have made it certain.
    pub(crate) fn certain(&self) -> Option<Verdict> {
        self.inner.lock().machine.certain()
    }
}
