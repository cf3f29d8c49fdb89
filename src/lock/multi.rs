//! Several resources that are locked together.

use std::sync::Arc;

use futures::future::join_all;

use super::{Lock, Multi};
use crate::engine::context::EngineContext;
use crate::error::ConfigError;
use crate::lease::Fenced;
use crate::node::Request;
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::votes::VoteReport;
use quorlock_protocol::{Keys, MOST_RESOURCES, Resource};

/// A lock of several resources, acquired as one: see
/// [`Coordinator::lock_all`](crate::Coordinator::lock_all).
///
/// It has the options and calls of a [`Lock`], but for `shared`, `handoff`, `until_free`, `log` and
/// `validate_retention`, and on its lease `downgrade` and `retain`, which do not work on several resources.
///
/// ```compile_fail,E0599
/// # let coordinator = quorlock::Coordinator::builder().nodes(["a", "b", "c"]).build().unwrap();
/// coordinator.lock_all(["accounts/1", "accounts/2"]).shared();
/// ```
///
/// ```compile_fail,E0599
/// # let coordinator = quorlock::Coordinator::builder().nodes(["a", "b", "c"]).build().unwrap();
/// coordinator.lock_all(["accounts/1", "accounts/2"]).handoff(quorlock::Handoff::default());
/// ```
pub type MultiLock<F = Fenced> = Lock<Multi, F>;

impl MultiLock {
    /// A lock of all of `names`, each counted once. One name alone is locked in `single`, as a plain lock of
    /// that name; several are locked in `together`, which has queues of its own.
    pub(crate) fn of(
        single: &Arc<EngineContext>,
        together: &Arc<EngineContext>,
        mut names: Vec<Arc<str>>,
    ) -> MultiLock {
        names.sort_unstable();
        names.dedup();
        let keys = Keys::several(names.iter().map(|name| together.key(name)).collect());
        let joined: Arc<str> = names.join(" + ").into();
        if let Some(keys) = keys.filter(Keys::are_several) {
            return Lock::of_keys(together.clone(), joined, keys, Some(Arc::new(names)));
        }
        // No name at all is refused when the lock is used.
        let empty = names.is_empty().then(Arc::default);
        let keys = Keys::one(single.key(&joined));
        Lock::of_keys(single.clone(), joined, keys, empty)
    }
}

impl<K, F> Lock<K, F> {
    /// The resource, if its name or all of its names can work.
    pub(super) fn resource(&self) -> Result<Resource, ConfigError> {
        let Some(names) = &self.together else { return Ok(Resource::share(&self.name)?) };
        let resource = Resource::together(names, &self.name)?;
        if names.is_empty() || names.len() > MOST_RESOURCES {
            return Err(ConfigError::Resources { given: names.len(), most: MOST_RESOURCES });
        }
        Ok(resource)
    }

    /// Asks all nodes who holds each resource. Returns the votes about the first resource that a quorum says is
    /// held, else about the first that any node says is held.
    pub(super) async fn inspect_each(&self) -> VoteReport {
        let reports = self.keys.iter().map(async |key| {
            let prefix_len = self.engine.key_prefix.len();
            let request = |_| Some(Request::Inspect { key: key.clone(), prefix_len });
            let round = Round::start(&self.engine.nodes, Expect::Holder, self.options.ttl, request);
            round.settled().await;
            if self.keys.are_several() { round.report().of(key) } else { round.report() }
        });
        let mut reports = join_all(reports).await;
        let held_at = |report: &VoteReport| report.holder().map_or(0, |holder| holder.nodes);
        let by_quorum = reports.iter().position(|report| held_at(report) >= report.quorum().needed());
        let shown = by_quorum.or_else(|| reports.iter().position(|report| held_at(report) > 0));
        reports.swap_remove(shown.unwrap_or_default())
    }
}
