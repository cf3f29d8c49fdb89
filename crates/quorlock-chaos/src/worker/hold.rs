//! One attempt to acquire a lock, and the resulting lease, both written to the record.

use std::sync::Arc;
use std::time::Duration;
use std::{io, mem};

use quorlock::protocol::Moment;
use quorlock::runtime::Mutex;
use quorlock::{
    Lost, Wait,
    runtime::{Clock as _, SystemClock},
};
use quorlock_history::{Stamp, Token, What};
use tokio::task::AbortHandle;

use super::Worker;
use super::wanted::{Held, LeaseWatch, Wanted};
use crate::record::{of, stamp};

/// How often a holder writes to the register.
const WRITES_EVERY: Duration = Duration::from_millis(40);
/// How often the lease is checked for a renewal, for the record.
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// A smaller change of the deadline is no renewal, but the inaccuracy of reading the time.
const MOVED: Duration = Duration::from_millis(5);

/// Longer than any wait that is cancelled by dropping the future.
const ENOUGH: Duration = Duration::from_secs(30);

/// An attempt to acquire a lock.
pub(super) struct Attempt {
    worker: Arc<Worker>,
    /// The index of the contended lock; `None` for the own one.
    number: Option<usize>,
    resource: String,
    name: String,
    wanted: Wanted,
    shares: bool,
    /// Further contended locks to acquire in the same call.
    also: Vec<usize>,
    /// The number of permits, for a semaphore.
    one_of: Option<usize>,
}

impl Attempt {
    /// Returns an attempt at a contended lock.
    pub(super) fn at(worker: &Arc<Worker>, number: usize) -> Attempt {
        let resource = worker.orders.locks.get(number).cloned().unwrap_or_default();
        Attempt::new(worker, Some(number), resource)
    }

    /// Returns an attempt at the worker's uncontended lock.
    pub(super) fn at_own(worker: &Arc<Worker>) -> Attempt {
        Attempt::new(worker, None, worker.orders.own_lock.clone())
    }

    /// Returns an attempt at a permit, of a semaphore configured with `more` permits than others have.
    pub(super) fn at_permit(worker: &Arc<Worker>, number: usize, more: usize) -> Attempt {
        let (resource, permits) = worker.orders.semaphores.get(number).cloned().unwrap_or_default();
        let permits = permits + more;
        let mut attempt = Attempt::new(worker, None, resource);
        let semaphore = worker.coordinator.semaphore(&attempt.resource, permits).label(&attempt.name);
        attempt.wanted = Wanted::Permit(semaphore.fencing(worker.orders.fencing()));
        attempt.one_of = Some(permits);
        attempt
    }

    /// Returns an attempt to lead an election.
    pub(super) fn at_lead(worker: &Arc<Worker>, number: usize) -> Attempt {
        let resource = worker.orders.elections.get(number).cloned().unwrap_or_default();
        let mut attempt = Attempt::new(worker, None, resource);
        let election = worker.coordinator.election(&attempt.resource);
        attempt.wanted = Wanted::Lead(election, attempt.name.clone());
        attempt
    }

    fn new(worker: &Arc<Worker>, number: Option<usize>, resource: String) -> Attempt {
        let count = worker.counts.attempts.add();
        // No spaces: the value of a key ends with the name, and the register splits its requests at spaces.
        let name = format!("{}.{}-{count}", worker.orders.name, worker.orders.life);
        let lock = worker.coordinator.lock(&resource).label(&name);
        let wanted = Wanted::Lock(lock.fencing(worker.orders.fencing()));
        let worker = worker.clone();
        Attempt { worker, number, resource, name, wanted, shares: false, also: Vec::new(), one_of: None }
    }

    /// Makes it an attempt to share the lock.
    pub(super) fn sharing(mut self) -> Attempt {
        (self.wanted, self.shares) = (self.wanted.shared(), true);
        self
    }

    /// Makes it an attempt to acquire these locks too, all or none. Duplicates are ignored.
    pub(super) fn and(mut self, others: &[usize]) -> Attempt {
        for other in others {
            if Some(*other) != self.number && !self.also.contains(other) {
                self.also.push(*other);
            }
        }
        let names = self.names().map(str::to_owned).collect::<Vec<_>>();
        let lock = self.worker.coordinator.lock_all(names).label(&self.name);
        self.wanted = Wanted::Several(lock.fencing(self.worker.orders.fencing()));
        self
    }

    /// Returns the names of the locks.
    fn names(&self) -> impl Iterator<Item = &str> {
        let also = self.also.iter().filter_map(|number| self.worker.orders.locks.get(*number));
        also.map(String::as_str).chain([self.resource.as_str()])
    }

    /// Acquires as `wait` says.
    pub(super) async fn acquire(self, wait: Wait) -> Option<Holding> {
        let invoked = self.invoke();
        let held = self.wanted.acquire(wait).await.ok();
        self.settle(invoked, held)
    }

