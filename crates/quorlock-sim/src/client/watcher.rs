//! Observers: they see who leads, and do not campaign.

use std::sync::Arc;
use std::time::Duration;

use quorlock::{Coordinator, election::Observed, runtime::Clock as _};
use quorlock_testkit::SeededRng;

use crate::plan::{Plan, Twist};
use crate::record::{Recorder, Seen};
use crate::world::World;
use crate::world::clock::HostClock;

/// An observer of one election.
pub(crate) struct Watcher {
    pub(crate) world: Arc<World>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) coordinator: Coordinator,
    pub(crate) clock: HostClock,
    pub(crate) rng: SeededRng,
    pub(crate) client: usize,
    pub(crate) resource: usize,
}

impl Watcher {
    /// Watches until the end of the run.
    pub(crate) async fn run(self) {
        let key = self.plan.key(self.resource);
        let election = self.coordinator.election(&key);
        let Ok(mut observer) = election.observe() else { return };
        // A round in progress continues when its caller gives up.
        let mut asked = self.world.now();
        loop {
            let patience = self.pause(if self.rng.percent(20) {
                self.plan.distance * 8
            } else {
                Duration::from_secs(3600)
            });
            tokio::select! {
                biased;
                leader = observer.changed() => {
                    self.recorder.observed([self.client, self.resource], asked, seen(&leader).as_ref());
                    asked = self.world.now();
                }
                () = patience => {
                    if !self.recorder.is_peace() && self.rng.percent(20) {
                        let asked = self.world.now();
                        let seen = if self.plan.twist == Twist::Credulous {
                            self.credulous(&key).await
                        } else {
                            election.leader().await.ok().and_then(|leader| seen(&leader))
                        };
                        self.recorder.glanced([self.client, self.resource], asked, seen.as_ref());
                    }
                }
            }
        }
    }

    /// Believes the leader named by most of the nodes that answer, however few.
    async fn credulous(&self, key: &str) -> Option<Seen> {
        let report = self.coordinator.lock(key).inspect().await.ok()?;
        let holder = report.holder()?;
        Some(Seen { token: holder.token, fencing_token: holder.fencing_token.map(u64::from) })
    }

    async fn pause(&self, longest: Duration) {
        let until = self.clock.now() + self.rng.between(Duration::ZERO, longest);
        self.clock.sleep_until(until).await;
    }
}

fn seen(observed: &Observed) -> Option<Seen> {
    match observed {
        Observed::Leader(leader) => {
            let (token, fencing_token) = (leader.token.clone(), leader.fencing_token.map(u64::from));
            Some(Seen { token, fencing_token })
        }
        Observed::NoLeader | Observed::Unknown(_) => None,
    }
}
