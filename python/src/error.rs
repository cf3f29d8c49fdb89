//! The exceptions of `quorlock.errors`, made from the library's errors.

use std::error::Error;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use quorlock::votes::VoteReport;
use quorlock::{AcquireError, ConfigError, LossReason, PermitError, RenewError, Resource, RetainError};

use crate::kept::{self, ERRORS};
use crate::keywords::for_python;
use crate::report;

/// The reason of a lease that was inherited by a fork.
pub(crate) const FORKED: &str = "forked";

/// The word for a reason, as `quorlock.Lost.reason` has it.
pub(crate) fn reason(reason: LossReason) -> &'static str {
    match reason {
        LossReason::Expired => "expired",
        LossReason::QuorumLost => "quorum_lost",
        LossReason::MaxHold => "max_hold",
        LossReason::Released => "released",
        LossReason::Closed => "closed",
        _ => "unknown",
    }
}

/// Escapes hidden characters, for messages that are made in Python.
#[pyfunction]
pub(crate) fn printable(text: &str) -> String {
    quorlock::protocol::printable(text).to_string()
}

/// Calls the class with the message, and the arguments that `set` adds.
fn make(
    py: Python<'_>,
    class: &str,
    message: &str,
    set: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>,
) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let arguments = PyDict::new(py);
        set(&arguments)?;
        let class = ERRORS.get(py, class)?;
        let message = for_python(message.to_owned());
        let made = PyErr::from_value(class.call((message,), Some(&arguments))?);
        // As `raise` does: one that is raised in an `except` or a `finally` does not hide what happened before.
        let handled = kept::exc_info(py)?.call0()?.get_item(1)?;
        if !handled.is_none() {
            made.set_context(py, Some(PyErr::from_value(handled)));
        }
        Ok(made)
    };
    made().unwrap_or_else(|error| error)
}

pub(crate) fn config(py: Python<'_>, message: &str) -> PyErr {
    make(py, "ConfigError", message, |_| Ok(()))
}

pub(crate) fn of_config(py: Python<'_>, error: &ConfigError) -> PyErr {
    config(py, &with_causes(error))
}

/// The message with its causes, such as the error of the system.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// An exception with the votes of all nodes.
fn refused(
    py: Python<'_>,
    class: &str,
    message: &str,
    resource: &Resource,
    votes: &VoteReport,
    waited: Duration,
) -> PyErr {
    make(py, class, message, |arguments| {
        arguments.set_item("resource", resource.as_str())?;
        arguments.set_item("report", report::of_votes(py, votes)?)?;
        arguments.set_item("waited", waited.as_secs_f64())
    })
}

pub(crate) fn of_acquire(py: Python<'_>, error: &AcquireError) -> PyErr {
    let message = error.to_string();
    let with =
        |class, resource: &Resource, votes, waited| refused(py, class, &message, resource, votes, waited);
    match error {
        AcquireError::Contended { resource, report, waited } => with("Held", resource, report, *waited),
        AcquireError::Unavailable { resource, report, waited } => with("NoQuorum", resource, report, *waited),
        AcquireError::Misconfigured { resource, report } => {
            with("Misconfigured", resource, report, Duration::ZERO)
        }
        AcquireError::Config(error) => of_config(py, error),
        AcquireError::Closed => closed(py),
        _ => make(py, "QuorlockError", &message, |_| Ok(())),
    }
}

pub(crate) fn of_permit(py: Python<'_>, error: &PermitError) -> PyErr {
    let message = error.to_string();
    let with =
        |class, resource: &Resource, votes, waited| refused(py, class, &message, resource, votes, waited);
    match error {
        PermitError::Full { resource, holders, waited } => make(py, "Full", &message, |arguments| {
            let holders = holders.iter().map(|holder| report::holder(py, holder.as_ref()));
            arguments.set_item("resource", resource.as_str())?;
            arguments.set_item("holders", holders.collect::<PyResult<Vec<_>>>()?)?;
            arguments.set_item("waited", waited.as_secs_f64())
        }),
        PermitError::OtherPermits { resource, report, .. } => {
            with("OtherPermits", resource, report, Duration::ZERO)
        }
        PermitError::Unavailable { resource, report, waited } => with("NoQuorum", resource, report, *waited),
        PermitError::Misconfigured { resource, report } => {
            with("Misconfigured", resource, report, Duration::ZERO)
        }
        PermitError::Config(error) => of_config(py, error),
        PermitError::Closed => closed(py),
        _ => make(py, "QuorlockError", &message, |_| Ok(())),
    }
}

pub(crate) fn closed(py: Python<'_>) -> PyErr {
    make(py, "Closed", &AcquireError::Closed.to_string(), |_| Ok(()))
}

/// Nothing would release what is acquired from now on.
pub(crate) fn exits(py: Python<'_>) -> PyErr {
    let message = "the interpreter exits, and has released all locks: register what still needs one with `atexit` after \
                   `import quorlock`, so that it runs before that";
    make(py, "Closed", message, |_| Ok(()))
}

pub(crate) fn of_lost(py: Python<'_>, resource: &str, why: LossReason) -> PyErr {
    let message = format!("the lease of `{}` is over: {why}", printable(resource));
    make(py, "Lost", &message, |arguments| {
        arguments.set_item("resource", resource)?;
        arguments.set_item("reason", reason(why))
    })
}

/// The lease of a parent, used in its child.
pub(crate) fn forked(py: Python<'_>, resource: &str) -> PyErr {
    let name = printable(resource);
    let message = format!("the lock `{name}` is held by the parent process, not by this one that it forked");
    make(py, "Lost", &message, |arguments| {
        arguments.set_item("resource", resource)?;
        arguments.set_item("reason", FORKED)
    })
}

pub(crate) fn of_renewal(py: Python<'_>, error: &RenewError) -> PyErr {
    match error {
        RenewError::Lost(lost) => of_lost(py, lost.resource.as_str(), lost.reason),
        RenewError::Refused(refusal) => of_config(py, refusal),
        RenewError::Unconfirmed { resource, report } => {
            unconfirmed(py, &error.to_string(), resource.as_str(), report)
        }
        _ => make(py, "QuorlockError", &error.to_string(), |_| Ok(())),
    }
}

pub(crate) fn of_retaining(py: Python<'_>, error: &RetainError) -> PyErr {
    match error {
        RetainError::Lost(lost) => of_lost(py, lost.resource.as_str(), lost.reason),
        RetainError::Unconfirmed { resource, report } => {
            unconfirmed(py, &error.to_string(), resource.as_str(), report)
        }
        RetainError::Unsupported { .. } | _ => config(py, &error.to_string()),
    }
}

fn unconfirmed(py: Python<'_>, message: &str, resource: &str, votes: &VoteReport) -> PyErr {
    make(py, "Unconfirmed", message, |arguments| {
        arguments.set_item("resource", resource)?;
        arguments.set_item("report", report::of_votes(py, votes)?)
    })
}

/// Checks a number of seconds.
pub(crate) fn duration(name: &str, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => Ok(Some(duration)),
        Err(error) => Err(Python::attach(|py| config(py, &format!("{name}={seconds}: {error}")))),
    }
}
