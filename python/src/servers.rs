//! Servers for tests, as `quorlock demo` starts them.

use std::io;

use pyo3::exceptions::{PyIndexError, PyRuntimeError};
use pyo3::prelude::*;
use quorlock::runtime::Mutex;
use quorlock_servers::Resp;
use tokio::runtime::Runtime;

use crate::process::Own;

/// Independent masters on the loopback interface.
#[pyclass(frozen)]
pub(crate) struct Servers {
    inner: Own<Running>,
    #[pyo3(get)]
    urls: Vec<String>,
    #[pyo3(get)]
    kind: String,
}

/// The servers are dropped before the runtime that serves the built-in ones.
struct Running {
    servers: Mutex<Option<quorlock_servers::Servers>>,
    runtime: Runtime,
}

impl Servers {
    /// Calls `work` with the server of this index.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        index: i64,
        work: impl FnOnce(&Runtime, &quorlock_servers::Server) -> io::Result<T> + Send,
    ) -> PyResult<T> {
        let running = self.inner.get().ok_or_else(|| closed("belong to the parent process"))?;
        py.detach(|| {
            let servers = running.servers.lock();
            let Some(servers) = &*servers else { return Err(closed("are closed")) };
            let server = usize::try_from(index).ok().and_then(|index| servers.get(index));
            let server = server.ok_or_else(|| PyIndexError::new_err(format!("no server {index}")))?;
            Ok(work(&running.runtime, server)?)
        })
    }
}

fn closed(why: &str) -> PyErr {
    PyRuntimeError::new_err(format!("these servers {why}"))
}

#[pymethods]
impl Servers {
    #[new]
    fn new(py: Python<'_>, count: usize) -> PyResult<Servers> {
        let (runtime, servers) = py.detach(|| -> io::Result<_> {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let servers = runtime.block_on(quorlock_servers::Servers::start(count))?;
            Ok((runtime, servers))
        })?;
        let (urls, kind) = (servers.urls(), servers.kind().to_string());
        let running = Running { servers: Mutex::new(Some(servers)), runtime };
        Ok(Servers { inner: Own::new(running), urls, kind })
    }

    /// Kills one, with all its data.
    fn kill(&self, py: Python<'_>, index: i64) -> PyResult<()> {
        self.with(py, index, |_, server| {
            server.kill();
            Ok(())
        })
    }

    /// Starts one again, without its data.
    fn restart(&self, py: Python<'_>, index: i64) -> PyResult<()> {
        self.with(py, index, |runtime, server| runtime.block_on(server.restart_empty()))
    }

    /// Stops one, so that it accepts connections and does not answer.
    fn freeze(&self, py: Python<'_>, index: i64) -> PyResult<()> {
        self.with(py, index, |_, server| server.freeze())
    }

    fn thaw(&self, py: Python<'_>, index: i64) -> PyResult<()> {
        self.with(py, index, |_, server| server.thaw())
    }

    /// Sends one a command, and returns its reply as text. Raises its error.
    fn command(&self, py: Python<'_>, index: i64, words: Vec<String>) -> PyResult<String> {
        let reply = self.with(py, index, move |runtime, server| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            runtime.block_on(server.command(&words))
        })?;
        if let Resp::Error(error) = reply {
            Err(PyRuntimeError::new_err(error))
        } else {
            Ok(reply.to_string())
        }
    }

    /// Ends all.
    fn close(&self, py: Python<'_>) {
        let Some(running) = self.inner.get() else { return };
        py.detach(|| {
            drop(running.servers.lock().take());
        });
    }
}
