//! What the tests of all machines share, and what holds for all of them.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Deployment;
use crate::node::{Expiry, Holding, Identity, Response, Vote};
use crate::votes::{NodeVote, VoteOutcome, VoteReport};
use crate::{Claim, Moment, Quarantine, Quorum, Token};

/// Nodes whose round trips are not known.
pub(super) struct Fake {
    pub(super) nodes: usize,
    pub(super) quarantine: Quarantine,
    pub(super) is_on_one_host: bool,
}

/// Of which three must grant.
pub(super) const FIVE: Fake = Fake { nodes: 5, quarantine: Quarantine::none(), is_on_one_host: false };

impl Deployment for Fake {
    fn quorum(&self) -> Quorum {
        Quorum::majority(self.nodes)
    }

    fn quarantine(&self) -> Quarantine {
        self.quarantine
    }

    fn wall(&self) -> Duration {
        Duration::from_secs(1_700_000_000)
    }

    fn is_on_one_host(&self) -> bool {
        self.is_on_one_host
    }

    fn timeout(&self, _: usize, ttl: Duration) -> Duration {
        ttl / 10
    }

    fn overdue_after(&self, _: usize, least: Duration, _: Duration) -> Duration {
        least
    }

    fn grant_age(&self, _: Duration) -> Duration {
        Duration::ZERO
    }

    fn random(&self) -> u64 {
        u64::MAX
    }

    fn name(&self, node: usize) -> Arc<str> {
        node.to_string().into()
    }
}

pub(super) fn at(millis: u64) -> Moment {
    Moment::since_origin(Duration::from_millis(millis))
}

pub(super) fn claim(random: u128) -> Arc<Claim> {
    Arc::new(Claim::new("r".into(), Token::new(random, "")))
}

pub(super) fn response(node: usize, vote: Vote) -> Response {
    Response::new(vote, Arc::new(Identity::new(node.to_string(), Moment::ORIGIN, Duration::ZERO)))
}

/// Another client has the lock, for some time.
pub(super) fn held(token: u128) -> Holding {
    Holding::new(Token::new(token, ""), Expiry::In(Duration::from_secs(9)))
}

/// The votes of all nodes.
pub(super) fn report<const NODES: usize>(outcomes: [VoteOutcome; NODES]) -> VoteReport {
    let vote = |outcome| NodeVote { node: "n".into(), outcome, took: Duration::ZERO, fencing_token: None };
    VoteReport::new(Quorum::majority(NODES), outcomes.into_iter().map(vote).collect())
}

/// A machine is told what has happened and what time it is, and asked what to do.
#[test]
fn no_machine_waits_reads_a_clock_or_draws_a_number() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![source];
    let mut checked = 0;
    while let Some(file) = files.pop() {
        if file.is_dir() {
            files.extend(fs::read_dir(file).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        if file.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for word in ["async ", ".await", "Waker", "Instant", "SystemTime", "thread::", "tokio", "rand::"] {
            let found = code.iter().find(|line| line.contains(word));
            assert!(found.is_none(), "{}: {found:?}", file.display());
        }
        checked += 1;
    }
    assert!(checked > 40, "{checked} files");
}
