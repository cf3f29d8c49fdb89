//! Why `quorlock` ends without having done what was asked, and with which exit code.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use quorlock::{
    AcquireError, ConfigError, PermitError,
    votes::{VoteOutcome, VoteReport},
};

use crate::exit;
use crate::wanted::Refusal;

/// What went wrong, as a sentence that names its cure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The arguments make no sense together.
    #[error("{0}")]
    Usage(String),
    /// A setting cannot work.
    #[error("{0}")]
    Config(String),
    /// Somebody else has the lock.
    #[error("{error}")]
    Held { error: Refusal, code: u8 },
    /// Nobody knows who has the lock.
    #[error("{0}")]
    NoQuorum(String),
    /// There is no such command.
    #[error("{0}")]
    NotFound(String),
    /// The command cannot be started.
    #[error("{path} cannot be executed; it needs the right to be (chmod +x) and a program that can run it")]
    NotExecutable { path: PathBuf, source: io::Error },
    /// The command cannot be started, because it is run by a program that is not there.
    #[error(
        "{path} cannot be executed: its interpreter{interpreter} was not found; correct its first line (#!), or install that"
    )]
    NoInterpreter { path: PathBuf, interpreter: String },
    /// A signal asked to end.
    #[error("interrupted by {signal} {what}")]
    Interrupted { what: &'static str, signal: Signal },
    /// Whoever wanted the lock has gone.
    #[error("stdin ended while waiting for the lock, which was not acquired; see --until-eof")]
    StdinEnded,
    /// Whoever read the output has gone.
    #[error("nobody reads the output any more")]
    BrokenPipe,
    /// Something that should work did not.
    #[error("cannot {what}")]
    Internal { what: &'static str, source: io::Error },
}

impl Failure {
    /// For `map_err`: what could not be done.
    pub(crate) fn to(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
        move |source| Failure::Internal { what, source }
    }

    /// For `map_err` of whatever is written to stdout.
    pub(crate) fn to_write(source: io::Error) -> Failure {
        if source.kind() == io::ErrorKind::BrokenPipe {
            Failure::BrokenPipe
        } else {
            Failure::Internal { what: "write to stdout", source }
        }
    }

    /// An attempt to acquire that failed; `held` is the code for a lock that others have.
    pub(crate) fn of_acquiring(error: impl Into<Refusal>, held: u8) -> Failure {
        let error = error.into();
        match &error {
            Refusal::Lock(AcquireError::Contended { .. }) | Refusal::Permit(PermitError::Full { .. }) => {
                Failure::Held { error, code: held }
            }
            Refusal::Lock(AcquireError::Config(error)) | Refusal::Permit(PermitError::Config(error)) => {
                error.clone().into()
            }
            Refusal::Permit(PermitError::OtherPermits { .. }) => Failure::Config(error.to_string()),
            Refusal::Lock(
                AcquireError::Unavailable { report, .. } | AcquireError::Misconfigured { report, .. },
            )
            | Refusal::Permit(
                PermitError::Unavailable { report, .. } | PermitError::Misconfigured { report, .. },
            ) => Failure::NoQuorum(format!("{error}{}", restart_hint(report))),
            Refusal::Lock(_) | Refusal::Permit(_) => {
                Failure::Internal { what: "ask for the lock", source: io::Error::other(error) }
            }
        }
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => exit::USAGE,
            Failure::Config(_) => exit::CONFIG,
            Failure::Held { code, .. } => *code,
            Failure::NoQuorum(_) => exit::NO_QUORUM,
            Failure::NotFound(_) => exit::NOT_FOUND,
            Failure::NotExecutable { .. } | Failure::NoInterpreter { .. } => exit::NOT_EXECUTABLE,
            Failure::Interrupted { signal, .. } => exit::by_signal(*signal as i32),
            // As if the terminal had hung up.
            Failure::StdinEnded => exit::by_signal(Signal::SIGHUP as i32),
            // As if SIGPIPE had ended it, which is what happens to other programs.
            Failure::BrokenPipe => exit::by_signal(Signal::SIGPIPE as i32),
            Failure::Internal { .. } => exit::INTERNAL,
        }
    }

    /// For JSON.
    pub(crate) fn event(&self) -> &'static str {
        match self {
            Failure::Held { .. } => "held",
            Failure::NoQuorum(_) => "no_quorum",
            Failure::Interrupted { .. } | Failure::StdinEnded => "interrupted",
            Failure::Usage(_)
            | Failure::Config(_)
            | Failure::NotFound(_)
            | Failure::NotExecutable { .. }
            | Failure::NoInterpreter { .. }
            | Failure::BrokenPipe
            | Failure::Internal { .. } => "error",
        }
    }

    /// Whether to say anything. With `quiet` the exit code tells enough when nothing is wrong, and
    /// whoever has closed our output has heard enough.
    pub(crate) fn is_worth_saying(&self, quiet: bool) -> bool {
        match self {
            Failure::BrokenPipe => false,
            Failure::Held { .. } | Failure::Interrupted { .. } | Failure::StdinEnded => !quiet,
            Failure::Usage(_)
            | Failure::Config(_)
            | Failure::NoQuorum(_)
            | Failure::NotFound(_)
            | Failure::NotExecutable { .. }
            | Failure::NoInterpreter { .. }
            | Failure::Internal { .. } => true,
        }
    }

    /// The sentence and its causes.
    pub(crate) fn full(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// What to do about nodes that may not vote yet.
fn restart_hint(report: &VoteReport) -> &'static str {
    let kept_back = report.votes().iter().any(|vote| matches!(vote.outcome, VoteOutcome::Quarantined { .. }));
    if kept_back {
        "; wait for the restarted nodes, or let them vote with `--restart-guard off` if they cannot have \
         forgotten a lock, as after their very first start"
    } else {
        ""
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        match error {
            // These stand on the command line and nowhere else.
            ConfigError::Resource(_) | ConfigError::LabelTooLong { .. } | ConfigError::Permits { .. } => {
                Failure::Usage(error.to_string())
            }
            ConfigError::NoNodes
            | ConfigError::TooManyNodes { .. }
            | ConfigError::Address(_)
            | ConfigError::SameServerTwice { .. }
            | ConfigError::Quorum { .. }
            | ConfigError::Drift { .. }
            | ConfigError::TtlTooShort { .. }
            | ConfigError::TtlTooLong { .. }
            | ConfigError::Zero { .. }
            | ConfigError::RenewalTooRare { .. }
            | _ => Failure::Config(format!("{error:#}")),
        }
    }
}
