//! Locks of one name or several, and semaphores: what is acquired, and its options.

use std::mem;
use std::pin::pin;
use std::time::Duration;

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use quorlock::lock::{Multi, Single};
use quorlock::runtime::{Clock as _, Mutex, SystemClock};
use quorlock::votes::{NodeVote, VoteOutcome, VoteReport};
use quorlock::{
    AcquireError, ConfigError, Fencing, Handoff, Permit, PermitError, Renewal, Resource, Semaphore, Token,
    Wait,
};

use crate::connection::Connection;
use crate::error::{self, duration};
use crate::lease::{Held, Lease};
use crate::process::{Own, Process};
use crate::reactor::{Reactor, dispatch};
use crate::report;

/// The options of one lock, in the library's types.
pub(crate) struct Options {
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Wait>,
    renewal: Option<Renewal>,
    pub(crate) max_hold: Option<Duration>,
    label: Option<String>,
    fencing: Fencing,
    metrics_class: Option<String>,
    /// The number of the callback for the progress of a wait.
    pub(crate) on_wait: Option<u64>,
    pub(crate) owner: Option<Py<Owner>>,
    /// How often it is handed on, and within which time.
    pub(crate) handoff: (Option<u32>, Option<Duration>),
    /// Whether a wait ends when no quorum of nodes answers any more, as redis-py's.
    pub(crate) not_in_outage: bool,
}

impl Options {
    /// A negative `wait` is for ever, and a negative `renew` is manual renewal.
    pub(crate) fn new(
        ttl: Option<f64>,
        wait: Option<f64>,
        renew: Option<f64>,
        max_hold: Option<f64>,
        label: Option<String>,
        fencing: bool,
        metrics_class: Option<String>,
    ) -> PyResult<Options> {
        let wait = match wait {
            Some(seconds) if seconds < 0.0 => Some(Wait::Forever),
            seconds => duration("wait", seconds)?.map(|most| match most {
                Duration::ZERO => Wait::Never,
                most => Wait::UpTo(most),
            }),
        };
        let renewal = match renew {
            Some(seconds) if seconds < 0.0 => Some(Renewal::Manual),
            seconds => duration("renew", seconds)?.map(Renewal::Every),
        };
        Ok(Options {
            ttl: duration("ttl", ttl)?,
            wait,
            renewal,
            max_hold: duration("max_hold", max_hold)?,
            label,
            fencing: if fencing { Fencing::On } else { Fencing::Off },
            metrics_class,
            on_wait: None,
            owner: None,
            handoff: (None, None),
            not_in_outage: false,
        })
    }
}

impl Options {
    /// Those that are set, each with a comma before it.
    pub(crate) fn text(&self) -> String {
        let mut set = Vec::new();
        set.extend(self.ttl.map(|ttl| format!(", ttl={}", ttl.as_secs_f64())));
        set.extend(self.wait.map(|wait| match wait {
            Wait::Never => ", wait=0".to_owned(),
            Wait::UpTo(most) => format!(", wait={}", most.as_secs_f64()),
            Wait::Forever | _ => ", wait=None".to_owned(),
        }));
        set.extend(self.renewal.map(|renewal| match renewal {
            Renewal::Every(every) => format!(", renew={}", every.as_secs_f64()),
            Renewal::Automatic => ", renew=True".to_owned(),
            Renewal::Manual | _ => ", renew=False".to_owned(),
        }));
        set.extend(self.max_hold.map(|longest| format!(", max_hold={}", longest.as_secs_f64())));
        set.extend(self.label.as_ref().map(|label| format!(", label={}", error::printable(label))));
        set.extend((self.fencing == Fencing::Off).then(|| ", fencing=False".to_owned()));
        set.extend(
            self.metrics_class.as_ref().map(|class| format!(", metrics_class={}", error::printable(class))),
        );
        set.extend(self.owner.as_ref().map(|_| ", owner=…".to_owned()));
        let (times, within) = self.handoff;
        set.extend(times.map(|times| format!(", handoff={times}")));
        set.extend(within.map(|within| format!(", handoff_within={}", within.as_secs_f64())));
        set.concat()
    }

    fn handoff(&self) -> Handoff {
        let (times, within) = self.handoff;
        let handoff = times.map(Handoff::times).unwrap_or_default();
        within.map_or(handoff, |within| handoff.within(within))
    }
}

