//! What candidates do.

use std::time::Duration;

use quorlock::{Election, Leadership, Lease, LeaseWatch, Wait, protocol::Mode, runtime::Clock as _};

use super::{LONGEST_WAIT, Worker};
use crate::record::{Holding, Rule};

impl Worker {
    /// Campaigns, leads, and resigns, in one of many ways.
    pub(super) async fn campaign(&self, resource: usize) {
        let dice = &self.dice;
        let operation = self.recorder.asked(self.client, self.life, resource, Mode::Exclusive);
        let ttl = dice.between(self.plan.max_ttl / 4, self.plan.max_ttl);
        let forever = dice.percent(15);
        let mut election = self.election(resource).ttl(ttl);
        if !forever {
            election = election.wait(match dice.below(10) {
                0 => Wait::Never,
                _ => Wait::UpTo(dice.between(Duration::from_millis(1), LONGEST_WAIT)),
            });
        }
        if dice.percent(5) {
            election = election.max_hold(dice.between(ttl / 10, ttl * 2));
        }
        let value = format!("op{operation}");
        if dice.percent(15) {
            self.lead(&election, resource, operation, ttl).await;
        } else if let Some(leadership) =
            self.attempt(async { election.campaign(&value).await.map(Some) }, operation, forever).await
        {
            let watch = leadership.watch();
            let holding = self.recorder.granted([self.client, resource, operation], &watch, &self.clock);
            tokio::select! {
                biased;
                () = self.told(&holding, leadership.watch()) => {}
                () = self.hold(&holding, &watch, None::<&Lease>, ttl) => {}
            }
            self.resign(&holding, leadership).await;
        }
        self.recorder.over(operation);
    }

    fn election(&self, resource: usize) -> Election {
        self.coordinator.election(self.plan.key(resource))
    }

    /// Leads until work is done once in one leadership; gives up after a while.
    async fn lead(&self, election: &Election, resource: usize, operation: usize, ttl: Duration) {
        let mut times = 0;
        let leading = election.lead(format!("op{operation}"), |lease: LeaseWatch| {
            times += 1;
            // One operation is one leadership. The next one counts as another.
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
            () = self.rest(Duration::ZERO, LONGEST_WAIT) => self.recorder.given_up(),
        }
    }

    async fn resign(&self, holding: &Holding, leadership: Leadership) {
        holding.ended(false);
        match self.dice.below(10) {
            0 => drop(leadership),
            1 => {
                let soon = self.rest(Duration::ZERO, self.plan.distance * 4);
                tokio::select! {
                    biased;
                    resigned = leadership.resign() => drop(resigned),
                    () = soon => {}
                }
            }
            _ => drop(leadership.resign().await),
        }
    }

    /// Once nobody else wants to, all observers are told of whoever leads, and that it has gone.
    pub(super) async fn lead_for_all_to_see(&self, resource: usize) {
        let operation = self.recorder.asked(self.client, self.life, resource, Mode::Exclusive);
        let election = self.election(resource).wait(Wait::UpTo(self.bound()));
        match election.campaign(format!("op{operation}")).await {
            Ok(leadership) => {
                let watch = leadership.watch();
                let holding = self.recorder.granted([self.client, resource, operation], &watch, &self.clock);
                self.until_told(resource, Some(operation)).await;
                holding.confirmed(&watch);
                holding.ended(false);
                drop(leadership.resign().await);
                self.until_told(resource, None).await;
            }
            Err(error) => {
                self.recorder.find(Rule::Liveness, format!("nobody can lead e{resource} in peace: {error}"));
            }
        }
        self.recorder.over(operation);
    }

    async fn until_told(&self, resource: usize, leader: Option<usize>) {
        // A connection may have to be given up first: here, no kernel asks whether the other end is there.
        let bound = self.bound();
        let until = self.clock.now() + bound;
        while !self.recorder.all_were_told(resource, leader) {
            if self.clock.now() > until {
                let text = format!(
                    "not every observer of e{resource} was told within {bound:?} that its leader is {leader:?}"
                );
                return self.recorder.find(Rule::Observing, text);
            }
            self.rest(Duration::from_millis(10), Duration::from_millis(10)).await;
        }
    }
}