    /// Cancels the attempt after `patience` by dropping the future.
    pub(super) async fn acquire_for(self, patience: Duration) -> Option<Holding> {
        let clock = SystemClock::default();
        let invoked = self.invoke();
        let held = tokio::select! {
            held = self.wanted.acquire(Wait::UpTo(ENOUGH)) => held.ok(),
            () = clock.sleep_until(clock.now() + patience) => None,
        };
        self.settle(invoked, held)
    }

    fn invoke(&self) -> Stamp {
        let invoked = stamp();
        let (client, resource) = (self.worker.orders.name.as_str().into(), self.resource.as_str().into());
        let attempt = || self.name.as_str().into();
        let record = |what| self.worker.recorder.record_at(invoked, what);
        record(What::Invoked { client, resource, attempt: attempt() });
        for also in self.also.iter().filter_map(|number| self.worker.orders.locks.get(*number)) {
            record(What::Wants { attempt: attempt(), resource: also.as_str().into() });
        }
        if self.shares {
            record(What::Shares { attempt: attempt() });
        }
        if let Some(permits) = self.one_of {
            record(What::OneOf { attempt: attempt(), permits });
        }
        invoked
    }

    fn settle(self, invoked: Stamp, held: Option<Held>) -> Option<Holding> {
        let Some(held) = held else {
            self.worker.counts.not_acquired.add();
            self.worker.recorder.record(What::NotAcquired { attempt: self.name.as_str().into() });
            return None;
        };
        let watch = held.watch();
        if let Some(number) = held.number() {
            let attempt = self.name.as_str().into();
            self.worker.recorder.record_at(invoked, What::Permit { attempt, number });
        }
        let log = Arc::new(LeaseLog::begin(&self, invoked, &watch));
        self.worker.counts.acquired.add();
        // The own lock is released immediately, so there is nothing to observe.
        let observer = (self.resource != self.worker.orders.own_lock).then(|| {
            let (log, watch) = (log.clone(), watch.clone());
            tokio::spawn(async move { log.observe(&watch).await }).abort_handle()
        });
        let holding = Holding { invoked, attempt: self, held: Some(held), watch, log, observer };
        // `count` visits each of them; `any` would stop at the first.
        if holding.inside().filter(|inside| inside.enter(&holding.watch)).count() > 0 {
            holding.attempt.worker.counts.overlaps.add();
            // Immediately: this worker may be killed before its next report.
            drop(holding.attempt.worker.report());
        }
        Some(holding)
    }
}

/// A held lock.
pub(super) struct Holding {
    invoked: Stamp,
    attempt: Attempt,
    /// `None` after the release.
    held: Option<Held>,
    watch: LeaseWatch,
    log: Arc<LeaseLog>,
    observer: Option<AbortHandle>,
}

impl Holding {
    /// Returns when the attempt began.
    pub(super) fn invoked(&self) -> Stamp {
        self.invoked
    }

    /// Holds the lock for `time` and writes periodically, checking the lease before each write.
    pub(super) async fn work(&mut self, time: Duration) -> io::Result<()> {
        let end = SystemClock::default().now() + time;
        while self.pauses(end).await {
            self.write().await?;
        }
        Ok(())
    }

    /// Like [`work`](Holding::work), but never checks the lease, and writes once more after a loss. Late writes
    /// must be refused because of their fencing token.
    pub(super) async fn work_trusting(&mut self, time: Duration) -> io::Result<()> {
        let clock = SystemClock::default();
        let end = clock.now() + time;
        while clock.now() < end && !self.attempt.worker.is_stopping() {
            let next = end.min(clock.now() + WRITES_EVERY);
            if self.watch.run_until_lost(clock.sleep_until(next)).await.is_err() {
                // Long enough for another worker to acquire the lock and write.
                clock.sleep_until(clock.now() + WRITES_EVERY * 4).await;
                return self.write().await;
            }
            self.write().await?;
        }
        Ok(())
    }

    /// Downgrades to a shared lock. Returns whether there is still a lease to release.
    pub(super) async fn downgrade(&mut self) -> bool {
        let Some(held) = self.held.take() else { return false };
        if let Err(lost) = self.watch.check() {
            self.log.record_loss(&lost);
            self.held = Some(held);
            return true;
        }
        self.log.record(What::Shares { attempt: self.log.name.clone() });
        if let Ok(held) = held.downgrade().await {
            self.held = Some(held);
            true
        } else {
            drop(self.part());
            false
        }
    }

    /// Pauses until the next write. Returns whether the lock is held and `end` has not been reached before.
    async fn pauses(&mut self, end: Moment) -> bool {
        let clock = SystemClock::default();
        if clock.now() >= end || self.attempt.worker.is_stopping() {
            return false;
        }
        let next = end.min(clock.now() + WRITES_EVERY);
        self.watch.run_until_lost(clock.sleep_until(next)).await.is_ok() && self.holds()
    }

    /// Holds the lock for `time` without writing.
    pub(super) async fn read(&mut self, time: Duration) {
        let end = SystemClock::default().now() + time;
        while self.pauses(end).await {}
    }