/// Who may acquire a lock again while holding it: a thread, a task, a request, or any part of the program that has it.
///
/// Those that have it do not exclude each other. The last of their leases releases the lock.
#[pyclass(frozen, module = "quorlock")]
pub(crate) struct Owner {
    /// Of the process that used it last: a child holds nothing.
    here: Mutex<Own<quorlock::Owner>>,
}

impl Owner {
    fn here(&self) -> quorlock::Owner {
        let mut here = self.here.lock();
        if let Some(owner) = here.get() {
            return owner.clone();
        }
        let owner = quorlock::Owner::new();
        *here = Own::new(owner.clone());
        owner
    }
}

#[pymethods]
impl Owner {
    #[new]
    fn new() -> Owner {
        Owner { here: Mutex::new(Own::new(quorlock::Owner::new())) }
    }
}

pub(crate) enum Kind {
    One { shared: bool },
    Several,
    Permit(usize),
}

/// What to acquire, with its options.
#[pyclass(frozen)]
pub(crate) struct Lock {
    connection: Py<Connection>,
    names: Vec<String>,
    kind: Kind,
    options: Options,
    /// Of the process that used it last.
    wanted: Mutex<Own<Wanted>>,
}

#[derive(Clone)]
enum Wanted {
    One(quorlock::Lock<Single, Fencing>),
    Several(quorlock::Lock<Multi, Fencing>),
    Permit(Semaphore<Fencing>),
}

/// Why nothing was acquired.
enum Refusal {
    Lock(AcquireError),
    Permit(PermitError),
}

impl Refusal {
    fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Refusal::Lock(error) => error::of_acquire(py, error),
            Refusal::Permit(error) => error::of_permit(py, error),
        }
    }
}

/// What was acquired, and the number of the permit if it is one.
type Acquired = (Held, Option<usize>);

fn permitted(permit: Permit<Fencing>) -> Acquired {
    let number = permit.number();
    (Held::One(permit.into_lease()), Some(number))
}

/// How often a wait that ends in an outage asks whether the nodes answer. It ends when they did not twice.
const LOOK: Duration = Duration::from_secs(5);

/// Acquires, unless the nodes stop answering. A node that answers without a vote, such as one that has restarted, is no
/// outage: it ends by itself.
async fn acquire_unless_outage(
    lock: &quorlock::Lock<Single, Fencing>,
    name: &str,
) -> Result<quorlock::Lease<Single, Fencing>, AcquireError> {
    let clock = SystemClock::default();
    let (mut acquiring, since, mut silent) = (pin!(lock.acquire()), clock.now(), false);
    loop {
        let asked_again = async {
            clock.sleep_until(clock.now() + LOOK).await;
            lock.inspect().await
        };
        let report = tokio::select! {
            biased;
            acquired = &mut acquiring => return acquired,
            report = asked_again => Box::new(report?),
        };
        let answers =
            |vote: &&NodeVote| !matches!(vote.outcome, VoteOutcome::Failed(_) | VoteOutcome::Pending);
        let outage = report.votes().iter().filter(answers).count() < report.quorum().needed();
        if outage && silent {
            let (resource, waited) =
                (Resource::parse(name).map_err(ConfigError::from)?, clock.now().since(since));
            return Err(AcquireError::Unavailable { resource, report, waited });
        }
        silent = outage;
    }
}

impl Wanted {
    async fn acquire_unless_outage(&self, name: &str) -> Result<Acquired, Refusal> {
        match self {
            Wanted::One(lock) => acquire_unless_outage(lock, name)
                .await
                .map(|lease| (Held::One(lease), None))
                .map_err(Refusal::Lock),
            Wanted::Several(_) | Wanted::Permit(_) => self.acquire().await,
        }
    }

    async fn acquire(&self) -> Result<Acquired, Refusal> {
        match self {
            Wanted::One(lock) => {
                lock.acquire().await.map(|lease| (Held::One(lease), None)).map_err(Refusal::Lock)
            }
            Wanted::Several(lock) => {
                lock.acquire().await.map(|lease| (Held::Several(lease), None)).map_err(Refusal::Lock)
            }
            Wanted::Permit(semaphore) => semaphore.acquire().await.map(permitted).map_err(Refusal::Permit),
        }
    }

    async fn try_acquire(&self) -> Result<Option<Acquired>, Refusal> {
        Ok(match self {
            Wanted::One(lock) => {
                lock.try_acquire().await.map_err(Refusal::Lock)?.map(|lease| (Held::One(lease), None))
            }
            Wanted::Several(lock) => {
                lock.try_acquire().await.map_err(Refusal::Lock)?.map(|lease| (Held::Several(lease), None))
            }
            Wanted::Permit(semaphore) => {
                semaphore.try_acquire().await.map_err(Refusal::Permit)?.map(permitted)
            }
        })
    }

