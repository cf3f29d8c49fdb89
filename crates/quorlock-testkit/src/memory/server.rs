//! The server process of a memory node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::protocol::Moment;
use quorlock::{
    node::{Capabilities, Durability, Identity, NodeError, Request, Response},
    runtime::Clock,
};

use super::locks::Locks;
use super::logs::Logs;
use super::offers::Offers;

pub(super) struct Server {
    name: String,
    pub(super) locks: Locks,
    pub(super) offers: Offers,
    logs: Logs,
    pub(super) identity: Arc<Identity>,
    /// The answer to each request.
    pub(super) failure: Option<NodeError>,
    pub(super) capabilities: Capabilities,
}

/// What a process leaves to its successor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Nothing,
    Data,
}

/// Longer than any quarantine.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Server {
    pub(super) fn new(name: &str, clock: Arc<dyn Clock>, now: Moment) -> Server {
        let identity = Arc::new(Identity::new(fresh_id(name), now, DAY));
        Server {
            name: name.to_owned(),
            locks: Locks::new(clock),
            offers: Offers::default(),
            logs: Logs::default(),
            identity,
            failure: None,
            capabilities: Capabilities::all(),
        }
    }

    pub(super) fn execute(&mut self, request: &Request) -> Result<Response, NodeError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.capabilities.check(request)?;
        let (vote, number) = match self.logs.apply(request, self.locks.now()) {
            Some(outcome) => outcome,
            None => self.offers.apply(&mut self.locks, request)?,
        };
        Ok(Response::new(vote, Arc::clone(&self.identity)).with_fencing_token(number))
    }

    pub(super) fn forget(&mut self) {
        self.locks.flush();
        self.offers.forget();
        self.logs.forget();
    }

    pub(super) fn with_capabilities(&mut self, capabilities: Capabilities) {
        self.locks.grant(capabilities.grants);
        self.capabilities = capabilities;
    }

    pub(super) fn restart(&mut self, now: Moment, kept: Kept) {
        self.failure = None;
        if kept == Kept::Data && self.capabilities.durability == Durability::Durable {
            return;
        }
        self.identity = Arc::new(Identity::new(fresh_id(&self.name), now, Duration::ZERO));
    }

    pub(super) fn age(&mut self, now: Moment, age: Duration) {
        self.identity = Arc::new(Identity::new(self.identity.id.clone(), now, age));
    }

    pub(super) fn identify_as(&mut self, id: &str) {
        self.identity = Arc::new(Identity::new(id, self.identity.seen, self.identity.age));
    }
}

/// Returns an id that is unique in the process, and the same in every run of a simulation.
fn fresh_id(name: &str) -> String {
    static STARTED: AtomicU64 = AtomicU64::new(1);
    format!("{name}#{}", STARTED.fetch_add(1, Ordering::Relaxed))
}
