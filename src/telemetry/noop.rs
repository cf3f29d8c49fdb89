//! No-ops, without the feature `metrics`.

#![expect(clippy::unused_self, reason = "the recorded version needs it")]

use std::sync::Arc;
use std::time::Duration;

use super::{At, Loss, Op, Outcome, Passed, Renewed};
use crate::node::{NodeError, Response};
use quorlock_protocol::{Moment, Quorum, Verdict};

#[derive(Clone, Debug)]
pub(crate) struct Meters;

#[derive(Clone, Debug)]
pub(crate) struct LockMeter;

pub(crate) struct Acquiring;

pub(crate) struct Held;

#[derive(Debug)]
pub(crate) struct NodeMeter;

impl Meters {
    pub(crate) fn new(_: Quorum) -> Meters {
        Meters
    }

    pub(crate) fn lock(&self, _: &str) -> LockMeter {
        LockMeter
    }

    pub(crate) fn wrote_back(&self) {}
}

impl LockMeter {
    pub(crate) fn acquiring(&self, _: Moment, _: impl FnOnce() -> Duration) -> Acquiring {
        Acquiring
    }

    pub(crate) fn held(&self, _: Moment) -> Held {
        Held
    }

    pub(crate) fn rounds(&self, _: usize) {}
    pub(crate) fn remaining(&self, _: At, _: Duration, _: Duration) {}
    pub(crate) fn renewed(&self, _: Renewed) {}
    pub(crate) fn released(&self, _: Verdict) {}
    pub(crate) fn lost(&self, _: Loss) {}
    pub(crate) fn passed(&self, _: Passed) {}
}

impl Acquiring {
    pub(crate) fn done(self, _: Outcome, _: impl FnOnce() -> Moment) {}
}

impl Held {
    pub(crate) fn released(&mut self, _: Duration, _: impl FnOnce() -> (Moment, Duration)) {}
    pub(crate) fn lost(&mut self, _: Option<Loss>, _: impl FnOnce() -> Moment) {}
}

impl NodeMeter {
    pub(crate) fn new(_: &str) -> Arc<NodeMeter> {
        Arc::new(NodeMeter)
    }

    pub(crate) fn answered(&self, _: Op, _: &Result<Response, NodeError>, _: Duration) {}
    pub(crate) fn late(&self) {}
    pub(crate) fn connected(&self) {}
    pub(crate) fn restarted(&self) {}
    pub(crate) fn answers_again(&self) {}
    pub(crate) fn stalled(&self) {}
    pub(crate) fn down(&self) {}
    pub(crate) fn votes_from(&self, _: Duration) {}
}
