//! What clients do with semaphores.

use std::time::Duration;

use quorlock::{Lease, Permit, PermitError, Renewal, Semaphore, Wait, protocol::Mode, runtime::Clock as _};

use super::{LONGEST_WAIT, Worker};
use crate::plan::{Permits, Plan, Twist};
use crate::record::Rule;

impl Worker {
    /// Acquires a permit, holds it and releases it, in one of many ways.
    pub(super) async fn permit(&self, semaphore: usize) {
        let rng = &self.rng;
        let Permits { right, wrong } = self.plan.permits[semaphore];
        let permits = wrong.filter(|_| rng.percent(20)).unwrap_or(right);
        let operation = self.recorder.asked_for_one(self.client, self.life, semaphore, permits);
        let ttl = rng.between(self.plan.max_ttl / 4, self.plan.max_ttl);
        let wait = match rng.below(10) {
            0 => Wait::Never,
            1 => Wait::Forever,
            _ => Wait::UpTo(rng.between(Duration::from_millis(1), LONGEST_WAIT)),
        };
        let mut wanted = self.semaphore(semaphore, operation, permits).ttl(ttl).wait(wait);
        let manual = rng.percent(25);
        if manual {
            wanted = wanted.renewal(Renewal::Manual);
        }
        if rng.percent(5) {
            wanted = wanted.max_hold(rng.between(ttl / 10, ttl * 2));
        }
        let attempt = async {
            if self.plan.twist == Twist::LimitIgnored && permits != right {
                return self.uncompared(semaphore, operation, permits).await;
            }
            let permit =
                if rng.percent(15) { wanted.try_acquire().await? } else { Some(wanted.acquire().await?) };
            Ok(permit.map(|permit| {
                let number = permit.number();
                (number, permit.into_lease())
            }))
        };
        let forever = wait == Wait::Forever;
        if let Some((number, lease)) = self.attempt(attempt, operation, forever).await {
            let slot = Plan::slot(semaphore, number);
            let watch = lease.watch();
            let holding = self.recorder.granted([self.client, slot, operation], &watch, &self.clock);
            tokio::select! {
                biased;
                () = self.until_lost(&holding, lease.watch()) => {}
                () = self.hold(&holding, &watch, manual.then_some(&lease), ttl) => {}
            }
            self.let_go(holding, lease, ttl, manual).await;
        }
        self.recorder.over(operation);
    }

    fn semaphore(&self, semaphore: usize, operation: usize, permits: usize) -> Semaphore {
        self.coordinator.semaphore(format!("s{semaphore}"), permits).label(&format!("op{operation}"))
    }

    /// Acquires a permit without comparing the number of permits: only its lock.
    async fn uncompared(
        &self,
        semaphore: usize,
        operation: usize,
        permits: usize,
    ) -> Result<Option<(usize, Lease)>, PermitError> {
        let number = self.rng.below(permits);
        let lock = self.lock(Plan::slot(semaphore, number), operation, Mode::Exclusive);
        // Any error will do: the answer is unknown.
        let lease = lock.try_acquire().await.map_err(|_| PermitError::Closed)?;
        Ok(lease.map(|lease| (number, lease)))
    }

    /// Without faults every client gets a permit.
    pub(super) async fn last_permit(&self, semaphore: usize) {
        let Some((permit, operation)) = self.get(semaphore).await else { return };
        let slot = Plan::slot(semaphore, permit.number());
        let ids = [self.client, slot, operation];
        let holding = self.recorder.granted(ids, &permit.watch(), &self.clock);
        self.pause(Duration::ZERO, Duration::from_millis(5)).await;
        holding.ended(false);
        drop(permit.release().await);
        self.recorder.over(operation);
    }

    /// Acquires a permit within a bounded time. The wrong number of permits may be stored until then.
    async fn get(&self, semaphore: usize) -> Option<(Permit, usize)> {
        let permits = self.plan.permits[semaphore].right;
        let until = self.clock.now() + self.bound();
        loop {
            let operation = self.recorder.asked_for_one(self.client, self.life, semaphore, permits);
            let wanted = self.semaphore(semaphore, operation, permits).wait(Wait::UpTo(self.bound()));
            match wanted.acquire().await {
                Ok(permit) => return Some((permit, operation)),
                Err(PermitError::Misconfigured { .. } | PermitError::OtherPermits { .. })
                    if self.clock.now() < until =>
                {
                    self.recorder.over(operation);
                    self.pause(Duration::from_millis(100), Duration::from_millis(200)).await;
                }
                Err(error) => {
                    let bound = self.bound();
                    let text = format!(
                        "client {} got no permit of s{semaphore} within {bound:?} without faults: {error}",
                        self.client
                    );
                    self.recorder.find(Rule::Liveness, text);
                    self.recorder.over(operation);
                    return None;
                }
            }
        }
    }

    /// Without other clients, all permits can be held at the same time, but not one more.
    pub(super) async fn fill(&self, semaphore: usize) {
        let permits = self.plan.permits[semaphore].right;
        let mut held = Vec::new();
        while held.len() < permits {
            let Some((permit, operation)) = self.get(semaphore).await else { return };
            let slot = Plan::slot(semaphore, permit.number());
            let ids = [self.client, slot, operation];
            held.push((self.recorder.granted(ids, &permit.watch(), &self.clock), permit, operation));
        }
        let operation = self.recorder.asked_for_one(self.client, self.life, semaphore, permits);
        match self.semaphore(semaphore, operation, permits).wait(Wait::Never).acquire().await {
            Err(PermitError::Full { holders, .. }) if holders.iter().all(Option::is_some) => {}
            other => {
                let text = format!(
                    "with all {permits} permits of s{semaphore} held, one more attempt returned {other:?}"
                );
                self.recorder.find(Rule::Permits, text);
            }
        }
        self.recorder.over(operation);
        for (holding, permit, operation) in held {
            holding.confirmed(&permit.watch());
            holding.ended(false);
            drop(permit.release().await);
            self.recorder.over(operation);
        }
    }
}
