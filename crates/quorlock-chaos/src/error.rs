//! Errors that prevent a verdict.

use std::io;

use crate::exit;

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An operation of the program itself failed.
    #[error("cannot {what}")]
    Io {
        what: String,
        #[source]
        cause: io::Error,
    },
    /// The scenario does not exist.
    #[error("unknown scenario `{name}`; known are {known}, and files that end in .toml")]
    NoScenario { name: String, known: String },
    /// The scenario is invalid.
    #[error("invalid scenario `{name}`: {why}")]
    BadScenario { name: String, why: String },
    /// The record of a run cannot be read.
    #[error("cannot read the record in {folder}: {why}")]
    BadRecord { folder: String, why: String },
    /// No scenario was named.
    #[error("name a scenario with --scenario, or run --all; --list lists them")]
    NothingToDo,
    /// SIGINT, SIGTERM or SIGHUP was received.
    #[error("interrupted by a signal: no verdict")]
    Interrupted,
}

impl Failure {
    /// Returns a function for `map_err` that makes `cannot WHAT: CAUSE`.
    pub(crate) fn to(what: impl Into<String>) -> impl FnOnce(io::Error) -> Failure {
        let what = what.into();
        move |cause| Failure::Io { what, cause }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::NoScenario { .. } | Failure::NothingToDo => exit::USAGE,
            Failure::BadScenario { .. } | Failure::BadRecord { .. } => exit::CONFIG,
            Failure::Io { .. } => exit::INTERNAL,
            Failure::Interrupted => exit::INTERRUPTED,
        }
    }

    /// Returns the message with all its causes.
    pub(crate) fn full(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
