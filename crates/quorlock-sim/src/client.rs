//! A client: several tasks that acquire locks in every way the library offers.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quorlock::{
    AcquireError, Coordinator, Handoff, Lease, LeaseWatch, Lock, MultiLease, MultiLock, Owner, PermitError,
    Renewal, Wait, WithError,
    lock::{Multi, Single},
    protocol::Mode,
    runtime::Clock,
};

use quorlock_testkit::SeededRng;

use crate::plan::{Plan, Subject};
use crate::record::{Holding, Recorder, Rule};
use crate::world::clock::HostClock;
use crate::world::{Host, World, nanos};

/// One task of a client.
pub(crate) struct Worker {
    pub(crate) world: Arc<World>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) coordinator: Coordinator,
    pub(crate) clock: HostClock,
    pub(crate) rng: SeededRng,
    pub(crate) host: Host,
    pub(crate) client: usize,
    pub(crate) life: u32,
    /// Whether it is the worker that fills semaphores at the end, or leads while all observers watch.
    pub(crate) is_first: bool,
}

pub(crate) use watcher::Watcher;

mod campaign;
mod permits;
mod watcher;

/// The longest bounded wait for a lock.
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// Timers stop during a suspend. Within this time afterwards the library checks the clock
/// regardless of its timers.
const NOTICED: Duration = Duration::from_millis(1_020);

impl Worker {
    /// Acquires locks until the faults end, and then each of them once more.
    pub(crate) async fn run(self) {
        while !self.recorder.is_peace() {
            self.pause(Duration::ZERO, Duration::from_millis(400)).await;
            let resource = self.rng.below(self.plan.resources);
            match self.plan.subject {
                Subject::Locks => self.operation(resource, true).await,
                Subject::Semaphores => self.permit(resource).await,
                Subject::Elections => self.campaign(resource).await,
            }
        }
        for resource in 0..self.plan.resources {
            match self.plan.subject {
                Subject::Locks | Subject::Elections => self.last(resource).await,
                Subject::Semaphores => self.last_permit(resource).await,
            }
        }
        if self.is_first {
            self.wait_for_the_others().await;
            for resource in 0..self.plan.resources {
                match self.plan.subject {
                    Subject::Locks => {}
                    Subject::Semaphores => self.fill(resource).await,
                    Subject::Elections => self.lead_for_all_to_see(resource).await,
                }
            }
        }
        self.recorder.is_content();
    }

    async fn wait_for_the_others(&self) {
        let others = self.plan.clients * self.plan.workers - 1;
        while self.recorder.content() < others {
            self.pause(Duration::from_millis(10), Duration::from_millis(10)).await;
        }
    }

    /// Without faults every client gets the lock within a bounded time: the longest lock of a
    /// crashed client, a quarantine, reconnecting, and all other waiters.
    async fn last(&self, resource: usize) {
        let bound = self.bound();
        let mode = self.mode(if self.plan.subject == Subject::Locks { 50 } else { 0 });
        let operation = self.recorder.asked(self.client, self.life, resource, mode);
        let lock = self.lock(resource, operation, mode).wait(Wait::UpTo(bound));
        match lock.acquire().await {
            Ok(lease) => {
                let holding =
                    self.recorder.granted([self.client, resource, operation], &lease.watch(), &self.clock);
                self.pause(Duration::ZERO, Duration::from_millis(5)).await;
                holding.ended(false);
                drop(lease.release().await);
            }
            Err(error) => {
                let text = format!(
                    "client {} did not get {} within {bound:?} without faults: {error}",
                    self.client,
                    self.plan.key(resource)
                );
                self.recorder.find(Rule::Liveness, text);
            }
        }
        self.recorder.over(operation);
    }

    /// Each of the others may have the lock before, for two TTLs.
    fn bound(&self) -> Duration {
        let others = u32::try_from(self.plan.clients * self.plan.workers).unwrap_or(u32::MAX);
        self.plan.max_ttl * (4 + 2 * others) + Duration::from_secs(40)
    }

    fn lock(&self, resource: usize, operation: usize, mode: Mode) -> Lock {
        let lock = self.coordinator.lock(self.plan.key(resource)).label(&format!("op{operation}"));
        match mode {
            Mode::Exclusive => lock,
            Mode::Shared => lock.shared(),
        }
    }

