//! A semaphore: at most so many hold a permit at once.

use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};

use crate::engine::context::EngineContext;
use crate::engine::options::{Fencing, Renewal};
use crate::engine::wait::{Handoff, Wait, Waiting};
use crate::error::{AcquireError, ConfigError, Lost, SemaphoreFull};
use crate::lease::{Lease, LeaseWatch};
use crate::lock::Lock;
use crate::node::{Node, NodeError, Request};
use crate::quorum::round::{Expect, Round};
use crate::quorum::vote_report::{VoteOutcome, VoteReport};
use quorlock_protocol::{Moment, Resource, Verdict, fraction, semaphore_limit};

use limit::Limited;

mod limit;

/// A semaphore of K permits: a name and options. Making one asks nobody.
///
/// Each permit is a lock of its own, `name#0` to `name#K-1`, held by a quorum with a lease like any
/// other, so there are never more than K holders, and with two of five nodes dead still all K. (To
/// let each node admit K holders would be simpler, and wrong: with two permits, three clients can each
/// have three of five nodes.) `docs/kinds.md` has the reasons.
///
/// All who use a semaphore must ask for the same number of permits; the nodes keep it beside the
/// permits, and whoever asks for another number while one is held gets an error
/// ([`AcquireError::OtherPermits`]) that says so. To change it, let nobody hold a permit for one TTL.
///
/// Clones share one line: tasks of a process that use clones of one semaphore get permits in the
/// order they came. Two made by [`Coordinator::semaphore`](crate::Coordinator::semaphore) are as
/// strange to each other as two processes.
///
/// There is no way to acquire several permits at once: two who want two of two each could hold one
/// each, and wait for ever.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
/// let exports = coordinator.semaphore("exports", 2);
/// let first = exports.acquire().await?;
/// let second = exports.acquire().await?;
/// assert_ne!(first.number, second.number);
/// assert!(exports.try_acquire().await?.is_none(), "both are taken");
/// first.lease.check()?; // right before the side effect
/// first.lease.release().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a semaphore does nothing until a permit is acquired"]
pub struct Semaphore {
    /// The semaphore's own name, and the options of all slots.
    lock: Lock,
    name: Arc<str>,
    permits: usize,
    wait: Wait,
    shared: Arc<EngineContext>,
}

/// One of a semaphore's permits, held.
///
/// Dropping it gives it back in the background, as does dropping its lease.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "dropping the permit gives it back at once"]
pub struct Permit {
    /// Which: 0 to K-1. No two who hold a permit have the same, so it can name a port, a connection
    /// or a directory.
    pub number: usize,
    /// Its lease, which renews itself. The fencing token orders the holders of *this* permit: a
    /// resource compares it with those that came with the same number, and with no others.
    pub lease: Lease,
}

/// Whoever waits stands in the line of each permit.
const MOST_PERMITS: usize = 64;

impl Semaphore {
    pub(crate) fn new(shared: &Arc<EngineContext>, name: &str, permits: usize) -> Semaphore {
        let limit = limit::claim(&format!("{}{name}", shared.key_prefix), permits);
        let limited = |node: Arc<dyn Node>| Arc::new(Limited { node, limit: limit.clone() }) as Arc<dyn Node>;
        // With lines of its own: the line of a plain lock of the same name knows no limit.
        let shared = shared.over(shared.nodes.each(limited));
        let lock = Lock::new(shared.clone(), name);
        Semaphore { lock, name: name.into(), permits, wait: Wait::default(), shared }
    }

    /// As [`Lock::ttl`].
    pub fn ttl(self, ttl: Duration) -> Semaphore {
        Semaphore { lock: self.lock.ttl(ttl), ..self }
    }

    /// As [`Lock::wait`]: how long to wait while all permits are taken. 35 s unless set.
    pub fn wait(self, wait: Wait) -> Semaphore {
        let wait = if wait == Wait::UpTo(Duration::ZERO) { Wait::Never } else { wait };
        Semaphore { wait, ..self }
    }

    /// As [`Lock::renewal`].
    pub fn renewal(self, renewal: Renewal) -> Semaphore {
        Semaphore { lock: self.lock.renewal(renewal), ..self }
    }

