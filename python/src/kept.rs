//! What is used of Python's modules, kept from the first coordinator on: while the interpreter ends, none can be imported.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// Returns what is kept in `place`, and keeps what `make` returns if there is nothing yet. That runs before the place is
/// locked: an import lets other threads run, and if one of them forked then, the child would wait for its end for ever.
pub(crate) fn kept<'a, 'py, T>(
    py: Python<'py>,
    place: &'a PyOnceLock<Py<T>>,
    make: impl FnOnce() -> PyResult<Py<T>>,
) -> PyResult<&'a Bound<'py, T>> {
    if let Some(kept) = place.get(py) {
        return Ok(kept.bind(py));
    }
    let new = make()?;
    Ok(place.get_or_init(py, || new).bind(py))
}

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
        kept(py, &self.kept, || Ok(py.import(self.module)?.dict().copy()?.unbind()))
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
    kept(py, &FUNCTION, || Ok(py.import("sys")?.getattr("exc_info")?.unbind()))
}

/// The function that returns the frame at a depth.
pub(crate) fn frame_at(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    kept(py, &FUNCTION, || Ok(py.import("sys")?.getattr("_getframe")?.unbind()))
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
