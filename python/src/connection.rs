//! A coordinator with its settings, from which a forked child makes one of its own.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use pyo3::prelude::*;
use quorlock::Coordinator;
use quorlock::blocking::Background;
use quorlock::node::ListedKeys;
use quorlock::runtime::Mutex;
use quorlock_config::{Layer, Sources, Warn, keys_of};
use tokio::sync::watch;

use crate::election::Election;
use crate::error::{self, duration, with_causes};
use crate::kept;
use crate::keywords::for_python;
use crate::lease::release_kept;
use crate::lock::{Kind, Lock, Options, Owner};
use crate::process::{Own, Process, notice_fork};
use crate::reactor::{Reactor, dispatch, wait, warn_of_loop};
use crate::report;

/// A coordinator in this process.
pub(crate) struct Live {
    pub(crate) coordinator: Coordinator,
    pub(crate) background: Background,
    /// Whether it was closed, for those who wait for what may never come.
    pub(crate) closed: watch::Sender<bool>,
}

#[pyclass(frozen, weakref)]
pub(crate) struct Connection {
    settings: Settings,
    /// `None` once it is closed.
    live: Mutex<Option<Own<Arc<Live>>>>,
}

struct Settings {
    /// Those that the command has, too.
    shared: quorlock_config::Settings,
    label: Option<String>,
    connect_timeout: Option<Duration>,
}

impl Settings {
    fn connect(&self, warn: Warn<'_>) -> Result<Live, String> {
        let sources = &self.shared.given().sources;
        let builder = self
            .shared
            .builder(warn)
            .map_err(|refusal| in_words(sources, &refusal.keys, &refusal.problem))?;
        let mut builder = builder.ttl(self.shared.ttl());
        if let Some(label) = &self.label {
            builder = builder.label(label);
        }
        if let Some(timeout) = self.connect_timeout {
            builder = builder.connect_timeout(timeout);
        }
        let coordinator = builder.build().map_err(|error| {
            let keys = keys_of(&error, self.shared.given().ttl).unwrap_or_default();
            in_words(sources, &keys, &with_causes(&error))
        })?;
        let background = Background::beside(&coordinator).map_err(|error| with_causes(&error))?;
        drop(Process::here().background.set(background.clone()));
        Ok(Live { coordinator, background, closed: watch::Sender::new(false) })
    }
}

/// What is wrong with the settings, behind the variables and the places in the file that they are from. The call's own
/// keywords are not named.
fn in_words(sources: &Sources, keys: &[&'static str], problem: &str) -> String {
    sources.named(keys, problem, |_| None)
}

/// Keeps warnings until they can be logged.
#[derive(Default)]
struct Kept(RefCell<Vec<String>>);

impl Kept {
    fn warn(&self, sentence: &str) {
        self.0.borrow_mut().push(for_python(sentence.to_owned()));
    }

    fn log(self, py: Python<'_>) -> PyResult<()> {
        for sentence in self.0.into_inner() {
            py.import("quorlock._events")?.call_method1("say", (sentence,))?;
        }
        Ok(())
    }
}

/// Warns of nothing: the caller that made the coordinator has been warned.
fn in_silence(_: &str) {}

impl Connection {
    /// Returns the coordinator of this process, which a child makes at its first use.
    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<Arc<Live>> {
        notice_fork(py)?;
        // Python runs without the mutex: another thread may wait for that with the interpreter.
        match self.connected().map_err(|error| error::config(py, &error))? {
            Some((live, false)) => Ok(live),
            Some((live, true)) => {
                py.import("quorlock._events")?.call_method0("begin_in_child")?;
                Ok(live)
            }
            None => Err(error::closed(py)),
        }
    }

    /// Returns it, and whether it was made just now.
    fn connected(&self) -> Result<Option<(Arc<Live>, bool)>, String> {
        let mut live = self.live.lock();
        let Some(live) = live.as_mut() else { return Ok(None) };
        if let Some(live) = live.get() {
            return Ok(Some((live.clone(), false)));
        }
        let made = Arc::new(self.settings.connect(&in_silence)?);
        *live = Own::new(made.clone());
        Ok(Some((made, true)))
    }

    /// The coordinator, if this process has one and has not closed it. It is closed from now on.
    fn take(&self) -> Option<Arc<Live>> {
        let taken = self.live.lock().take()?;
        let live = taken.get()?;
        live.closed.send_replace(true);
        Some(live.clone())
    }
}

/// Closes several at the same time, and releases what is kept of others.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>, connections: Vec<Py<Connection>>, timeout: f64) -> PyResult<()> {
    let timeout = duration("timeout", Some(timeout))?.unwrap_or_default();
    let live: Vec<_> = connections.into_iter().filter_map(|connection| connection.get().take()).collect();
    let Some(background) = Process::here().background.get() else { return Ok(()) };
    let kept = release_kept(py);
    wait(py, background, async move {
        let closed = join_all(live.iter().map(|live| live.coordinator.close(timeout)));
        join(closed, background.within(timeout, kept)).await;
    })
}

