//! Short hand-written histories. Times are milliseconds.

use std::time::Duration;

use quorlock_history::{Answer, Check, Expectations, History, Report, Stamp, Violation, What, check};

pub(crate) fn at(millis: u64) -> Stamp {
    Stamp::from_nanos(millis * 1_000_000)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// TTLs of 1 s, keys gone after 100 ms, locks after 2 s.
pub(crate) fn expect() -> Expectations {
    Expectations::new().max_ttl(millis(1_000)).grace(millis(100)).recovery(millis(2_000))
}

#[derive(Default)]
pub(crate) struct Script {
    pub(crate) history: History,
}

/// The resource of all locks in a script. An attempt is named after its client, with a number.
const RESOURCE: &str = "orders/42";

impl Script {
    pub(crate) fn record(&mut self, when: u64, what: What) -> &mut Script {
        self.history.record(at(when), what);
        self
    }

    pub(crate) fn invoked(&mut self, when: u64, attempt: &str) -> &mut Script {
        let client = attempt.trim_end_matches(|c: char| c.is_ascii_digit());
        let (client, resource, attempt) = (client.into(), RESOURCE.into(), attempt.into());
        self.record(when, What::Invoked { client, resource, attempt })
    }

    pub(crate) fn acquired(&mut self, when: u64, attempt: &str, deadline: u64) -> &mut Script {
        let deadline = at(deadline);
        self.record(when, What::Acquired { attempt: attempt.into(), deadline, fencing_token: None })
    }

    pub(crate) fn acquired_with(
        &mut self,
        when: u64,
        attempt: &str,
        deadline: u64,
        token: u64,
    ) -> &mut Script {
        let (deadline, fencing_token) = (at(deadline), Some(token));
        self.record(when, What::Acquired { attempt: attempt.into(), deadline, fencing_token })
    }

    /// Invoked at `from`, acquired 10 ms later, with a fencing token, valid for a second.
    pub(crate) fn fenced(&mut self, from: u64, attempt: &str, token: u64) -> &mut Script {
        self.invoked(from, attempt).acquired_with(from + 10, attempt, from + 1_000, token)
    }

    /// Invoked at `from`, acquired 10 ms later, released `to`: confirmed 10 ms later.
    pub(crate) fn held(&mut self, attempt: &str, from: u64, to: u64) -> &mut Script {
        self.invoked(from, attempt).acquired(from + 10, attempt, from + 1_000).released(to, attempt)
    }

    pub(crate) fn not_acquired(&mut self, when: u64, attempt: &str) -> &mut Script {
        self.record(when, What::NotAcquired { attempt: attempt.into() })
    }

    pub(crate) fn released(&mut self, when: u64, attempt: &str) -> &mut Script {
        self.record(when, What::Releasing { attempt: attempt.into() })
            .record(when + 10, What::Released { attempt: attempt.into() })
    }

    pub(crate) fn lost(&mut self, when: u64, attempt: &str) -> &mut Script {
        self.record(when, What::Lost { attempt: attempt.into(), reason: "no quorum".into() })
    }

    pub(crate) fn crashed(&mut self, when: u64, client: &str) -> &mut Script {
        self.record(when, What::Crashed { client: client.into() })
    }

    pub(crate) fn renewed(&mut self, when: u64, attempt: &str, deadline: u64) -> &mut Script {
        self.record(when, What::Renewed { attempt: attempt.into(), deadline: at(deadline) })
    }

    pub(crate) fn wrote(&mut self, when: u64, attempt: &str, token: u64, answer: Answer) -> &mut Script {
        let (resource, attempt) = (RESOURCE.into(), attempt.into());
        self.record(when, What::Wrote { resource, attempt, fencing_token: token, answer })
    }

    pub(crate) fn key(&mut self, when: u64, node: &str, attempt: &str, remaining: u64) -> &mut Script {
        let (node, resource, attempt) = (node.into(), RESOURCE.into(), attempt.into());
        self.record(when, What::Key { node, resource, attempt, remaining: millis(remaining) })
    }

    pub(crate) fn counter(&mut self, when: u64, node: &str, value: u64) -> &mut Script {
        self.record(when, What::Counter { node: node.into(), resource: RESOURCE.into(), value })
    }

    /// A fault that cuts off a node.
    pub(crate) fn cut_off(&mut self, node: &str, from: u64, to: u64) -> &mut Script {
        let began = What::FaultBegan { fault: "cut".into(), nodes: vec![node.into()], clients: Vec::new() };
        self.record(from, began).record(to, What::FaultHealed { fault: "cut".into() })
    }

    /// A fault that stops a client.
    pub(crate) fn stopped(&mut self, client: &str, from: u64, to: u64) -> &mut Script {
        let began =
            What::FaultBegan { fault: "stop".into(), nodes: Vec::new(), clients: vec![client.into()] };
        self.record(from, began).record(to, What::FaultHealed { fault: "stop".into() })
    }

    pub(crate) fn clocks(&mut self, epsilon: u64) -> &mut Script {
        self.record(0, What::Clocks { epsilon: millis(epsilon) })
    }

    /// An event without meaning that extends the history until `when`.
    pub(crate) fn goes_on_until(&mut self, when: u64) -> &mut Script {
        self.record(when, What::Forgot { node: "unrelated".into() })
    }

    pub(crate) fn report(&self) -> Report {
        check(&self.history, &expect())
    }

    pub(crate) fn found(&self, by: Check) -> Vec<Violation> {
        self.report().of(by).cloned().collect()
    }

    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        let report = self.report();
        assert!(report.is_clean(), "{report}");
    }
}