    async fn inspect(&self) -> Result<Vec<VoteReport>, ConfigError> {
        match self {
            Wanted::One(lock) => lock.inspect().await.map(|report| vec![report]),
            Wanted::Several(lock) => lock.inspect().await.map(|report| vec![report]),
            Wanted::Permit(semaphore) => semaphore.inspect().await,
        }
    }
}

macro_rules! with_options {
    ($lock:expr, $options:expr) => {{
        let mut lock = $lock.fencing($options.fencing);
        if let Some(ttl) = $options.ttl {
            lock = lock.ttl(ttl);
        }
        if let Some(wait) = $options.wait {
            lock = lock.wait(wait);
        }
        if let Some(renewal) = $options.renewal {
            lock = lock.renewal(renewal);
        }
        if let Some(longest) = $options.max_hold {
            lock = lock.max_hold(longest);
        }
        if let Some(label) = &$options.label {
            lock = lock.label(label);
        }
        if let Some(number) = $options.on_wait {
            lock = lock.on_wait(move |waiting| Process::here().called.push_wait(number, waiting));
        }
        lock
    }};
}

impl Lock {
    pub(crate) fn new(
        py: Python<'_>,
        connection: Py<Connection>,
        names: Vec<String>,
        kind: Kind,
        options: Options,
    ) -> PyResult<Lock> {
        let wanted = wanted(py, connection.get(), &names, &kind, &options)?;
        let checked = match &wanted {
            Wanted::One(lock) => lock.validate(),
            Wanted::Several(lock) => lock.validate(),
            Wanted::Permit(semaphore) => semaphore.validate(),
        };
        checked.map_err(|error| error::of_config(py, &error))?;
        Ok(Lock { connection, names, kind, options, wanted: Mutex::new(Own::new(wanted)) })
    }

    fn wanted(&self, py: Python<'_>) -> PyResult<Wanted> {
        if let Some(wanted) = self.wanted.lock().get() {
            return Ok(wanted.clone());
        }
        // Python may run here, so without the mutex: two threads of a child may both make one, of which either will do.
        let wanted = wanted(py, self.connection.get(), &self.names, &self.kind, &self.options)?;
        let parents = mem::replace(&mut *self.wanted.lock(), Own::new(wanted.clone()));
        drop(parents);
        Ok(wanted)
    }

    fn single(&self, py: Python<'_>, what: &str) -> PyResult<quorlock::Lock<Single, Fencing>> {
        match self.wanted(py)? {
            Wanted::One(lock) => Ok(lock),
            Wanted::Several(_) | Wanted::Permit(_) => {
                Err(error::config(py, &format!("{what} is for a lock of one name")))
            }
        }
    }
}

fn wanted(
    py: Python<'_>,
    connection: &Connection,
    names: &[String],
    kind: &Kind,
    options: &Options,
) -> PyResult<Wanted> {
    let live = connection.live(py)?;
    let (coordinator, name) = (&live.coordinator, names.first().map_or("", String::as_str));
    Ok(match kind {
        Kind::One { shared } => {
            let lock = with_options!(coordinator.lock(name), options);
            let lock = match &options.metrics_class {
                Some(class) => lock.metrics_class(class),
                None => lock,
            };
            let lock = match &options.owner {
                Some(owner) => lock.owner(&owner.get().here()),
                None => lock,
            };
            let lock = lock.handoff(options.handoff());
            Wanted::One(if *shared { lock.shared() } else { lock })
        }
        Kind::Several => {
            let lock = with_options!(coordinator.lock_all(names), options);
            Wanted::Several(match &options.owner {
                Some(owner) => lock.owner(&owner.get().here()),
                None => lock,
            })
        }
        Kind::Permit(permits) => {
            let semaphore = with_options!(coordinator.semaphore(name, *permits), options);
            Wanted::Permit(semaphore.handoff(options.handoff()))
        }
    })
}

#[pymethods]
impl Lock {
    /// Refuses a lock that could not be retained for this many seconds.
    fn validate_retention(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let time = duration("every", Some(seconds))?.unwrap_or_default();
        let lock = self.single(py, "every")?;
        lock.validate_retention(time).map_err(|error| error::of_config(py, &error))
    }

