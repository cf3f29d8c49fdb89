//! What can keep the program from doing what it is for.

use std::io;

use crate::exit;

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Something that has to work did not.
    #[error("cannot {what}")]
    Io {
        what: String,
        #[source]
        cause: io::Error,
    },
    /// There is no such scenario.
    #[error("there is no scenario `{name}`; there are {known}, and files that end in .toml")]
    NoScenario { name: String, known: String },
    /// A scenario cannot be meant as it stands.
    #[error("the scenario `{name}` cannot be run: {why}")]
    BadScenario { name: String, why: String },
    /// A recorded run cannot be read.
    #[error("the record in {folder} cannot be read: {why}")]
    BadRecord { folder: String, why: String },
    /// No scenario was named.
    #[error("name a scenario with --scenario, or run --all; --list lists them")]
    NothingToDo,
    /// Somebody pressed Ctrl-C.
    #[error("stopped by a signal; nothing was judged")]
    Interrupted,
}

impl Failure {
    /// For `map_err`: `cannot WHAT: CAUSE`.
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

    /// The message with all its causes.
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
