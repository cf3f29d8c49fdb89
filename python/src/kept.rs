//! What is used of Python's modules, kept from the first coordinator on: while the interpreter ends, none can be imported.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// The contents of a module of the package.
pub(crate) struct Contents {
    module: &'static str,
    // A copy, since the interpreter empties its modules at its end.
    kept: PyOnceLock<Py<PyDict>>,
}

impl Contents {
    const fn of(module: &'static str) -> Contents {
        Contents { module, kept: PyOnceLock::new() }
    }

    fn kept<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyDict>> {
        let contents = || PyResult::Ok(py.import(self.module)?.dict().copy()?.unbind());
        Ok(self.kept.get_or_try_init(py, contents)?.bind(py))
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.kept(py)?.as_any().get_item(name)
    }
}

/// The exceptions.
pub(crate) static ERRORS: Contents = Contents::of("quorlock.errors");
/// What nodes said.
pub(crate) static VOTES: Contents = Contents::of("quorlock.votes");
/// Leases of threads.
pub(crate) static LEASE: Contents = Contents::of("quorlock._lease");

/// The function that returns the exception that is being handled.
pub(crate) fn exc_info(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    FUNCTION.import(py, "sys", "exc_info")
}

/// The function that returns the frame at a depth.
pub(crate) fn frame_at(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    FUNCTION.import(py, "sys", "_getframe")
}

/// Keeps all of it.
pub(crate) fn keep(py: Python<'_>) -> PyResult<()> {
    for contents in [&ERRORS, &VOTES, &LEASE] {
        contents.kept(py)?;
    }
    exc_info(py)?;
    frame_at(py)?;
    Ok(())
}
