//! Semaphores: at most K clients hold a permit at the same time.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};

use crate::engine::context::EngineContext;
use crate::engine::options::{Fencing, Renewal};
use crate::engine::wait::{Handoff, Wait, Waiting};
use crate::error::{AcquireError, ConfigError, Lost, PermitError};
use crate::forward::setters;
use crate::lease::{Fenced, Lease, LeaseWatch, Single, Unfenced};
use crate::lock::Lock;
use crate::node::{Node, NodeError, Request};
use crate::quorum::round::{Expect, Round};
use crate::runtime::Mutex;
use quorlock_protocol::machine::wait::Count;
use quorlock_protocol::votes::{Holder, VoteOutcome, VoteReport};
use quorlock_protocol::{Moment, Resource, ResourceError, Verdict, fraction, semaphore_limit};

use limit::Limited;

mod limit;

/// A semaphore of K permits: a name and options. Making one sends nothing.
///
/// Each permit is a lock of its own, `name#0` to `name#K-1`, held by a quorum with a lease like any other. So
/// there are never more than K holders, and all K permits are available with two of five nodes down. (Letting
/// each node admit K holders would be simpler, and wrong: with two permits, three clients can each have three
/// of five nodes.) `docs/kinds.md` has the reasons.
///
/// All clients of a semaphore must ask for the same number of permits. The nodes store it next to the permits,
/// and a client that asks for another number while a permit is held gets [`PermitError::OtherPermits`]. To
/// change the number, hold no permit for one TTL.
///
/// All semaphores that a coordinator makes of one name and number share one queue: tasks of a process get permits in
/// the order in which they called, whether they clone one semaphore or each make their own.
///
/// Several permits cannot be acquired together: two clients that each want two of two could hold one each, and
/// wait forever.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
/// let exports = coordinator.semaphore("exports", 2);
/// let first = exports.acquire().await?;
/// let second = exports.acquire().await?;
/// assert_ne!(first.number(), second.number());
/// assert!(exports.try_acquire().await?.is_none(), "both are taken");
/// first.check()?; // right before the side effect
/// first.release().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[must_use = "a semaphore does nothing until a permit is acquired"]
pub struct Semaphore<F = Fenced> {
    /// The semaphore's own name, and the options of all slots.
    lock: Lock<Single, F>,
    name: Arc<str>,
    permits: usize,
    wait: Wait,
    engine: Arc<EngineContext>,
}

/// A held permit of a semaphore. It is a [`Lease`] with a number.
///
/// The fencing token orders the holders of *this* number: the guarded resource compares it with those that
/// came with the same number, and with no others.
///
/// Dropping the permit releases it in the background, which a runtime that ends right after that may not do: as with a
/// [`Lease`], [`release`](Permit::release) waits.
#[derive(Debug)]
#[must_use = "dropping the permit releases it immediately: bind it to a name such as `_permit`, since `let _ =` drops it, too"]
pub struct Permit<F = Fenced> {
    number: usize,
    lease: Lease<Single, F>,
}

impl<F> Permit<F> {
    /// Returns its number, 0 to K-1. No two holders have the same at a time, so it can name a port, a connection or a
    /// directory.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// As [`Lease::release`].
    ///
    /// # Errors
    ///
    /// [`Lost`] when it was over before.
    ///
    /// # Cancel safety
    ///
    /// The permit is released even when the future is dropped, at whatever point.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime, and the permit is released all the same.
    pub async fn release(self) -> Result<(), Lost> {
        self.lease.release().await
    }

    /// Returns its lease.
    pub fn into_lease(self) -> Lease<Single, F> {
        self.lease
    }
}

impl<F> Deref for Permit<F> {
    type Target = Lease<Single, F>;

    fn deref(&self) -> &Lease<Single, F> {
        &self.lease
    }
}

/// A read-only view of a permit, which [`Semaphore::with`] gives to the work. It is a [`LeaseWatch`] with a number.
#[derive(Clone, Debug)]
pub struct PermitWatch<F = Fenced> {
    number: usize,
    watch: LeaseWatch<F>,
}

impl<F> PermitWatch<F> {
    /// As [`Permit::number`].
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }
}

impl<F> Deref for PermitWatch<F> {
    type Target = LeaseWatch<F>;

    fn deref(&self) -> &LeaseWatch<F> {
        &self.watch
    }
}

/// A waiter has a place in the queue of each permit.
const MOST_PERMITS: usize = 64;

/// The semaphores of a coordinator that are in use, by name and number of permits. All of one share its queues: a server does
/// not notify a connection of what it has changed itself, so waiters in separate queues would hear too late of their turns.
#[derive(Debug, Default)]
pub(crate) struct Semaphores {
    known: Mutex<HashMap<Named, Weak<EngineContext>>>,
}

