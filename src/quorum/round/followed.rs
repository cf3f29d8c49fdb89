//! What a lease follows until all nodes have responded: an attempt, or a round that renews it.

use std::sync::Arc;

use super::{Attempt, Driven, KeyStates, Moment, OnSettled, Round};

/// The latest round about the key of a lease.
#[derive(Clone)]
pub(crate) enum Followed {
    /// The votes by which it was acquired.
    Attempt(Arc<Driven<Attempt>>),
    /// A renewal, or a repair.
    Round(Arc<Round>),
}

impl Followed {
    /// Returns when the nodes were asked.
    pub(crate) fn sent(&self) -> Moment {
        match self {
            Followed::Attempt(attempt) => attempt.sent,
            Followed::Round(round) => round.sent,
        }
    }

    /// See [`Driven::key_states`].
    pub(crate) fn key_states(&self) -> KeyStates {
        match self {
            Followed::Attempt(attempt) => attempt.key_states(),
            Followed::Round(round) => round.key_states(),
        }
    }

    /// See [`Driven::abandon`].
    pub(crate) fn abandon(&self) {
        match self {
            Followed::Attempt(attempt) => attempt.abandon(),
            Followed::Round(round) => round.abandon(),
        }
    }

    /// See [`Driven::notify_settled`].
    pub(crate) fn notify_settled(&self, listener: &Arc<impl OnSettled + 'static>) -> (KeyStates, bool) {
        match self {
            Followed::Attempt(attempt) => attempt.notify_settled(listener),
            Followed::Round(round) => round.notify_settled(listener),
        }
    }

    /// Returns its address, as [`OnSettled`] has it.
    pub(crate) fn address(&self) -> *const () {
        match self {
            Followed::Attempt(attempt) => Arc::as_ptr(attempt).cast(),
            Followed::Round(round) => Arc::as_ptr(round).cast(),
        }
    }
}

impl From<&Arc<Driven<Attempt>>> for Followed {
    fn from(attempt: &Arc<Driven<Attempt>>) -> Followed {
        Followed::Attempt(attempt.clone())
    }
}

impl From<&Arc<Round>> for Followed {
    fn from(round: &Arc<Round>) -> Followed {
        Followed::Round(round.clone())
    }
}
