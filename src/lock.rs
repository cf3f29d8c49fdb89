//! A lock that can be acquired: a name and options, no IO.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, join_all, select};
use tokio::runtime::Handle;

use crate::engine::acquire_span::{AcquireSpan, SpanHandle};
use crate::engine::context::EngineContext;
use crate::engine::dispatcher::{ServedBy, Service};
use crate::engine::hold::Hold;
use crate::engine::options::{AcquireRequest, Fencing, Options, Reentry, Renewal};
use crate::engine::owner::Owner;
use crate::engine::queue::{Delivery, Joined, Place, Waiter};
use crate::engine::readers;
use crate::engine::wait::{Handoff, Wait, Waiting};
use crate::error::{AcquireError, ConfigError, Lost};
use crate::lease::{Lease, LeaseWatch};
use crate::node::{Capability, QueueListing};
use crate::quorum::vote_report::VoteReport;
use crate::runtime::tasks::Helped;
use crate::runtime::timer::Until;
use quorlock_protocol::{Keys, Mode, Moment, Resource, Verdict};

mod multi;
mod revoke;
mod waiters;

/// A name and options. Making one asks nobody; acquire it as often as you like, from anywhere.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::Duration;
///
/// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
/// let lock = coordinator.lock("orders/42").ttl(Duration::from_secs(10));
/// if let Some(lease) = lock.try_acquire().await? {
///     lease.check()?; // right before the side effect
///     lease.release().await?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    shared: Arc<EngineContext>,
    name: Arc<str>,
    keys: Keys,
    /// The names, where there are several. A thin pointer: whoever waits keeps a lock, most of one name.
    together: Option<Arc<Vec<Arc<str>>>>,
    /// Most locks of a program have the same, which are kept once.
    options: Arc<Options>,
}

/// The longest label, in bytes.
const MAX_LABEL: usize = 200;

impl Lock {
    pub(crate) fn new(shared: Arc<EngineContext>, name: &str) -> Lock {
        let name: Arc<str> = name.into();
        let keys = Keys::one(shared.key(&name));
        Lock { keys, together: None, name, options: shared.options.clone(), shared }
    }

    /// Those of this lock alone, to be changed.
    fn options(&mut self) -> &mut Options {
        Arc::make_mut(&mut self.options)
    }

    /// The same options for another resource.
    pub(crate) fn renamed(&self, name: &str) -> Lock {
        let name: Arc<str> = name.into();
        Lock { keys: Keys::one(self.shared.key(&name)), name, ..self.clone() }
    }

    /// What all locks of its coordinator share, and the key.
    pub(crate) fn parts(&self) -> (&Arc<EngineContext>, &Arc<str>) {
        (&self.shared, self.keys.first())
    }

    /// For how long the nodes keep the lock if it is not renewed. 30 s unless set here or for the
    /// coordinator: long enough to ride out a failover of the network, short enough to wait for
    /// after a crash. At most the deployment's `max_ttl`.
    pub fn ttl(mut self, ttl: Duration) -> Lock {
        self.options().ttl = ttl;
        self
    }

    /// How long [`acquire`](Lock::acquire) and [`with`](Lock::with) wait while others hold the
    /// lock, or while there is no quorum. 35 s unless set, see [`Wait::default`]: a program that waits for
    /// ever because a setting was forgotten is hard to find. To wait up to no time at all is to ask once.
    pub fn wait(mut self, wait: Wait) -> Lock {
        self.options().wait = if wait == Wait::UpTo(Duration::ZERO) { Wait::Never } else { wait };
        self
    }

    /// Who renews the lease. Automatic unless set.
    pub fn renewal(mut self, renewal: Renewal) -> Lock {
        self.options().renewal = renewal;
        self
    }

    /// Ends the lease after this long, however often it was renewed: for work that may hang. No
    /// limit unless set.
    pub fn max_hold(mut self, longest: Duration) -> Lock {
        self.options().max_hold = Some(longest);
        self
    }