/// The name and the number of permits.
type Named = (Arc<str>, usize);

impl Semaphores {
    fn engine_of(
        &self,
        name: &Arc<str>,
        permits: usize,
        make: impl FnOnce() -> Arc<EngineContext>,
    ) -> Arc<EngineContext> {
        let mut known = self.known.lock();
        if let Some(engine) = known.get(&(name.clone(), permits)).and_then(Weak::upgrade) {
            return engine;
        }
        // Those that have gone, before the map would grow for them.
        if known.len() == known.capacity() {
            known.retain(|_, engine| engine.strong_count() > 0);
        }
        let engine = make();
        known.insert((name.clone(), permits), Arc::downgrade(&engine));
        engine
    }
}

impl Semaphore {
    pub(crate) fn new(
        engine: &Arc<EngineContext>,
        known: &Semaphores,
        name: &str,
        permits: usize,
    ) -> Semaphore {
        let name: Arc<str> = name.into();
        // With queues of its own: that of a plain lock of the same name does not ask for the limit.
        let engine = known.engine_of(&name, permits, || {
            let limit = limit::claim(&format!("{}{name}", engine.key_prefix), permits);
            let limited =
                |node: Arc<dyn Node>| Arc::new(Limited { node, limit: limit.clone() }) as Arc<dyn Node>;
            let key = |number| engine.key(&slot_name(&name, number).into());
            engine.over(engine.nodes.each(limited), (0..permits.min(MOST_PERMITS)).map(key))
        });
        let lock = Lock::new(engine.clone(), &name);
        Semaphore { lock, name, permits, wait: Wait::default(), engine }
    }
}

impl<F> Clone for Semaphore<F> {
    fn clone(&self) -> Semaphore<F> {
        let Semaphore { lock, name, permits, wait, engine } = self;
        Semaphore {
            lock: lock.clone(),
            name: name.clone(),
            permits: *permits,
            wait: *wait,
            engine: engine.clone(),
        }
    }
}

impl<F> Semaphore<F> {
    setters! { lock, "Lock":
        ttl(ttl: Duration),
        renewal(renewal: Renewal),
        max_hold(longest: Duration),
        label(label: &str),
        handoff(handoff: Handoff) ", for each permit",
        on_wait(listener: impl Fn(&Waiting) + Send + Sync + 'static) ", for each permit",
    }

    /// As [`Lock::wait`]: how long to wait while all permits are taken. Default: 35 s.
    pub fn wait(self, wait: impl Into<Wait>) -> Self {
        let wait = wait.into();
        let wait = if wait == Wait::UpTo(Duration::ZERO) { Wait::Never } else { wait };
        Semaphore { wait, ..self }
    }

    /// As [`Lock::fencing`].
    pub fn fencing(self, fencing: Fencing) -> Semaphore<Fencing> {
        let Semaphore { lock, name, permits, wait, engine } = self;
        Semaphore { lock: lock.fencing(fencing), name, permits, wait, engine }
    }

    /// As [`Lock::unfenced`].
    pub fn unfenced(self) -> Semaphore<Unfenced> {
        let Semaphore { lock, name, permits, wait, engine } = self;
        Semaphore { lock: lock.unfenced(), name, permits, wait, engine }
    }

    /// Checks name, number and options, as [`Lock::validate`].
    ///
    /// # Errors
    ///
    /// Names the setting that cannot work, and one that would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // Of which the names of the slots are made: they are never empty.
        if self.name.is_empty() {
            return Err(ResourceError::Empty.into());
        }
        if self.permits == 0 || self.permits > MOST_PERMITS {
            return Err(ConfigError::Permits { given: self.permits, most: MOST_PERMITS });
        }
        if let Some(node) = self.engine.nodes.in_order_of_entry() {
            return Err(ConfigError::NoSemaphores { node });
        }
        // The longest name.
        let (last, length) = (self.permits - 1, self.name.len());
        let most = Resource::MAX_LEN - (slot_name(&self.name, last).len() - length);
        if length > most {
            return Err(ResourceError::TooLong { length, most }.into());
        }
        self.slot(last).validate()
    }