    fn lock_all(&self, resource: usize, also: &[usize], operation: usize) -> MultiLock {
        let resources = also.iter().chain([&resource]).map(|resource| self.plan.key(*resource));
        self.coordinator.lock_all(resources).label(&format!("op{operation}"))
    }

    /// Picks further resources for a writer to lock together with this one. Only later ones, so
    /// that holders that acquire more cannot deadlock.
    fn also(&self, resource: usize, mode: Mode) -> Vec<usize> {
        let others = resource + 1..self.plan.resources;
        if mode == Mode::Shared || others.is_empty() || !self.rng.percent(40) {
            return Vec::new();
        }
        let rest = others.clone().filter(|_| self.rng.percent(50)).collect::<Vec<_>>();
        if rest.is_empty() { vec![others.start] } else { rest }
    }

    /// Picks the mode: shared with a probability of `readers` percent.
    fn mode(&self, readers: u64) -> Mode {
        if self.rng.percent(readers) { Mode::Shared } else { Mode::Exclusive }
    }

    /// Acquires a lock, holds it and releases it, in one of many ways.
    fn operation(&self, resource: usize, may_nest: bool) -> BoxFuture<'_, ()> {
        Box::pin(self.operate(resource, may_nest))
    }

    async fn operate(&self, resource: usize, may_nest: bool) {
        let rng = &self.rng;
        let mode = self.mode(if self.plan.readers { 60 } else { 15 });
        let operation = self.recorder.asked(self.client, self.life, resource, mode);
        let also = self.also(resource, mode);
        for other in &also {
            self.recorder.also(operation, *other);
        }
        if also.is_empty() {
            let mut lock = self.lock(resource, operation, mode);
            if rng.percent(10) {
                lock = lock.handoff(Handoff::times(u32::try_from(rng.below(3)).unwrap_or(0)));
            }
            self.operate_with(lock, resource, operation, mode, may_nest).await;
        } else {
            let lock = self.lock_all(resource, &also, operation);
            self.operate_with(lock, resource, operation, mode, false).await;
        }
        self.recorder.over(operation);
    }

    async fn operate_with<K: Kind>(
        &self,
        lock: Lock<K>,
        resource: usize,
        operation: usize,
        mode: Mode,
        may_nest: bool,
    ) {
        let rng = &self.rng;
        let ttl = rng.between(self.plan.max_ttl / 4, self.plan.max_ttl);
        let mut lock = lock.ttl(ttl).wait(match rng.below(10) {
            0 => Wait::Never,
            1 => Wait::Forever,
            _ => Wait::UpTo(rng.between(Duration::from_millis(1), LONGEST_WAIT)),
        });
        let manual = rng.percent(25);
        if manual {
            lock = lock.renewal(Renewal::Manual);
        } else if rng.percent(20) {
            lock = lock.renewal(Renewal::Every(rng.between(ttl / 20, ttl / 2)));
        }
        if rng.percent(5) {
            lock = lock.max_hold(rng.between(ttl / 10, ttl * 2));
        }
        let owner = Owner::new();
        let reentrant = rng.percent(10);
        if reentrant {
            lock = lock.owner(&owner);
        }
        if rng.percent(10) {
            self.with(&lock, resource, operation, ttl).await;
        } else if let Some(lease) = self.acquire(&lock, operation).await {
            let holding =
                self.recorder.granted([self.client, resource, operation], &lease.watch(), &self.clock);
            // Polled together with the work: once notified of a loss, the holder has left.
            let until_lost = self.until_lost(&holding, lease.watch());
            let work = async {
                self.hold(&holding, &lease.watch(), manual.then_some(&lease), ttl).await;
                if reentrant {
                    self.enter_again(&lock, &lease).await;
                }
                if may_nest && resource + 1 < self.plan.resources && rng.percent(30) {
                    self.operation(resource + 1, false).await;
                    holding.confirmed(&lease.watch());
                }
            };
            tokio::select! {
                biased;
                () = until_lost => {}
                () = work => {}
            }
            let writes = mode == Mode::Exclusive && !holding.has_ended();
            let lease = if writes && !reentrant && rng.percent(25) {
                K::read_on(self, &holding, lease, ttl, manual).await
            } else {
                Some(lease)
            };
            if let Some(lease) = lease {
                self.let_go(holding, lease, ttl, manual).await;
            }
        }
    }

    async fn acquire<K>(&self, lock: &Lock<K>, operation: usize) -> Option<Lease<K>> {
        let forever = format!("{lock:?}").contains("Forever");
        let attempt = async {
            if self.rng.percent(15) { lock.try_acquire().await } else { lock.acquire().await.map(Some) }
        };
        self.attempt(attempt, operation, forever).await
    }

    /// Awaits the result of an attempt, unless it is cancelled first.
    async fn attempt<T, E: Refusal>(
        &self,
        attempt: impl Future<Output = Result<Option<T>, E>>,
        operation: usize,
        forever: bool,
    ) -> Option<T> {
        let started = self.world.now();
        let outcome = if self.rng.percent(15) {
            // A caller that gives up, at any point.
            let soon = if self.rng.percent(50) { self.plan.distance * 8 } else { Duration::from_secs(2) };
            let patience = self.pause(Duration::ZERO, soon);
            tokio::select! {
                biased;
                outcome = attempt => Some(outcome),
                () = patience => None,
            }
        } else {
            Some(attempt.await)
        };
        match outcome {
            Some(Ok(Some(lease))) => return Some(lease),
            Some(Ok(None)) => self.recorder.refused(true),
            Some(Err(error)) => self.recorder.refused(error.is_held()),
            None => self.recorder.given_up(),
        }
        // A process that was stopped in the meantime is excused, and so is one that waits indefinitely.
        let stopped = self.world.with(|inside, _| inside.hosts[self.host].stopped_last);
        let longest = LONGEST_WAIT + self.plan.max_ttl / 5 + Duration::from_secs(2);
        let took = self.world.now() - started;
        if started > stopped && took > nanos(longest) && !forever {
            let text = format!(
                "client {} waited {:?} (op{operation}), longer than the maximum of {longest:?}",
                self.client,
                Duration::from_nanos(took)
            );
            self.recorder.find(Rule::Patience, text);
        }
        None
    }

    async fn with<K>(&self, lock: &Lock<K>, resource: usize, operation: usize, ttl: Duration) {
        let outcome = lock
            .with(|lease: LeaseWatch| async move {
                // The work has a watch but no lease; the record identifies it by its token.
                let holding = self.recorder.granted([self.client, resource, operation], &lease, &self.clock);
                let mut left = self.for_how_long(ttl);
                while !left.is_zero() {
                    let step = self.step(ttl).min(left);
                    left -= step;
                    self.pause(step, step).await;
                    holding.confirmed(&lease);
                }
                holding.ended(false);
                Ok::<_, WithError>(())
            })
            .await;
        match outcome {
            Ok(()) | Err(WithError::Lost(_)) => {}
            Err(WithError::Acquire(AcquireError::Contended { .. })) => self.recorder.refused(true),
            Err(_) => self.recorder.refused(false),
        }
    }

    /// Works for a while and checks the lease before each step.
    async fn hold<K>(
        &self,
        holding: &Holding,
        lease: &LeaseWatch,
        renewed_by: Option<&Lease<K>>,
        ttl: Duration,
    ) {
        let mut left = self.for_how_long(ttl);
        while !left.is_zero() {
            let step = self.step(ttl).min(left);
            left -= step;
            self.pause(step, step).await;
            if lease.check().is_err() {
                // Notified here. After a suspend this may be the first notice.
                holding.ended(true);
                return;
            }
            holding.confirmed(lease);
            if let Some(renewed_by) = renewed_by
                && self.rng.percent(30)
                && renewed_by.renew().await.is_ok()
            {
                holding.confirmed(lease);
            }
        }
    }

    /// Downgrades the lease and continues as a reader.
    async fn read_on(&self, holding: &Holding, lease: Lease, ttl: Duration, manual: bool) -> Option<Lease> {
        holding.shared();
        let Ok(lease) = lease.downgrade().await else {
            holding.ended(true);
            return None;
        };
        holding.confirmed(&lease.watch());
        let (until_lost, watch) = (self.until_lost(holding, lease.watch()), lease.watch());
        tokio::select! {
            biased;
            () = until_lost => {}
            () = self.hold(holding, &watch, manual.then_some(&lease), ttl) => {}
        }
        Some(lease)
    }

    async fn enter_again<K>(&self, lock: &Lock<K>, outer: &Lease<K>) {
        if let Ok(Some(inner)) = lock.try_acquire().await {
            // If the outer lease was just lost, the inner one is new.
            if inner.token() != outer.token() && outer.check().is_ok() {
                self.recorder.find(Rule::Exclusion, "an owner got two leases of one lock".to_owned());
            }
            if self.rng.percent(50) {
                drop(inner.release().await);
            }
        }
    }

    async fn let_go<K>(&self, holding: Holding, lease: Lease<K>, ttl: Duration, manual: bool) {
        match self.rng.below(20) {
            0 | 1 => {
                holding.ended(false);
                drop(lease);
            }
            2 | 3 => {
                holding.ended(false);
                let soon = self.pause(Duration::ZERO, self.plan.distance * 4);
                tokio::select! {
                    biased;
                    released = lease.release() => drop(released),
                    () = soon => {}
                }
            }
            // Leaked until it expires.
            4 if manual => {
                tokio::select! {
                    biased;
                    () = self.until_lost(&holding, lease.watch()) => {}
                    () = self.pause(ttl * 2, ttl * 2) => {}
                }
                holding.ended(false);
            }
            _ => {
                holding.ended(false);
                drop(lease.release().await);
            }
        }
    }

    /// Completes when the loss is reported. An exact timer checks that this is in time; it stops
    /// with the library's timers during a suspend.
    async fn until_lost(&self, holding: &Holding, lease: LeaseWatch) {
        let exact = self.clock.exact();
        let mut lost = std::pin::pin!(lease.lost());
        let mut left = lease.remaining();
        // A check right after a suspend may report the loss before the notification does.
        while !left.is_zero() && !holding.has_ended() {
            let end = exact.sleep_until(exact.now() + left);
            tokio::select! {
                biased;
                _ = &mut lost => break,
                () = end => {}
            }
            left = lease.remaining();
            let (awake, now) =
                self.world.with(|inside, now| (inside.hosts[self.host].stopped_last + nanos(NOTICED), now));
            if left.is_zero() && !holding.has_ended() && now > awake {
                holding.not_notified();
            }
        }
        holding.ended(true);
    }

    fn for_how_long(&self, ttl: Duration) -> Duration {
        match self.rng.below(10) {
            0..=5 => self.rng.between(Duration::ZERO, Duration::from_millis(300)),
            6..=8 => self.rng.between(Duration::ZERO, ttl),
            _ => self.rng.between(ttl, ttl * 2),
        }
    }

    fn step(&self, ttl: Duration) -> Duration {
        self.rng.between(Duration::from_millis(1), (ttl / 10).max(Duration::from_millis(2)))
    }

    fn pause(&self, least: Duration, most: Duration) -> impl Future<Output = ()> + use<> {
        let until = self.clock.now() + self.rng.between(least, most);
        self.clock.sleep_until(until)
    }
}

/// What a client does with a lock of one resource, and not with one of several.
trait Kind: Sized + Send + Sync + 'static {
    /// Downgrades, and reads on. Returns the lease, unless it is over.
    fn read_on(
        client: &Worker,
        holding: &Holding,
        lease: Lease<Self>,
        ttl: Duration,
        manual: bool,
    ) -> impl Future<Output = Option<Lease<Self>>> + Send;
}

impl Kind for Single {
    async fn read_on(
        client: &Worker,
        holding: &Holding,
        lease: Lease,
        ttl: Duration,
        manual: bool,
    ) -> Option<Lease> {
        client.read_on(holding, lease, ttl, manual).await
    }
}

impl Kind for Multi {
    async fn read_on(_: &Worker, _: &Holding, lease: MultiLease, _: Duration, _: bool) -> Option<MultiLease> {
        Some(lease)
    }
}

/// Why nothing was acquired.
trait Refusal {
    /// Other clients held it.
    fn is_held(&self) -> bool;
}

impl Refusal for AcquireError {
    fn is_held(&self) -> bool {
        matches!(self, AcquireError::Contended { .. })
    }
}

impl Refusal for PermitError {
    fn is_held(&self) -> bool {
        matches!(self, PermitError::Full { .. })
    }
}
