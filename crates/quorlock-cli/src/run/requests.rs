//! Decides which terminating signals are new requests. No clock here: `now` is an argument.

use std::time::Duration;

use nix::sys::signal::Signal;
use quorlock::protocol::Moment;

/// The requests to end so far.
#[derive(Debug, Default)]
pub(super) struct Requests {
    first: Option<(Signal, Moment)>,
}

/// What to do about a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// Pass it on to the command.
    PassOn,
    /// Drop it: the command has it already.
    Repeated,
    /// Kill the command: it was asked before.
    Kill,
}

/// A signal is a second request only this long after the first. The same request often arrives twice: `timeout`
/// signals its child and then its own group, a service manager all processes of a service.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

impl Requests {
    /// Whether there was any.
    pub(super) fn is_any(&self) -> bool {
        self.first.is_some()
    }

    /// Counts `signal`, which came at `now`.
    pub(super) fn count(&mut self, signal: Signal, now: Moment) -> Request {
        if !matches!(signal, Signal::SIGINT | Signal::SIGTERM) {
            return Request::PassOn;
        }
        match self.first {
            None => {
                self.first = Some((signal, now));
                Request::PassOn
            }
            Some((_, first)) if now.since(first) >= AGAIN_AFTER => Request::Kill,
            Some((same, _)) if same == signal => Request::Repeated,
            Some(_) => Request::PassOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(millis: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(100) + Duration::from_millis(millis))
    }

    #[test]
    fn the_same_request_that_comes_by_two_ways_is_passed_on_once() {
        let mut requests = Requests::default();
        assert_eq!(requests.count(Signal::SIGTERM, after(0)), Request::PassOn);
        assert_eq!(requests.count(Signal::SIGTERM, after(1)), Request::Repeated);
        assert_eq!(requests.count(Signal::SIGTERM, after(999)), Request::Repeated);
    }

    #[test]
    fn another_one_a_second_later_kills() {
        for again in [Signal::SIGINT, Signal::SIGTERM] {
            let mut requests = Requests::default();
            requests.count(Signal::SIGINT, after(0));
            assert_eq!(requests.count(again, after(1000)), Request::Kill);
        }
    }

    #[test]
    fn other_signals_are_forwarded() {
        let mut requests = Requests::default();
        requests.count(Signal::SIGINT, after(0));
        assert_eq!(requests.count(Signal::SIGTERM, after(10)), Request::PassOn);
        for other in [Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1] {
            assert_eq!(requests.count(other, after(10)), Request::PassOn);
            assert_eq!(requests.count(other, after(5000)), Request::PassOn, "it asks for something else");
        }
    }
}