    /// As [`Lock::validate_retention`], for the lease of a permit.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn validate_retention(&self, time: Duration) -> Result<(), ConfigError> {
        self.validate()?;
        self.slot(self.permits - 1).validate_retention(time)
    }

    /// Waits until a permit is free, and acquires it. It does not poll: one task of the process contends for each
    /// permit, as for a lock, and the waiters of a process are served in the order in which they called.
    ///
    /// # Errors
    ///
    /// [`Full`](PermitError::Full) when all permits were taken for the whole [wait](Semaphore::wait),
    /// [`OtherPermits`](PermitError::OtherPermits) when the semaphore has another number of permits, and
    /// otherwise as [`Lock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, at whatever point, nothing of it is left on any node, nor in a queue.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn acquire(&self) -> Result<Permit<F>, PermitError> {
        self.validate()?;
        let since = self.engine.now();
        // Where other waiters of this process wait already, it is not this one's turn.
        let hopeless = (0..self.permits).all(|number| self.is_taken_here(number));
        if self.wait == Wait::Never || !hopeless {
            match self.take_a_free_one().await {
                // A permit may be released, and an outage may pass.
                Err(PermitError::Full { .. } | PermitError::Unavailable { .. })
                    if self.wait != Wait::Never => {}
                decided => return decided,
            }
        }
        let wait = match self.wait {
            Wait::UpTo(longest) => Wait::UpTo((since + longest).since(self.engine.now())),
            Wait::Never | Wait::Forever => self.wait,
        };
        let mut slots: FuturesUnordered<_> = self
            .order()
            .into_iter()
            .map(async |number| (number, self.slot(number).wait(wait).acquire().await))
            .collect();
        let (mut taken, mut unknown) = (vec![None; self.permits], None);
        while let Some((number, lease)) = slots.next().await {
            match lease.map_err(|error| self.refusal(error)) {
                Ok(lease) => return Ok(Permit { number, lease }),
                Err(PermitError::Full { holders, .. }) => {
                    if let Some(slot) = taken.get_mut(number) {
                        *slot = holders.into_iter().next().flatten();
                    }
                }
                // All are waited for: another permit may be within reach of more nodes.
                Err(error @ PermitError::Unavailable { .. }) => unknown = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(unknown.unwrap_or_else(|| self.full(taken, since)))
    }

    /// Acquires a permit if one is free now, without waiting. Returns `None` if all are taken;
    /// [`inspect`](Semaphore::inspect) reports the holders, as does the error of
    /// [`acquire`](Semaphore::acquire) with [`Wait::Never`].
    ///
    /// # Errors
    ///
    /// As [`acquire`](Semaphore::acquire), but never [`Full`](PermitError::Full): an error means that the answer
    /// is unknown.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Semaphore::acquire).
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn try_acquire(&self) -> Result<Option<Permit<F>>, PermitError> {
        match self.take_a_free_one().await {
            Ok(permit) => Ok(Some(permit)),
            Err(PermitError::Full { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Acquires a permit, runs `work` under it, and releases it, as [`Lock::with`]. The work gets the number of the
    /// permit with the view of its lease.
    ///
    /// # Errors
    ///
    /// As there, with [`PermitError`] in the place of [`AcquireError`](crate::AcquireError).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases the permit in the background.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime. If the work panics, the permit is released.
    pub async fn with<T, E, Work, Running>(&self, work: Work) -> Result<T, E>
    where
        Work: FnOnce(PermitWatch<F>) -> Running,
        Running: Future<Output = Result<T, E>>,
        E: From<PermitError> + From<Lost>,
    {
        let Permit { number, lease } = self.acquire().await?;
        lease.run(|watch| work(PermitWatch { number, watch })).await
    }

    /// Asks all nodes who holds each permit, and returns the votes by number. Changes nothing.
    ///
    /// # Errors
    ///
    /// When name, number or options cannot work.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the nodes.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn inspect(&self) -> Result<Vec<VoteReport>, ConfigError> {
        self.validate()?;
        join_all((0..self.permits).map(async |number| self.slot(number).inspect().await))
            .await
            .into_iter()
            .collect()
    }

    /// Acquires a permit that is free, or fails with [`PermitError::Full`].
    async fn take_a_free_one(&self) -> Result<Permit<F>, PermitError> {
        self.validate()?;
        let since = self.engine.now();
        let order = self.order();
        // Where most permits are free, one request is enough.
        let first = order.iter().find(|number| !self.is_taken_here(**number));
        if let Some(number) = first
            && let Some(permit) = self.try_slot(*number).await?
        {
            return Ok(permit);
        }
        let reports = self.inspect().await?;
        let mut unknown = None;
        for number in order {
            let may_be_free = reports.get(number).is_some_and(|report| !report.is_taken());
            if may_be_free && !self.is_taken_here(number) {
                match self.try_slot(number).await {
                    Ok(Some(permit)) => return Ok(permit),
                    Ok(None) => {}
                    Err(error) => unknown = Some(error),
                }
            }
        }
        Err(unknown.unwrap_or_else(|| self.all_taken(&reports, since)))
    }

    fn slot(&self, number: usize) -> Lock<Single, F> {
        self.lock.renamed(&slot_name(&self.name, number))
    }

    /// Whether this process holds the permit, or has a waiter for it.
    fn is_taken_here(&self, number: usize) -> bool {
        let slot = self.slot(number);
        let (_, key) = slot.parts();
        self.engine.queues.is_taken(key)
    }

    async fn try_slot(&self, number: usize) -> Result<Option<Permit<F>>, PermitError> {
        let lease = self.slot(number).try_acquire().await.map_err(|error| self.refusal(error))?;
        Ok(lease.map(|lease| Permit { number, lease }))
    }

    /// The error of a permit's lock, as one of the semaphore.
    fn refusal(&self, error: AcquireError) -> PermitError {
        match error {
            AcquireError::Contended { resource, report, waited } => {
                PermitError::Full { resource, holders: vec![report.holder()], waited }
            }
            AcquireError::Unavailable { resource, report, waited } => {
                self.other_permits(&report).unwrap_or(PermitError::Unavailable { resource, report, waited })
            }
            AcquireError::Misconfigured { resource, report } => {
                self.other_permits(&report).unwrap_or(PermitError::Misconfigured { resource, report })
            }
            AcquireError::Config(error) => error.into(),
            AcquireError::Closed => PermitError::Closed,
        }
    }

    /// The error for another number of permits, where too many nodes for a quorum report the same one.
    fn other_permits(&self, report: &VoteReport) -> Option<PermitError> {
        let others = || {
            report.votes().iter().filter_map(|vote| {
                let VoteOutcome::Failed(NodeError::OtherLimit { found, asked }) = &vote.outcome else {
                    return None;
                };
                Some((found, asked))
            })
        };
        let (found, asked) = others().next()?;
        let agreed = others().filter(|(other, _)| *other == found).count();
        if agreed < report.quorum().blocking() {
            return None;
        }
        let resource = Resource::share(&self.name).ok()?;
        let (found, asked) = (found.clone(), asked.clone());
        Some(PermitError::OtherPermits { resource, found, asked, report: Box::new(report.clone()) })
    }

    /// All numbers in random order, so that clients do not all contend for the first.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.permits).collect();
        for last in (1..order.len()).rev() {
            let other = fraction(Duration::from_nanos(last as u64 + 1), self.engine.entropy.next_u64());
            order.swap(last, usize::try_from(other.as_nanos()).unwrap_or(last).min(last));
        }
        order
    }

    /// The error for taken permits, unless too few nodes report their holders.
    fn all_taken(&self, reports: &[VoteReport], since: Moment) -> PermitError {
        let silent = reports.iter().find(|report| report.verdict() == Verdict::Unavailable);
        match (silent, Resource::share(&self.name)) {
            (Some(silent), Ok(resource)) => {
                let (report, waited) = (Box::new(silent.clone()), self.engine.now().since(since));
                PermitError::Unavailable { resource, report, waited }
            }
            _ => self.full(reports.iter().map(VoteReport::holder).collect(), since),
        }
    }

    fn full(&self, holders: Vec<Option<Holder>>, since: Moment) -> PermitError {
        match Resource::share(&self.name) {
            Ok(resource) => PermitError::Full { resource, holders, waited: self.engine.now().since(since) },
            Err(error) => ConfigError::from(error).into(),
        }
    }
}

/// The name of the lock that is this permit.
fn slot_name(name: &str, number: usize) -> String {
    format!("{name}#{number}")
}

/// The number of permits that the nodes store for the semaphore called `name`.
pub(crate) async fn permits(engine: &Arc<EngineContext>, name: &str) -> Result<Option<usize>, PermitError> {
    let resource = Resource::share(&name.into()).map_err(ConfigError::from)?;
    let since = engine.now();
    engine.introduced().await;
    let key: Arc<str> = semaphore_limit(&format!("{}{name}", engine.key_prefix)).into();
    let request = |_| Some(Request::inspect(key.clone()));
    let round = Round::start(&engine.nodes, Expect::Holder, engine.max_ttl, request);
    round.settled().await;
    let report = Box::new(round.report());
    if let Some(holder) = report.holder() {
        return Ok(str::from_utf8(holder.token.as_bytes()).ok().and_then(|number| number.parse().ok()));
    }
    let count = Count::of(&report);
    if count.is_misconfigured() {
        Err(PermitError::Misconfigured { resource, report })
    } else if count.is_unknown() {
        Err(PermitError::Unavailable { resource, report, waited: engine.now().since(since) })
    } else {
        Ok(None)
    }
}

impl<F> fmt::Debug for Semaphore<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("resource", &self.name)
            .field("permits", &self.permits)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
