//! `quorlock._quorlock`: the extension module behind the Python package `quorlock`, which is in `quorlock/`.
//!
//! It gives Python the async library on the background thread of the blocking one. No Rust thread ever attaches to the
//! interpreter by itself: results, log records and losses wait in queues until Python asks for them.

use pyo3::prelude::*;

mod connection;
mod context;
mod election;
mod error;
mod events;
mod kept;
mod keywords;
mod lease;
mod lock;
mod metrics;
mod process;
mod reactor;
mod report;
mod servers;

// Nothing has run on a build without the GIL: such an interpreter turns it on for this module.
#[pymodule(gil_used = true)]
mod _quorlock {
    #[pymodule_export]
    use super::connection::{Connection, close_all};
    #[pymodule_export]
    use super::context::{Contexts, LeaseContext, LockContext, OnceContext, Steps, place};
    #[pymodule_export]
    use super::election::{Election, Observer};
    #[pymodule_export]
    use super::error::printable;
    #[pymodule_export]
    use super::events::{log_above, next_calls, next_records, stop_events, wake_events};
    #[pymodule_export]
    use super::lease::{Lease, keep};
    #[pymodule_export]
    use super::lock::{Lock, Owner};
    #[pymodule_export]
    use super::metrics::{enable_metrics, metrics_text};
    #[pymodule_export]
    use super::process::{after_fork_in_child, after_fork_in_parent, before_fork, generation};
    #[pymodule_export]
    use super::reactor::{Reactor, begin_exit};
    #[pymodule_export]
    use super::servers::Servers;

    use super::{Bound, PyModule, PyModuleMethods as _, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::process::begin();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