    #[getter]
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// What it is of, and the options that are set.
    #[getter]
    fn text(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| format!("`{}`", error::printable(name))).collect();
        let kind = match self.kind {
            Kind::One { shared: true } => " for readers".to_owned(),
            Kind::One { shared: false } | Kind::Several => String::new(),
            Kind::Permit(permits) => format!(" with {permits} permits"),
        };
        format!("of {}{kind}{}", names.join(", "), self.options.text())
    }

    #[pyo3(signature = (reactor=None))]
    pub(crate) fn acquire(&self, py: Python<'_>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let (live, wanted) = (self.connection.get().live(py)?, self.wanted(py)?);
        let background = live.background.clone();
        let not_in_outage = self.names.first().filter(|_| self.options.not_in_outage).cloned();
        dispatch(py, &live.background, reactor, async move {
            let acquired = match not_in_outage {
                Some(name) => wanted.acquire_unless_outage(&name).await,
                None => wanted.acquire().await,
            };
            move |py: Python<'_>| match acquired {
                Ok((held, permit)) => Lease::hand_out(py, background, held, permit),
                Err(refusal) => Err(refusal.raise(py)),
            }
        })
    }

    /// Returns `None` if another client holds it.
    #[pyo3(signature = (reactor=None))]
    pub(crate) fn try_acquire(&self, py: Python<'_>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let (live, wanted) = (self.connection.get().live(py)?, self.wanted(py)?);
        let background = live.background.clone();
        dispatch(py, &live.background, reactor, async move {
            let acquired = wanted.try_acquire().await;
            move |py: Python<'_>| match acquired {
                Ok(Some((held, permit))) => Lease::hand_out(py, background, held, permit),
                Ok(None) => Ok(py.None()),
                Err(refusal) => Err(refusal.raise(py)),
            }
        })
    }

    /// Asks all nodes: one report, or one for each permit.
    #[pyo3(signature = (reactor=None))]
    fn inspect(&self, py: Python<'_>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let (live, wanted) = (self.connection.get().live(py)?, self.wanted(py)?);
        dispatch(py, &live.background, reactor, async move {
            let inspected = wanted.inspect().await;
            move |py: Python<'_>| {
                let reports = inspected.map_err(|error| error::of_config(py, &error))?;
                let mut reports =
                    reports.iter().map(|votes| report::of_votes(py, votes)).collect::<PyResult<Vec<_>>>()?;
                match (&wanted, reports.pop()) {
                    (Wanted::One(_) | Wanted::Several(_), Some(report)) => Ok(report),
                    (_, last) => {
                        reports.extend(last);
                        reports.into_py_any(py)
                    }
                }
            }
        })
    }

    /// Lists who waits.
    #[pyo3(signature = (reactor=None))]
    fn waiters(&self, py: Python<'_>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let lock = self.single(py, "waiters()")?;
        let background = self.connection.get().live(py)?.background.clone();
        dispatch(py, &background, reactor, async move {
            let listed = lock.waiters().await;
            move |py: Python<'_>| report::queue(py, &listed.map_err(|e| error::of_config(py, &e))?)
        })
    }

    /// Waits until it is free, without acquiring it.
    #[pyo3(signature = (reactor=None))]
    fn until_free(&self, py: Python<'_>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let lock = self.single(py, "until_free()")?;
        let background = self.connection.get().live(py)?.background.clone();
        dispatch(py, &background, reactor, async move {
            let free = lock.until_free().await;
            move |py: Python<'_>| match free {
                Ok(()) => Ok(py.None()),
                Err(error) => Err(error::of_acquire(py, &error)),
            }
        })
    }

    /// Reads who held it before.
    #[pyo3(signature = (reactor=None))]
    fn log(&self, py: Python<'_>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let lock = self.single(py, "log()")?;
        let background = self.connection.get().live(py)?.background.clone();
        dispatch(py, &background, reactor, async move {
            let read = lock.log().await;
            move |py: Python<'_>| report::log(py, &read.map_err(|e| error::of_config(py, &e))?)
        })
    }

    /// Takes it away from the holder with this token.
    #[pyo3(signature = (token, reactor=None))]
    fn revoke(&self, py: Python<'_>, token: &[u8], reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let lock = self.single(py, "revoke()")?;
        let background = self.connection.get().live(py)?.background.clone();
        let token = Token::found(token);
        dispatch(py, &background, reactor, async move {
            let revoked = lock.revoke(&token).await;
            move |py: Python<'_>| report::of_votes(py, &revoked.map_err(|e| error::of_config(py, &e))?)
        })
    }
}