#[pymethods]
impl Connection {
    #[new]
    #[pyo3(signature = (
        nodes, *, config=None, ttl=None, max_ttl=None, key_prefix=None, label=None, username=None, password=None, password_file=None, quorum=None,
        node_timeout=None, connect_timeout=None, drift=None, restart_guard=None, log=None, tls_ca=None, tls_cert=None,
        tls_key=None, tls_server_name=None
    ))]
    #[expect(
        clippy::too_many_arguments,
        clippy::needless_pass_by_value,
        reason = "they are keywords in Python, which gives values"
    )]
    fn new(
        py: Python<'_>,
        nodes: Option<Vec<String>>,
        config: Option<PathBuf>,
        ttl: Option<f64>,
        max_ttl: Option<f64>,
        key_prefix: Option<String>,
        label: Option<String>,
        username: Option<String>,
        password: Option<String>,
        password_file: Option<PathBuf>,
        quorum: Option<usize>,
        node_timeout: Option<f64>,
        connect_timeout: Option<f64>,
        drift: Option<f64>,
        restart_guard: Option<bool>,
        log: Option<usize>,
        tls_ca: Option<PathBuf>,
        tls_cert: Option<PathBuf>,
        tls_key: Option<PathBuf>,
        tls_server_name: Option<String>,
    ) -> PyResult<Connection> {
        kept::keep(py)?;
        if Process::here().exits.get().is_some() {
            return Err(error::exits(py));
        }
        if password.is_some() && password_file.is_some() {
            return Err(error::config(py, "password and password_file: give the one that has the password"));
        }
        let mut set = Layer {
            key_prefix,
            node_timeout: duration("node_timeout", node_timeout)?,
            drift,
            max_ttl: duration("max_ttl", max_ttl)?,
            username,
            password,
            password_file,
            tls_ca,
            tls_cert,
            tls_key,
            tls_server_name,
            restart_guard,
            quorum,
            log,
            ttl: duration("ttl", ttl)?,
            ..Layer::default()
        };
        let (kinds, kept) = (quorlock_kinds::all(), Kept::default());
        let configured = nodes.is_none();
        // One string may have several addresses, as in the environment.
        for list in nodes.into_iter().flatten() {
            set.nodes.extend(kinds.split(&list).map_err(|error| error::of_config(py, &error.into()))?);
        }
        if configured {
            // Other threads of Python may change the environment only while they have the interpreter.
            let read = Layer::read(set, config.as_deref(), &kinds, &|sentence| kept.warn(sentence));
            set = read.map_err(|error| error::config(py, &error))?;
        }
        kept.log(py)?;
        let sources = set.sources.clone();
        // The password may be what a command of the shell says.
        let (shared, kept) = py.detach(|| {
            let kept = Kept::default();
            (quorlock_config::Settings::new(set, kinds, &|sentence| kept.warn(sentence)), kept)
        });
        let shared = shared
            .map_err(|refusal| error::config(py, &in_words(&sources, &refusal.keys, &refusal.problem)))?;
        let connect_timeout = duration("connect_timeout", connect_timeout)?;
        let settings = Settings { shared, label, connect_timeout };
        let live = settings.connect(&|sentence| kept.warn(sentence));
        let live = live.map_err(|error| error::config(py, &error))?;
        kept.log(py)?;
        Ok(Connection { settings, live: Mutex::new(Some(Own::new(Arc::new(live)))) })
    }

    /// A lock of one name, or of several together.
    #[pyo3(signature = (names, *, together=false, shared=false, ttl=None, wait=None, renew=None, max_hold=None,
        label=None, fencing=true, metrics_class=None, on_wait=None, owner=None, handoff=None, handoff_within=None,
        not_in_outage=false))]
    #[expect(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "they are keywords in Python"
    )]
    fn lock(
        slf: Py<Self>,
        py: Python<'_>,
        names: Vec<String>,
        together: bool,
        shared: bool,
        ttl: Option<f64>,
        wait: Option<f64>,
        renew: Option<f64>,
        max_hold: Option<f64>,
        label: Option<String>,
        fencing: bool,
        metrics_class: Option<String>,
        on_wait: Option<u64>,
        owner: Option<Py<Owner>>,
        handoff: Option<u32>,
        handoff_within: Option<f64>,
        not_in_outage: bool,
    ) -> PyResult<Lock> {
        let kind = if together { Kind::Several } else { Kind::One { shared } };
        let mut options = Options::new(ttl, wait, renew, max_hold, label, fencing, metrics_class)?;
        options.handoff = (handoff, duration("handoff_within", handoff_within)?);
        (options.on_wait, options.owner, options.not_in_outage) = (on_wait, owner, not_in_outage);
        options.wait = options.wait.or(slf.get().settings.shared.given().wait);
        Lock::new(py, slf, names, kind, options)
    }

    /// One of several permits.
    #[pyo3(signature = (name, permits, *, ttl=None, wait=None, renew=None, max_hold=None, label=None, fencing=true,
        on_wait=None, handoff=None, handoff_within=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn semaphore(
        slf: Py<Self>,
        py: Python<'_>,
        name: String,
        permits: usize,
        ttl: Option<f64>,
        wait: Option<f64>,
        renew: Option<f64>,
        max_hold: Option<f64>,
        label: Option<String>,
        fencing: bool,
        on_wait: Option<u64>,
        handoff: Option<u32>,
        handoff_within: Option<f64>,
    ) -> PyResult<Lock> {
        let mut options = Options::new(ttl, wait, renew, max_hold, label, fencing, None)?;
        options.handoff = (handoff, duration("handoff_within", handoff_within)?);
        options.on_wait = on_wait;
        options.wait = options.wait.or(slf.get().settings.shared.given().wait);
        Lock::new(py, slf, vec![name], Kind::Permit(permits), options)
    }

    #[pyo3(signature = (name, *, ttl=None, wait=None, max_hold=None, on_wait=None))]
    fn election(
        slf: Py<Self>,
        py: Python<'_>,
        name: String,
        ttl: Option<f64>,
        wait: Option<f64>,
        max_hold: Option<f64>,
        on_wait: Option<u64>,
    ) -> PyResult<Election> {
        let mut options = Options::new(ttl, wait, None, max_hold, None, true, None)?;
        options.on_wait = on_wait;
        Election::new(py, slf, name, options)
    }

    /// Its nodes, without their passwords.
    #[getter]
    fn text(&self) -> String {
        let live = self.live.lock().as_ref().and_then(Own::get).cloned();
        let Some(live) = live else {
            return format!(
                "{} addresses, not connected in this process",
                self.settings.shared.given().nodes.len()
            );
        };
        let nodes: Vec<_> =
            live.coordinator.health().now().iter().map(|node| node.node.to_string()).collect();
        nodes.join(", ")
    }

    /// The nodes now, without asking them.
    fn health(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        report::health(py, &self.live(py)?.coordinator.health().now())
    }

    /// What is wrong with the nodes by what they have said of themselves, without asking them.
    fn warnings(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        report::findings(py, &self.live(py)?.coordinator.warnings())
    }

    /// Examines all nodes.
    #[pyo3(signature = (reactor=None))]
    fn doctor(&self, py: Python<'_>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let live = self.live(py)?;
        let coordinator = live.coordinator.clone();
        dispatch(py, &live.background, reactor, async move {
            let report = coordinator.doctor().await;
            move |py: Python<'_>| report::findings(py, &report.findings)
        })
    }

    /// The names of locks that begin with `prefix`, and the nodes that list none.
    #[pyo3(signature = (prefix, reactor=None))]
    fn names(&self, py: Python<'_>, prefix: &str, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let live = self.live(py)?;
        let mut listing = live.coordinator.list(prefix, ListedKeys::Locks);
        dispatch(py, &live.background, reactor, async move {
            let (mut names, mut failed) = (BTreeSet::new(), BTreeMap::new());
            while let Some(page) = listing.next_page().await {
                match page.names {
                    Ok(listed) => names.extend(listed),
                    Err(error) => drop(failed.insert(page.node.to_string(), error.to_string())),
                }
            }
            move |py: Python<'_>| report::names(py, &names, failed)
        })
    }

    /// Ends all leases, waits for their releases, and closes the connections.
    #[pyo3(signature = (timeout, reactor=None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let timeout = duration("timeout", timeout)?.unwrap_or(Duration::MAX);
        if reactor.is_none() {
            // Before it is taken, since a warning may be raised.
            warn_of_loop(py)?;
        }
        let live = self.take();
        // Otherwise it is closed already, or this is a child that has not used what it inherited.
        let Some(live) = live else {
            return match reactor {
                None => Ok(py.None()),
                Some(reactor) => reactor.add_done(py, |py| Ok(py.None())),
            };
        };
        let background = live.background.clone();
        let close = async move { live.coordinator.close(timeout).await };
        match reactor {
            None => wait(py, &background, close).map(|()| py.None()),
            Some(_) => dispatch(py, &background, reactor, async move {
                close.await;
                |py: Python<'_>| Ok(py.None())
            }),
        }
    }
}
