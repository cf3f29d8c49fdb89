//! Several resources that are locked together.

use std::sync::Arc;

use futures::future::join_all;

use super::Lock;
use crate::engine::context::EngineContext;
use crate::error::ConfigError;
use crate::node::Request;
use crate::quorum::round::{Expect, Round};
use crate::quorum::vote_report::VoteReport;
use quorlock_protocol::{Keys, MOST_RESOURCES, Mode, Resource};

impl Lock {
    /// A lock of all of `names`, each counted once; `None` if they are no more than one.
    pub(crate) fn together(shared: &Arc<EngineContext>, names: &[Arc<str>]) -> Option<Lock> {
        let keys = names.iter().map(|name| shared.key(name));
        let keys = Keys::several(keys.collect()).filter(Keys::are_several)?;
        let mut names = names.to_vec();
        names.sort_unstable();
        names.dedup();
        let lock = Lock::new(shared.clone(), &names.join(" + "));
        Some(Lock { keys, together: Some(Arc::new(names)), ..lock })
    }

    /// A lock that cannot be acquired, and says why.
    pub(crate) fn of_nothing(shared: &Arc<EngineContext>) -> Lock {
        Lock { together: Some(Arc::default()), ..Lock::new(shared.clone(), "") }
    }

    /// What is to be locked, if its name works or all of its names do, and what is asked of several is
    /// possible.
    pub(super) fn resource(&self) -> Result<Resource, ConfigError> {
        let Some(names) = &self.together else { return Ok(Resource::share(&self.name)?) };
        let resource = Resource::together(names, &self.name)?;
        let refused = |option, reason| Err(ConfigError::Several { option, reason });
        if names.is_empty() || names.len() > MOST_RESOURCES {
            return Err(ConfigError::Resources { given: names.len(), most: MOST_RESOURCES });
        }
        if self.options.mode == Mode::Shared {
            return refused("shared", "those who share one would have to keep the others to themselves");
        }
        Ok(resource)
    }

    /// Has all nodes delete the counter of each of the locks.
    pub(super) async fn forget_each(&self) {
        let forgotten = self.keys.iter().map(async |key| {
            let request = |_| Some(Request::Forget { key: key.clone() });
            Round::start(&self.shared.nodes, Expect::AnyAnswer, self.options.ttl, request).settled().await;
        });
        join_all(forgotten).await;
    }

    /// Asks all nodes who holds each of the locks. The answers about the first that a quorum says is
    /// held, or else about the first that any node says is.
    pub(super) async fn inspect_each(&self) -> VoteReport {
        let reports = self.keys.iter().map(async |key| {
            let request = |_| Some(Request::Inspect { key: key.clone() });
            let round = Round::start(&self.shared.nodes, Expect::AnyAnswer, self.options.ttl, request);
            round.settled().await;
            if self.keys.are_several() { round.report().of(key) } else { round.report() }
        });
        let mut reports = join_all(reports).await;
        let held_at = |report: &VoteReport| report.holder().map_or(0, |holder| holder.nodes);
        let by_quorum = reports.iter().position(|report| held_at(report) >= report.quorum().needed());
        let told = by_quorum.or_else(|| reports.iter().position(|report| held_at(report) > 0));
        reports.swap_remove(told.unwrap_or_default())
    }
}
