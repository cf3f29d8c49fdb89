//! What candidates do.

use std::time::Duration;

use quorlock::{Election, Leadership, Lease, LeaseWatch, Wait, protocol::Mode, runtime::Clock as _};

use super::{LONGEST_WAIT, Worker};
use crate::record::{Holding, Rule};

impl Worker {
    /// Campaigns, leads and resigns, in one of many ways.
    pub(super) async fn campaign(&self, resource: usize) {
        let rng = &self.rng;
        let operation = self.recorder.asked(self.client, self.life, resource, Mode::Exclusive);
        let ttl = rng.between(self.plan.max_ttl / 4, self.plan.max_ttl);
        let forever = rng.percent(15);
        let mut election = self.election(resource).ttl(ttl);
        if !forever {
            election = election.wait(match rng.below(10) {
                0 => Wait::Never,
                _ => Wait::UpTo(rng.between(Duration::from_millis(1), LONGEST_WAIT)),
            });
        }
        if rng.percent(5) {
            election = election.max_hold(rng.between(ttl / 10, ttl * 2));
        }
        let value = format!("op{operation}");
        if rng.percent(15) {
            self.lead(&election, resource, operation, ttl).await;
        } else if let Some(leadership) =
            self.attempt(async { election.campaign(&value).await.map(Some) }, operation, forever).await
        {
            let watch = leadership.watch();
            let holding = self.recorder.granted([self.client, resource, operation], &watch, &self.clock);
            tokio::select! {
                biased;
                () = self.until_lost(&holding, leadership.watch()) => {}
                () = self.hold(&holding, &watch, None::<&Lease>, ttl) => {}
            }
            self.resign(&holding, leadership).await;
        }
        self.recorder.over(operation);
    }

    fn election(&self, resource: usize) -> Election {
        self.coordinator.election(self.plan.key(resource))
    }

    /// Leads until the work is done once within one leadership; gives up after a while.
    async fn lead(&self, election: &Election, resource: usize, operation: usize, ttl: Duration) {
        let mut times = 0;
        let leading = election.lead(format!("op{operation}"), |lease: LeaseWatch| {
            times += 1;
            // Each leadership is one operation of the record.
            let operation = if times == 1 {
                operation
            } else {
                self.recorder.asked(self.client, self.life, resource, Mode::Exclusive)
            };
            async move {
                let holding = self.recorder.granted([self.client, resource, operation], &lease, &self.clock);
                self.hold(&holding, &lease, None::<&Lease>, ttl).await;
                holding.ended(false);
            }
        });
        tokio::select! {
            biased;
            outcome = leading => if outcome.is_err() { self.recorder.refused(true) },
            () = self.pause(Duration::ZERO, LONGEST_WAIT) => self.recorder.given_up(),
        }
    }

    async fn resign(&self, holding: &Holding, leadership: Leadership) {
        holding.ended(false);
        match self.rng.below(10) {
            0 => drop(leadership),
            1 => {
                let soon = self.pause(Duration::ZERO, self.plan.distance * 4);
                tokio::select! {
                    biased;
                    resigned = leadership.resign() => drop(resigned),
                    () = soon => {}
                }
            }
            _ => drop(leadership.resign().await),
        }
    }

    /// Without other candidates, all observers see the leader and then that it has resigned.
    pub(super) async fn lead_for_all_to_see(&self, resource: usize) {
        let operation = self.recorder.asked(self.client, self.life, resource, Mode::Exclusive);
        let election = self.election(resource).wait(Wait::UpTo(self.bound()));
        match election.campaign(format!("op{operation}")).await {
            Ok(leadership) => {
                let watch = leadership.watch();
                let holding = self.recorder.granted([self.client, resource, operation], &watch, &self.clock);
                self.until_notified(resource, Some(operation)).await;
                holding.confirmed(&watch);
                holding.ended(false);
                drop(leadership.resign().await);
                self.until_notified(resource, None).await;
            }
            Err(error) => {
                self.recorder
                    .find(Rule::Liveness, format!("no client can lead e{resource} without faults: {error}"));
            }
        }
        self.recorder.over(operation);
    }

    async fn until_notified(&self, resource: usize, leader: Option<usize>) {
        // A connection may have to time out first: the simulated kernel has no keepalive.
        let bound = self.bound();
        let until = self.clock.now() + bound;
        while !self.recorder.all_have_seen(resource, leader) {
            if self.clock.now() > until {
                let text =
                    format!("not every observer of e{resource} saw its leader {leader:?} within {bound:?}");
                return self.recorder.find(Rule::Observing, text);
            }
            self.pause(Duration::from_millis(10), Duration::from_millis(10)).await;
        }
    }
}