    /// What others read of the holder, after the name of the host and the number of the process.
    pub fn label(mut self, label: &str) -> Lock {
        self.options().label = label.into();
        self
    }

    /// What kind of lock it is, for the metrics: their label `class`.
    /// None unless set.
    ///
    /// A handful of names that stand in the program. Each is counted apart and kept for as long
    /// as the coordinator, so never a name that comes from elsewhere, such as the resource's.
    pub fn class(mut self, class: &str) -> Lock {
        let meter = self.shared.meters.lock(class);
        self.options().meter = meter;
        self
    }

    /// How often the lease may pass from one waiter of this process to the next before other
    /// processes get their chance. At most 64 times and one TTL in a row unless set.
    pub fn hand_over(mut self, hand_over: Handoff) -> Lock {
        self.options().hand_over = hand_over;
        self
    }

    /// Makes it a lock for readers: any number of them hold it at once, and no writer does, which is
    /// who acquires the same lock without this. Each reader has a lease of its own, with its own TTL,
    /// renewals and end.
    ///
    /// A writer that waits goes before readers that are new; so writers are not starved by readers
    /// that keep coming. Other programs' Redlock clients are excluded as writers, but do not get that
    /// turn, and nor does a writer that only [tries](Lock::try_acquire).
    ///
    /// A reader cannot become a writer: two that wanted to would wait for each other for ever. Begin
    /// as a writer, and [downgrade](Lease::downgrade). A reader that acquires the same lock as a writer
    /// waits for itself. Leases of readers are not handed over, and they do not wait in a queue.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
    /// let catalog = coordinator.lock("catalog");
    /// let (ann, ben) = (catalog.clone().shared().acquire().await?, catalog.clone().shared().acquire().await?);
    /// assert!(catalog.try_acquire().await?.is_none(), "no writer meanwhile");
    /// ann.release().await?;
    /// ben.release().await?;
    ///
    /// let writer = catalog.acquire().await?;
    /// let reader = writer.downgrade().await?; // nobody has written in between
    /// assert!(catalog.shared().try_acquire().await?.is_some(), "others may read as well");
    /// # drop(reader);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn shared(mut self) -> Lock {
        self.options().mode = Mode::Shared;
        self
    }

    /// Whether leases have a fencing token. They have unless set: a lock that protects something
    /// is not complete without.
    pub fn fencing(mut self, fencing: Fencing) -> Lock {
        self.options().fencing = fencing;
        self
    }

    /// Calls `listener` whenever somebody who waits for this lock learns who holds it: for a
    /// program that shows it. It must not block.
    pub fn on_wait(mut self, listener: impl Fn(&Waiting) + Send + Sync + 'static) -> Lock {
        self.options().on_wait = Some(Arc::new(listener));
        self
    }

    /// Lets `owner` acquire the lock again while it holds it: see [`Owner`].
    pub fn owner(mut self, owner: &Owner) -> Lock {
        self.options().reentry = Reentry::Of(owner.clone());
        self
    }

    /// Lets the lock be acquired again by whoever holds it within the same [`Owner::scope`].
    pub fn reentrant(mut self) -> Lock {
        self.options().reentry = Reentry::OfScope;
        self
    }

    /// Checks name and options; everything that acquires does so too, before it asks anybody.
    ///
    /// # Errors
    ///
    /// Says what cannot work, and what would.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check().map(drop)
    }

    /// Waits until a quorum grants the lock, then returns its lease, which renews itself.
    ///
    /// # Errors
    ///
    /// [`Contended`](AcquireError::Contended) when others held it for the whole [wait](Lock::wait),
    /// [`Unavailable`](AcquireError::Unavailable) when too few nodes answered at the end of it, or none
    /// could because it was shorter than a round trip, and immediately
    /// [`Misconfigured`](AcquireError::Misconfigured) or [`Config`](AcquireError::Config).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, at whatever point, the lock is given back at every node that
    /// the attempt may have reached, in the background.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn acquire(&self) -> Result<Lease, AcquireError> {
        match self.acquire_within(self.options.wait).await? {
            Got::Lease(lease) => Ok(lease),
            Got::TakenHere => Err(Box::pin(self.contended(Duration::ZERO)).await),
        }
    }

    /// Asks once for the lock, without waiting for whoever holds it: `None` if others have it.
    ///
    /// Where several ask at the same moment and split the votes, so that nobody has got it, it asks again
    /// after a short random pause, five times at most.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Lock::acquire), but never [`Contended`](AcquireError::Contended): an error
    /// means that nobody could find out, because too few nodes are connected or answer within the
    /// [limit of a node](crate::Builder::node_limit).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Lock::acquire).
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn try_acquire(&self) -> Result<Option<Lease>, AcquireError> {
        match self.acquire_within(Wait::Never).await {
            Ok(Got::Lease(lease)) => Ok(Some(lease)),
            Ok(Got::TakenHere) | Err(AcquireError::Contended { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Acquires the lock, runs `work` under it, and gives it back. `Ok` means that all of the work
    /// ran while the lease was valid.
    ///
    /// # Errors
    ///
    /// What an [`AcquireError`] becomes when the work was not started, the work's own error when it failed
    /// by itself, and what [`Lost`] becomes when the lease ended first: the work is then dropped where it
    /// waits.
    ///
    /// # Errors of the work
    ///
    /// They are of any type that can be made from both, so that `?` works on what the work does and on
    /// [`check`](LeaseWatch::check): `anyhow::Error` and `Box<dyn Error + Send + Sync>` are as they come, an
    /// enum needs `#[from]` for both, and [`WithError`](crate::WithError) is one for work that cannot fail
    /// otherwise. Where the work ends in a bare `Ok(value)` the compiler does not know which of them is meant
    /// (error E0283): end it with `anyhow::Ok(value)`, or with `Ok::<_, MyError>(value)`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and gives the lock back in the background.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime. A panic of the work gives the lock back.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let coordinator = quorlock::Coordinator::builder().custom_nodes(quorlock_testkit::memory_nodes(5)).build()?;
    /// let total = coordinator.lock("orders/42").with(async |lease| {
    ///     let sum = 40 + 2;
    ///     lease.check()?; // right before the side effect
    ///     Ok::<_, quorlock::WithError>(sum)
    /// }).await?;
    /// assert_eq!(total, 42);
    ///
    /// let total = coordinator.lock("orders/42").with(async |lease| {
    ///     let sum: u32 = "42".parse()?; // an error of the work
    ///     lease.check()?;
    ///     anyhow::Ok(sum)
    /// }).await?;
    /// assert_eq!(total, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn with<T, E, Work, Running>(&self, work: Work) -> Result<T, E>
    where
        Work: FnOnce(LeaseWatch) -> Running,
        Running: Future<Output = Result<T, E>>,
        E: From<AcquireError> + From<Lost>,
    {
        let lease = self.acquire().await?;
        lease.run(work).await
    }

    /// Asks all nodes who holds the lock, and waits for each of them at most its time limit; once a quorum
    /// has answered, a quarter of a second or four round trips for the rest. Changes nothing. Of [several](crate::Coordinator::lock_all) resources it tells of the first, by
    /// name, that is held; the holder says [which](crate::Holder::key).
    ///
    /// # Errors
    ///
    /// [`AcquireError::Config`] when name or options cannot work. Nodes that do not answer are part
    /// of the ballot.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn inspect(&self) -> Result<VoteReport, AcquireError> {
        self.check()?;
        self.shared.introduced().await;
        Ok(Box::pin(self.inspect_each()).await)
    }

    /// Asks all nodes who waits for the lock in a queue, and lists these processes in the order in which they come, a
    /// hundred at most. Readers, and clients that want several locks simultaneously or a permit of a semaphore, wait without a
    /// place in a queue, and are not listed. A process that was killed may still be for six seconds. Where no
    /// node has answered, [the list is empty](QueueListing::has_more), and there may be more. Waits for the nodes as
    /// [`inspect`](Lock::inspect) does.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Config`] when name or options cannot work.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping the future.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn waiters(&self) -> Result<QueueListing, AcquireError> {
        self.check()?;
        self.shared.introduced().await;
        Ok(Box::pin(self.list_waiters()).await)
    }

    /// Deletes the counter of the lock's fencing tokens at every node that answers in time: for a name that
    /// nobody will use again, such as that of a test. It would end by itself five minutes after its last use.
    ///
    /// Where the name is used again, the next fencing token is smaller than one before, if the clocks do
    /// not keep the order, and what the lock guards refuses it.
    ///
    /// # Errors
    ///
    /// [`Config`](AcquireError::Config), where the lock's name or options cannot work.
    ///
    /// # Cancel safety
    ///
    /// What was asked by then is done.
    pub async fn forget(&self) -> Result<(), AcquireError> {
        self.validate()?;
        self.shared.introduced().await;
        Box::pin(self.forget_each()).await;
        Ok(())
    }

    async fn acquire_within(&self, wait: Wait) -> Result<Got, AcquireError> {
        let since = self.shared.now();
        let asking = AcquireSpan::begin(
            &self.name,
            &self.options.meter,
            (since, || self.shared.nodes.clock.wall()),
            || self.shared.context(&self.options.label),
        );
        // Apart from what follows: what is matched on would be kept for as long as it waits.
        let (plan, owner) =
            match self.plan(wait, since, asking.span()).and_then(|plan| Ok((plan, self.owner_now()?))) {
                Ok(prepared) => prepared,
                Err(error) => return self.told(asking, Err(error.into())),
            };
        let got = match owner {
            None => self.acquire_anew(plan).await,
            Some(owner) => Box::pin(self.acquire_as(owner, plan)).await,
        };
        self.told(asking, got)
    }

    /// What came of a call, once that is told.
    fn told(&self, asking: AcquireSpan, got: Result<Got, AcquireError>) -> Result<Got, AcquireError> {
        let outcome = match &got {
            Ok(Got::Lease(_)) => Some(Ok(())),
            Ok(Got::TakenHere) => None,
            Err(error) => Some(Err(error)),
        };
        asking.end(outcome, || self.shared.now());
        got
    }

    /// Who may have the lock already, if it can be acquired again.
    fn owner_now(&self) -> Result<Option<Owner>, ConfigError> {
        Ok(match &self.options.reentry {
            Reentry::None => None,
            Reentry::Of(owner) => Some(owner.clone()),
            Reentry::OfScope => Some(Owner::current().ok_or(ConfigError::NoOwner)?),
        })
    }

    async fn acquire_as(&self, owner: Owner, plan: Arc<AcquireRequest>) -> Result<Got, AcquireError> {
        let wait = plan.wait;
        let slot = owner.slot(self.shared.number, plan.line());
        // Somebody of the same owner may be acquiring it right now.
        let mut held = match wait {
            Wait::Never => match slot.try_lock() {
                Ok(held) => held,
                Err(_) => return Ok(Got::TakenHere),
            },
            Wait::UpTo(_) | Wait::Forever => tokio::select! {
                biased;
                held = slot.lock() => held,
                () = self.patience(&plan) => return Ok(Got::TakenHere),
            },
        };
        if let Some(again) = held.again().map(Lease::of)
            && again.check().is_ok()
        {
            if again.mode() == Mode::Shared && plan.mode == Mode::Exclusive {
                return Err(ConfigError::Upgrade.into());
            }
            return Ok(Got::Lease(again));
        }
        let got = self.acquire_anew(plan).await?;
        if let Got::Lease(lease) = &got {
            *held = lease.trace();
        }
        Ok(got)
    }

    async fn acquire_anew(&self, plan: Arc<AcquireRequest>) -> Result<Got, AcquireError> {
        if self.shared.closing.is_cancelled() {
            return Err(AcquireError::Closed);
        }
        if self.shared.tasks.are_left() {
            Box::pin(self.catch_up()).await;
        }
        let Some(mut coming) = self.line_up(&plan) else { return Ok(Got::TakenHere) };
        let came = tokio::select! {
            biased;
            came = coming.lease() => Some(came),
            () = self.patience(&plan) => None,
        };
        if let Some(came) = came {
            return came.map(Got::Lease);
        }
        // From here on a lease that comes is given back.
        let lines = self.shared.lines_of(plan.mode);
        let (news, held_here) = (lines.news(plan.line()), lines.is_held(plan.line()));
        let behind = matches!(coming, Coming::Served(_, Some(_)));
        drop(coming);
        let waited = self.shared.now().since(plan.since);
        // One future for whatever is asked, and the news not matched on: they would be kept while it waits.
        let contested = news.is_some();
        if let Some(news) = news
            && news.verdict != Verdict::Contended
        {
            return Err(plan.not_acquired(news, waited));
        }
        let why: BoxFuture<'_, AcquireError> = if contested || held_here {
            // The last contest may have asked one node only, or none.
            Box::pin(self.contended(waited))
        } else {
            Box::pin(self.undecided(behind, waited))
        };
        Err(why.await)
    }

    /// Whoever comes first contends for the lock in its own future; whoever comes behind others of this
    /// process is served by them. `None` for a caller that does not wait, if others came before.
    fn line_up(&self, plan: &Arc<AcquireRequest>) -> Option<Coming> {
        let (shared, runtime) = (self.shared.clone(), Handle::current());
        shared.tasks.see(&runtime);
        // Another reader of this process, in whatever line, says nothing of what the nodes say.
        if plan.mode == Mode::Shared && plan.wait == Wait::Never {
            let (waiter, delivery) = Waiter::alone(plan.clone(), runtime.clone());
            self.shared.tasks.spawn(readers::ask_once(shared, waiter), &runtime);
            return Some(self.served(delivery, None));
        }
        Some(match (self.shared.lines_of(plan.mode).join(plan, &runtime), plan.mode) {
            (Joined::Taken, _) => return None,
            (Joined::Behind(place, delivery), _) => self.served(delivery, Some(place)),
            (Joined::First, Mode::Exclusive) => {
                let service = Service::begin(shared, plan, ServedBy::Holder);
                Coming::Led(Box::pin(service.lead(plan.clone())))
            }
            (Joined::First, Mode::Shared) => {
                let (first, delivery) = Waiter::alone(plan.clone(), runtime.clone());
                self.shared.tasks.spawn(readers::serve(shared, first), &runtime);
                self.served(delivery, None)
            }
        })
    }

    /// Gives what a runtime has left undone when it ended the time that the nodes should need: it may be the release of what
    /// is asked for here.
    async fn catch_up(&self) {
        let undone = self.shared.tasks.help(&Handle::current());
        let overdue = self.shared.nodes.all_overdue_after(self.shared.ttl);
        let late = self.shared.rest_until(self.shared.now() + overdue);
        match select(join_all(undone), late).await {
            Either::Left(_) | Either::Right(_) => {}
        }
    }

    fn served(&self, delivery: Delivery, place: Option<Place>) -> Coming {
        Coming::Served(Helped::new(self.shared.tasks.registry(), delivery), place)
    }

    /// Ends with the caller's patience. To ask once takes as long as it takes.
    fn patience(&self, plan: &AcquireRequest) -> Until {
        self.shared.nodes.timers.until(match plan.wait {
            Wait::UpTo(longest) => Some(plan.since + longest),
            Wait::Never | Wait::Forever => None,
        })
    }

    /// The error for a lock that this process itself holds, with what the nodes say of it. To be
    /// boxed: whoever waits does not need the room before it has waited in vain.
    async fn contended(&self, waited: Duration) -> AcquireError {
        let report = match self.inspect().await {
            Ok(report) => Box::new(report),
            Err(error) => return error,
        };
        match self.resource() {
            Ok(resource) => AcquireError::Contended { resource, report, waited },
            Err(error) => error.into(),
        }
    }

    /// The error for a caller whose wait was over before the first round was: others hold the lock only if
    /// the nodes say so now, or if others of this process were in front of the caller.
    async fn undecided(&self, behind: bool, waited: Duration) -> AcquireError {
        let (report, resource) = match (self.inspect().await, self.resource()) {
            (Ok(report), Ok(resource)) => (report, resource),
            (Err(error), _) => return error,
            (_, Err(error)) => return error.into(),
        };
        if report.is_taken() || (behind && report.verdict() == Verdict::Contended) {
            return AcquireError::Contended { resource, report: Box::new(report), waited };
        }
        // That the lock is free now is no answer of the round, of which none had come in time.
        AcquireError::Unavailable { resource, report: Box::new(report.without_free()), waited }
    }

    fn plan(&self, wait: Wait, since: Moment, span: &SpanHandle) -> Result<Arc<AcquireRequest>, ConfigError> {
        Ok(Arc::new(AcquireRequest {
            resource: self.check()?,
            keys: self.keys.clone(),
            wait,
            transfers: self.shared.nodes.capabilities.has(Capability::Transfer),
            since,
            span: span.clone(),
            options: self.options.clone(),
        }))
    }

    /// What is to be locked, if that and the options can work.
    fn check(&self) -> Result<Resource, ConfigError> {
        let resource = self.resource()?;
        self.shared.check_ttl(self.options.ttl)?;
        if let Renewal::Every(every) = self.options.renewal {
            if every.is_zero() {
                return Err(ConfigError::Zero { setting: "the renewal interval" });
            }
            if every > self.options.ttl / 2 {
                return Err(ConfigError::RenewalTooRare { every, ttl: self.options.ttl });
            }
        }
        if self.options.max_hold.is_some_and(|longest| longest.is_zero()) {
            return Err(ConfigError::Zero { setting: "max_hold" });
        }
        if self.options.label.len() > MAX_LABEL {
            return Err(ConfigError::LabelTooLong { length: self.options.label.len(), most: MAX_LABEL });
        }
        self.check_capabilities()?;
        Ok(resource)
    }

    /// Whether all nodes can do what this lock needs.
    fn check_capabilities(&self) -> Result<(), ConfigError> {
        let needs = [
            (self.keys.are_several(), Capability::Several),
            (self.options.mode == Mode::Shared, Capability::Shared),
        ];
        let lacking = needs.into_iter().filter(|(needed, _)| *needed).map(|(_, capability)| capability);
        for capability in lacking {
            if let Some(node) = self.shared.nodes.without(capability) {
                return Err(ConfigError::Unsupported { node, capability });
            }
        }
        Ok(())
    }
}

/// What came of acquiring.
enum Got {
    Lease(Lease),
    /// This process has the lock, or somebody in it waits for it already, and the caller does not
    /// want to wait.
    TakenHere,
}

/// A lease that somebody is about to get.
enum Coming {
    /// By its own efforts.
    Led(BoxFuture<'static, Result<Hold, AcquireError>>),
    /// From others; with the place in the line that is given up when this is dropped, where others of the
    /// process came before.
    Served(Helped<Delivery>, Option<Place>),
}

impl Coming {
    async fn lease(&mut self) -> Result<Lease, AcquireError> {
        match self {
            Coming::Led(hold) => hold.await.map(Lease::of),
            Coming::Served(delivery, _) => match delivery.await {
                Ok(came) => came.map(Lease::of).map_err(|error| *error),
                // Somebody answers, unless the runtime is being shut down.
                Err(_) => Err(AcquireError::Closed),
            },
        }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("resource", &self.name)
            .field("mode", &self.options.mode)
            .field("ttl", &self.options.ttl)
            .field("wait", &self.options.wait)
            .field("renewal", &self.options.renewal)
            .field("max_hold", &self.options.max_hold)
            .finish_non_exhaustive()
    }
}