    /// As [`Lock::max_hold`].
    pub fn max_hold(self, longest: Duration) -> Semaphore {
        Semaphore { lock: self.lock.max_hold(longest), ..self }
    }

    /// As [`Lock::label`].
    pub fn label(self, label: &str) -> Semaphore {
        Semaphore { lock: self.lock.label(label), ..self }
    }

    /// As [`Lock::hand_over`], for each permit.
    pub fn hand_over(self, hand_over: Handoff) -> Semaphore {
        Semaphore { lock: self.lock.hand_over(hand_over), ..self }
    }

    /// As [`Lock::fencing`].
    pub fn fencing(self, fencing: Fencing) -> Semaphore {
        Semaphore { lock: self.lock.fencing(fencing), ..self }
    }

    /// As [`Lock::on_wait`]; who waits is told of each permit.
    pub fn on_wait(self, listener: impl Fn(&Waiting) + Send + Sync + 'static) -> Semaphore {
        Semaphore { lock: self.lock.on_wait(listener), ..self }
    }

    /// Checks name, number and options, as [`Lock::validate`].
    ///
    /// # Errors
    ///
    /// Says what cannot work, and what would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.permits == 0 || self.permits > MOST_PERMITS {
            return Err(ConfigError::Permits { given: self.permits, most: MOST_PERMITS });
        }
        // The longest name of all.
        self.slot(self.permits - 1).validate()
    }

    /// Waits until a permit is free, and takes it.
    ///
    /// Waiting asks for nothing but what wakes it: one task of the process contends for each permit,
    /// as for a lock. Who comes first in this process is served first.
    ///
    /// # Errors
    ///
    /// [`SemaphoreFull`](AcquireError::Full) when all were taken for the whole [wait](Semaphore::wait),
    /// [`OtherPermits`](AcquireError::OtherPermits) when it has another number of permits, and else as
    /// [`Lock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, at whatever point, nothing is left of it at any node, nor in the
    /// line.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn acquire(&self) -> Result<Permit, AcquireError> {
        self.validate()?;
        let since = self.shared.now();
        // Where others of this process wait already, it is not this one's turn.
        let hopeless = (0..self.permits).all(|number| self.is_taken_here(number));
        if self.wait == Wait::Never || !hopeless {
            match self.take_a_free_one().await {
                // Permits are given back, and an outage may pass.
                Err(AcquireError::Full(_) | AcquireError::Unavailable { .. }) if self.wait != Wait::Never => {
                }
                decided => return decided,
            }
        }
        let mut slots: FuturesUnordered<_> = self
            .order()
            .into_iter()
            .map(async |number| (number, self.slot(number).wait(Wait::Forever).acquire().await))
            .collect();
        tokio::select! {
            biased;
            Some((number, lease)) = slots.next() => match lease {
                Ok(lease) => Ok(Permit { number, lease }),
                Err(error) => Err(self.other_permits(error)),
            },
            () = self.patience(since) => {
                drop(slots);
                Err(self.all_taken(&self.inspect().await?, since))
            }
        }
    }

    /// Takes a permit if one is free now, without waiting. `None`: all are taken, as for a
    /// [lock](Lock::try_acquire) that others have. Who has them, [`inspect`](Semaphore::inspect)
    /// tells, and so does the error of [`acquire`](Semaphore::acquire) with [`Wait::Never`].
    ///
    /// # Errors
    ///
    /// As [`acquire`](Semaphore::acquire), but for [`SemaphoreFull`](AcquireError::Full): an error means that
    /// nobody could find out.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Semaphore::acquire).
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn try_acquire(&self) -> Result<Option<Permit>, AcquireError> {
        match self.take_a_free_one().await {
            Ok(permit) => Ok(Some(permit)),
            Err(AcquireError::Full(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Acquires a permit, runs `work` under it, and gives it back, as [`Lock::with`].
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and gives the permit back in the background.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime. A panic of the work gives the permit back.
    pub async fn with<T, E, Work, Running>(&self, work: Work) -> Result<T, E>
    where
        Work: FnOnce(LeaseWatch) -> Running,
        Running: Future<Output = Result<T, E>>,
        E: From<AcquireError> + From<Lost>,
    {
        let Permit { lease, .. } = self.acquire().await?;
        lease.run(work).await
    }

    /// Asks all nodes who holds each permit, by number. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Config`] when name, number or options cannot work.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn inspect(&self) -> Result<Vec<VoteReport>, AcquireError> {
        self.validate()?;
        join_all((0..self.permits).map(async |number| self.slot(number).inspect().await))
            .await
            .into_iter()
            .collect()
    }

    /// [`SemaphoreFull`](AcquireError::Full) when all are taken.
    async fn take_a_free_one(&self) -> Result<Permit, AcquireError> {
        self.validate()?;
        let since = self.shared.now();
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

    fn slot(&self, number: usize) -> Lock {
        self.lock.renamed(&format!("{}#{number}", self.name))
    }

    /// Whether somebody in this process has the permit, or came first.
    fn is_taken_here(&self, number: usize) -> bool {
        let slot = self.slot(number);
        let (_, key) = slot.parts();
        self.shared.lines.is_taken(key)
    }

    async fn try_slot(&self, number: usize) -> Result<Option<Permit>, AcquireError> {
        let lease = self.slot(number).try_acquire().await.map_err(|error| self.other_permits(error))?;
        Ok(lease.map(|lease| Permit { number, lease }))
    }

    /// The same error, or that the semaphore has another number of permits, where a quorum says so.
    fn other_permits(&self, error: AcquireError) -> AcquireError {
        let (AcquireError::Unavailable { report, .. } | AcquireError::Misconfigured { report, .. }) = &error
        else {
            return error;
        };
        let others = || {
            report.votes().iter().filter_map(|vote| {
                let VoteOutcome::Failed(NodeError::OtherLimit { found, asked }) = &vote.outcome else {
                    return None;
                };
                Some((found, asked))
            })
        };
        let Some((found, asked)) = others().next() else { return error };
        let agreed = others().filter(|(other, _)| *other == found).count() >= report.quorum().needed();
        let (Ok(resource), true) = (Resource::share(&self.name), agreed) else { return error };
        let (found, asked) = (found.clone(), asked.clone());
        AcquireError::OtherPermits { resource, found, asked, report: report.clone() }
    }

    /// All numbers in random order, so that not everybody wants the first.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.permits).collect();
        for last in (1..order.len()).rev() {
            let other = fraction(Duration::from_nanos(last as u64 + 1), self.shared.entropy.half());
            order.swap(last, usize::try_from(other.as_nanos()).unwrap_or(last).min(last));
        }
        order
    }

    /// Ends with the caller's patience.
    async fn patience(&self, since: Moment) {
        match self.wait {
            Wait::UpTo(longest) => self.shared.sleep_until(since + longest).await,
            Wait::Never | Wait::Forever => pending().await,
        }
    }

    /// Who has the permits, unless too few nodes say.
    fn all_taken(&self, reports: &[VoteReport], since: Moment) -> AcquireError {
        let resource = match Resource::share(&self.name) {
            Ok(resource) => resource,
            Err(error) => return ConfigError::from(error).into(),
        };
        let waited = self.shared.now().since(since);
        if let Some(silent) = reports.iter().find(|report| report.verdict() == Verdict::Unavailable) {
            let report = Box::new(silent.clone());
            return AcquireError::Unavailable { resource, report, waited };
        }
        SemaphoreFull { resource, holders: reports.iter().map(VoteReport::holder).collect(), waited }.into()
    }
}

/// The number that is kept beside the permits of the semaphore called `name`.
pub(crate) async fn permits(shared: &Arc<EngineContext>, name: &str) -> Option<usize> {
    shared.introduced().await;
    let key: Arc<str> = semaphore_limit(&format!("{}{name}", shared.key_prefix)).into();
    let request = |_| Some(Request::Inspect { key: key.clone() });
    let round = Round::start(&shared.nodes, Expect::AnyAnswer, shared.max_ttl, request);
    round.settled().await;
    str::from_utf8(round.report().holder()?.token.as_bytes()).ok()?.parse().ok()
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("resource", &self.name)
            .field("permits", &self.permits)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