    /// Releases the lock.
    pub(super) async fn release(mut self) {
        if let Some(held) = self.part() {
            if let Err(lost) = held.release().await {
                self.log.record_loss(&lost);
            }
            self.log.record(What::Released { attempt: self.log.name.clone() });
        }
    }

    /// Drops the lease.
    pub(super) fn forget(mut self) {
        drop(self.part());
        // From now on the keys must be cleaned up, as after a release.
        self.log.record(What::Released { attempt: self.log.name.clone() });
    }

    /// Takes the lease out, before it is released or dropped.
    fn part(&mut self) -> Option<Held> {
        self.inside().for_each(|inside| inside.leave(&self.watch));
        if let Some(observer) = &self.observer {
            observer.abort();
        }
        // Otherwise a release after the last recorded deadline would look like a loss.
        self.log.note_renewal(&self.watch);
        // A lease that is over is not released. A holder that drops it gets no answer, and the observer may not
        // have run yet, so the loss is recorded here.
        let asked = stamp();
        match self.watch.check() {
            Ok(()) => {
                let releasing = What::Releasing { attempt: self.log.name.clone() };
                self.attempt.worker.recorder.record_at(asked, releasing);
            }
            Err(lost) => self.log.record_loss(&lost),
        }
        self.held.take()
    }

    fn inside(&self) -> impl Iterator<Item = &super::Inside> {
        let numbers = self.attempt.number.iter().chain(&self.attempt.also);
        numbers.filter_map(|number| self.attempt.worker.inside.get(*number))
    }

    /// Checks the lease, and records the result if it is valid.
    fn holds(&self) -> bool {
        self.log.note_renewal(&self.watch);
        let asked = stamp();
        let holds = self.watch.check().is_ok();
        if holds {
            self.attempt.worker.recorder.record_at(asked, What::SeenValid { attempt: self.log.name.clone() });
        }
        holds
    }

    async fn write(&self) -> io::Result<()> {
        let Some(token) = self.watch.fencing_token() else { return Ok(()) };
        let mut register = self.attempt.worker.register.lock().await;
        if self.attempt.also.is_empty() {
            // Each permit guards a resource of its own.
            let guarded = self.watch.resource();
            return register.write(guarded.as_str(), &self.attempt.name, token.into()).await.map(drop);
        }
        for resource in self.attempt.names() {
            register.write(resource, &self.attempt.name, token.into()).await?;
        }
        Ok(())
    }
}

/// Writes the events of a lease to the record.
struct LeaseLog {
    worker: Arc<Worker>,
    name: Token,
    known: Mutex<Known>,
}

struct Known {
    /// The end of validity recorded last.
    deadline: Moment,
    /// When the lease was last checked.
    looked: Moment,
    over: bool,
}

impl LeaseLog {
    fn begin(attempt: &Attempt, invoked: Stamp, lease: &LeaseWatch) -> LeaseLog {
        let name: Token = attempt.name.as_str().into();
        let (looked, deadline) = look(lease);
        // The process was stopped between the grant and here for longer than the lease was valid: it expired
        // unused.
        let over = lease.remaining().is_zero();
        let known = Mutex::new(Known { deadline, looked, over: false });
        let log = LeaseLog { worker: attempt.worker.clone(), name: name.clone(), known };
        let fencing_token = lease.fencing_token().map(u64::from);
        let deadline = if over { invoked } else { of(deadline) };
        let acquired = What::Acquired { attempt: name, deadline, fencing_token };
        log.worker.recorder.record_at(of(looked), acquired);
        log
    }

    /// Records renewals until the lease is over, then the loss.
    async fn observe(&self, lease: &LeaseWatch) {
        let clock = SystemClock::default();
        loop {
            tokio::select! {
                biased;
                lost = lease.lost() => return self.record_loss(&lost),
                () = clock.sleep_until(clock.now() + LOOKS_EVERY) => self.note_renewal(lease),
            }
        }
    }

    fn note_renewal(&self, lease: &LeaseWatch) {
        let mut known = self.known.lock();
        let (looked, deadline) = look(lease);
        let before = mem::replace(&mut known.looked, looked);
        if deadline > known.deadline + MOVED && lease.check().is_ok() {
            known.deadline = deadline;
            let renewed = What::Renewed { attempt: self.name.clone(), deadline: of(deadline) };
            // The renewal may have taken effect at any time since the last check.
            self.worker.recorder.record_at(of(before), renewed);
        }
    }

    fn record_loss(&self, lost: &Lost) {
        if !mem::replace(&mut self.known.lock().over, true) {
            self.worker.counts.lost.add();
            self.record(What::Lost { attempt: self.name.clone(), reason: lost.to_string() });
        }
    }

    fn record(&self, what: What) {
        self.worker.recorder.record(what);
    }
}

/// Returns the time, and the end of validity or slightly less, because the time is read first.
fn look(lease: &LeaseWatch) -> (Moment, Moment) {
    let now = SystemClock::default().now();
    (now, now + lease.remaining())
}
