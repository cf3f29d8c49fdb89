//! The errors of the Sentinels of a service.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::node::Reason;
use crate::node::{NodeError, NodeErrorKind};

/// The errors of the Sentinels that did not report the master of a service, if a majority did not: the
/// [source](Error::source) of the resulting [`NodeError`].
///
/// `Display` groups Sentinels with the same error. It has no source itself:
/// [`errors`](SentinelErrors::errors) has each error with its own.
#[derive(Clone, Debug)]
pub struct SentinelErrors {
    errors: Vec<(Arc<str>, NodeError)>,
}

impl SentinelErrors {
    pub(super) fn new(errors: Vec<(Arc<str>, NodeError)>) -> SentinelErrors {
        SentinelErrors { errors }
    }

    /// Returns each Sentinel that did not answer, by its address, with its error.
    pub fn errors(&self) -> impl Iterator<Item = (&str, &NodeError)> {
        self.errors.iter().map(|(name, error)| (&**name, error))
    }

    /// Creates the error of a service of whose `given` Sentinels `agreeing` have answered and `needed` must.
    ///
    /// It is permanent if too few Sentinels remain without the permanently failing ones.
    pub(super) fn of_service(self, agreeing: usize, needed: usize, given: usize) -> NodeError {
        let permanent = || self.errors.iter().filter(|(_, error)| error.is_permanent());
        let away = |kind| matches!(kind, NodeErrorKind::Unreachable | NodeErrorKind::TimedOut);
        let barred = given.saturating_sub(permanent().count()) < needed;
        let first = if barred {
            permanent().next()
        } else {
            // An unreachable Sentinel is preferred to a busy one: that is what an operator can fix.
            self.errors.iter().find(|(_, error)| away(error.kind())).or_else(|| self.errors.first())
        };
        let kind = first.map_or(NodeErrorKind::TimedOut, |(_, error)| error.kind());
        let words = format!("{agreeing} of its Sentinels report the master, and {needed} are needed");
        let reason = Reason::new(words).because(self);
        if away(kind) { NodeError::Unreachable { reason } } else { NodeError::Failed { kind, reason } }
    }
}

impl fmt::Display for SentinelErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
        for (name, error) in self.errors() {
            let reason = format!("{error:#}");
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) => names.push(name),
                None => reasons.push((reason, vec![name])),
            }
        }
        for (position, (reason, names)) in reasons.iter().enumerate() {
            let separator = if position == 0 { "" } else { "; " };
            let plural = if names.len() == 1 { "" } else { "s" };
            write!(f, "{separator}the Sentinel{plural} at {}: {reason}", names.join(", "))?;
        }
        Ok(())
    }
}

impl Error for SentinelErrors {}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> NodeError {
        NodeError::Unreachable { reason: "nothing listens".into() }
    }

    fn failed(kind: NodeErrorKind) -> NodeError {
        NodeError::Failed { kind, reason: "no".into() }
    }

    #[test]
    fn a_service_fails_with_the_error_of_most_sentinels() {
        let (login, busy) = (failed(NodeErrorKind::Login), failed(NodeErrorKind::Busy));
        let late = NodeError::Unanswered { waited: std::time::Duration::from_millis(500) };
        for (errors, agreeing, kind) in [
            (vec![unreachable(), unreachable(), unreachable()], 0, NodeErrorKind::Unreachable),
            (vec![login.clone(), login.clone(), login.clone()], 0, NodeErrorKind::Login),
            (vec![unreachable(), login.clone(), login.clone()], 0, NodeErrorKind::Login),
            (vec![login.clone(), unreachable(), unreachable()], 0, NodeErrorKind::Unreachable),
            (vec![login.clone(), unreachable()], 1, NodeErrorKind::Unreachable),
            (vec![busy.clone(), late.clone()], 1, NodeErrorKind::Unreachable),
            (vec![busy.clone(), busy.clone()], 1, NodeErrorKind::Busy),
        ] {
            let shown = format!("{errors:?}");
            let errors = errors.into_iter().zip(1..).map(|(error, n)| (format!("s{n}").into(), error));
            let error = SentinelErrors::new(errors.collect()).of_service(agreeing, 2, 3);
            assert_eq!(error.kind(), kind, "{shown}");
            assert_eq!(error.is_permanent(), kind == NodeErrorKind::Login, "{shown}");
            assert!(!error.may_have_acted(), "no server was asked for anything: {shown}");
        }
    }

    #[test]
    fn sentinels_with_the_same_error_are_grouped() {
        let errors = [("a", unreachable()), ("b", failed(NodeErrorKind::Login)), ("c", unreachable())];
        let errors = errors.map(|(name, error)| (name.into(), error)).into();
        let error = SentinelErrors::new(errors).of_service(0, 2, 3);
        assert_eq!(
            format!("{error:#}"),
            "unreachable: 0 of its Sentinels report the master, and 2 are needed: the Sentinels at a, c: \
             unreachable: nothing listens; the Sentinel at b: no"
        );
    }
}
