//! Elections and their observers.

use std::mem;
use std::sync::Arc;

use futures::lock::Mutex as AsyncMutex;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use quorlock::runtime::Mutex;

use crate::connection::{Connection, Live};
use crate::error::{self, duration};
use crate::lease::{Held, Lease};
use crate::lock::Options;
use crate::process::{Own, Process};
use crate::reactor::{Reactor, dispatch};
use crate::report;

#[pyclass(frozen)]
pub(crate) struct Election {
    connection: Py<Connection>,
    name: String,
    options: Options,
    made: Mutex<Own<quorlock::Election>>,
}

fn make(
    py: Python<'_>,
    connection: &Connection,
    name: &str,
    options: &Options,
) -> PyResult<quorlock::Election> {
    let mut election = connection.live(py)?.coordinator.election(name);
    if let Some(ttl) = options.ttl {
        election = election.ttl(ttl);
    }
    if let Some(wait) = options.wait {
        election = election.wait(wait);
    }
    if let Some(longest) = options.max_hold {
        election = election.max_hold(longest);
    }
    if let Some(number) = options.on_wait {
        election = election.on_wait(move |waiting| Process::here().called.push_wait(number, waiting));
    }
    Ok(election)
}

impl Election {
    pub(crate) fn new(
        py: Python<'_>,
        connection: Py<Connection>,
        name: String,
        options: Options,
    ) -> PyResult<Election> {
        let election = make(py, connection.get(), &name, &options)?;
        election.validate().map_err(|error| error::of_config(py, &error))?;
        Ok(Election { connection, name, options, made: Mutex::new(Own::new(election)) })
    }

    fn here(&self, py: Python<'_>) -> PyResult<(quorlock::Election, Arc<Live>)> {
        let live = self.connection.get().live(py)?;
        if let Some(election) = self.made.lock().get() {
            return Ok((election.clone(), live));
        }
        // Python may run here, so without the mutex: two threads of a child may both make one, of which either will do.
        let election = make(py, self.connection.get(), &self.name, &self.options)?;
        let parents = mem::replace(&mut *self.made.lock(), Own::new(election.clone()));
        drop(parents);
        Ok((election, live))
    }
}

#[pymethods]
impl Election {
    #[getter]
    fn name(&self) -> String {
        self.name.clone()
    }

    /// What it is of, and the options that are set.
    #[getter]
    fn text(&self) -> String {
        format!("of `{}`{}", error::printable(&self.name), self.options.text())
    }

    /// Waits until elected.
    #[pyo3(signature = (value, reactor=None))]
    fn campaign(&self, py: Python<'_>, value: String, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let (election, live) = self.here(py)?;
        let background = live.background.clone();
        dispatch(py, &live.background, reactor, async move {
            let elected = election.campaign(value).await;
            move |py: Python<'_>| match elected {
                Ok(leadership) => {
                    Lease::hand_out(py, background, Held::One(leadership.into_lease().into()), None)
                }
                Err(error) => Err(error::of_acquire(py, &error)),
            }
        })
    }

    /// Asks all nodes who leads.
    #[pyo3(signature = (reactor=None))]
    fn leader(&self, py: Python<'_>, reactor: Option<&Reactor>) -> PyResult<Py<PyAny>> {
        let (election, live) = self.here(py)?;
        dispatch(py, &live.background, reactor, async move {
            let observed = election.leader().await;
            move |py: Python<'_>| report::observed(py, &observed.map_err(|e| error::of_config(py, &e))?)
        })
    }

    fn observe(&self, py: Python<'_>) -> PyResult<Observer> {
        let (election, live) = self.here(py)?;
        let observer = election.observe().map_err(|error| error::of_config(py, &error))?;
        Ok(Observer { inner: Own::new((Arc::new(AsyncMutex::new(observer)), live)) })
    }
}

type Shared = Arc<AsyncMutex<quorlock::Observer>>;

/// Follows the leader.
#[pyclass(frozen)]
pub(crate) struct Observer {
    inner: Own<(Shared, Arc<Live>)>,
}

#[pymethods]
impl Observer {
    /// Waits for another leader than last time; the first call returns the current one. Raises
    /// `TimeoutError` if nothing has changed after `timeout` seconds.
    #[pyo3(signature = (timeout=None, reactor=None))]
    fn changed(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        reactor: Option<&Reactor>,
    ) -> PyResult<Py<PyAny>> {
        let Some((shared, live)) = self.inner.get() else {
            return Err(error::config(py, "this observer belongs to the parent process: observe() again"));
        };
        let (shared, longest) = (shared.clone(), duration("timeout", timeout)?);
        let (background, mut closed) = (live.background.clone(), live.closed.subscribe());
        dispatch(py, &live.background, reactor, async move {
            let next = async { shared.lock().await.changed().await };
            let change = async {
                match longest {
                    Some(longest) => background.within(longest, next).await,
                    None => Some(next.await),
                }
            };
            let observed = tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => Err(()),
                observed = change => Ok(observed),
            };
            move |py: Python<'_>| match &observed {
                Ok(Some(now)) => report::observed(py, now),
                Ok(None) => Err(PyTimeoutError::new_err("the leader has not changed")),
                Err(()) => Err(error::closed(py)),
            }
        })
    }
}
