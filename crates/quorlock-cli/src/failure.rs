//! The errors of the program, with their messages and exit codes.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use quorlock::{
    AcquireError, ConfigError, PermitError,
    votes::{VoteOutcome, VoteReport},
};

use crate::exit;
use crate::signals::{Interruption, is_by_key};
use crate::wanted::Refusal;

/// What went wrong, as a sentence that says how to fix it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Invalid arguments.
    #[error("{0}")]
    Usage(String),
    /// Invalid configuration.
    #[error("{0}")]
    Config(String),
    /// Another client holds the lock.
    #[error("{error}")]
    Held { error: Refusal, code: u8 },
    /// Too few nodes answered.
    #[error("{0}")]
    NoQuorum(String),
    /// The command does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The command cannot be started.
    #[error(
        "{path} cannot be executed; make it executable (chmod +x), and check that this system can run it"
    )]
    NotExecutable { path: PathBuf, source: io::Error },
    /// The interpreter of the command does not exist.
    #[error(
        "{path} cannot be executed: its interpreter{interpreter} was not found; fix its first line (#!), or install the interpreter"
    )]
    NoInterpreter { path: PathBuf, interpreter: String },
    /// A signal interrupted it.
    #[error("interrupted by {signal} {what}")]
    Interrupted { what: &'static str, signal: Signal },
    /// A key of the terminal ended the command.
    #[error("{} ended the command", .0.signal)]
    CommandInterrupted(Interruption),
    /// The process that wanted the lock has gone.
    #[error("stdin ended while waiting for the lock, which was not acquired; see --until-eof")]
    StdinEnded,
    /// The reader of the output has gone.
    #[error("the reader of the output has gone")]
    BrokenPipe,
    /// The system has no process, thread, file or memory left for it.
    #[error("cannot {what}: {limit}")]
    Limit { what: String, limit: &'static str, source: io::Error },
    /// An internal error.
    #[error("cannot {what}")]
    Internal { what: &'static str, source: io::Error },
}

impl Failure {
    /// Returns a function for `map_err` that adds what could not be done.
    pub(crate) fn to(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
        move |source| match limit(&source) {
            Some(limit) => Failure::Limit { what: what.to_owned(), limit, source },
            None => Failure::Internal { what, source },
        }
    }

    /// Converts an error of writing to stdout, for `map_err`.
    pub(crate) fn to_write(source: io::Error) -> Failure {
        if source.kind() == io::ErrorKind::BrokenPipe {
            Failure::BrokenPipe
        } else {
            Failure::Internal { what: "write to stdout", source }
        }
    }

    /// Converts the error of an acquisition; `held` is the exit code for a held lock.
    pub(crate) fn of_acquiring(error: impl Into<Refusal>, held: u8) -> Failure {
        Failure::of_acquiring_with(error.into(), held, RESTART_HINT)
    }

    /// The same, with what to do about nodes that may not vote yet.
    pub(crate) fn of_acquiring_with(error: Refusal, held: u8, hint: &str) -> Failure {
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
            ) => Failure::NoQuorum(format!("{error}{}", if keeps_back(report) { hint } else { "" })),
            Refusal::NotRenewed(_) => Failure::NoQuorum(error.to_string()),
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
            Failure::Interrupted { signal, .. }
            | Failure::CommandInterrupted(Interruption { signal, .. }) => exit::by_signal(*signal as i32),
            // As if the terminal had hung up.
            Failure::StdinEnded => exit::by_signal(Signal::SIGHUP as i32),
            // As if SIGPIPE had ended it, which is what happens to other programs.
            Failure::BrokenPipe => exit::by_signal(Signal::SIGPIPE as i32),
            Failure::Limit { .. } | Failure::Internal { .. } => exit::INTERNAL,
        }
    }

    /// Returns the key of the terminal that ended it, if one did.
    pub(crate) fn interruption(&self) -> Option<Interruption> {
        if let Failure::CommandInterrupted(interruption) = self {
            return Some(*interruption);
        }
        let Failure::Interrupted { signal, .. } = self else { return None };
        is_by_key(*signal).then_some(Interruption { signal: *signal, of_command_alone: false })
    }

    /// Whether the job could not be done, rather than that another client does it or the user ended it.
    pub(crate) fn is_of_the_job(&self) -> bool {
        match self {
            Failure::Held { .. }
            | Failure::Interrupted { .. }
            | Failure::CommandInterrupted(_)
            | Failure::StdinEnded
            | Failure::BrokenPipe => false,
            Failure::Usage(_)
            | Failure::Config(_)
            | Failure::NoQuorum(_)
            | Failure::NotFound(_)
            | Failure::NotExecutable { .. }
            | Failure::NoInterpreter { .. }
            | Failure::Limit { .. }
            | Failure::Internal { .. } => true,
        }
    }

    /// Returns the `event` of its JSON line.
    pub(crate) fn event(&self) -> &'static str {
        match self {
            Failure::Held { .. } => "held",
            Failure::NoQuorum(_) => "no_quorum",
            Failure::Interrupted { .. } | Failure::CommandInterrupted(_) | Failure::StdinEnded => {
                "interrupted"
            }
            Failure::Usage(_)
            | Failure::Config(_)
            | Failure::NotFound(_)
            | Failure::NotExecutable { .. }
            | Failure::NoInterpreter { .. }
            | Failure::BrokenPipe
            | Failure::Limit { .. }
            | Failure::Internal { .. } => "error",
        }
    }

    /// Whether to print it. With `quiet` the exit code suffices for a held lock and an interruption;
    /// nothing is printed for a reader that has gone.
    pub(crate) fn is_worth_saying(&self, quiet: bool) -> bool {
        self.is_of_the_job()
            || !(quiet || matches!(self, Failure::BrokenPipe | Failure::CommandInterrupted(_)))
    }

    /// Returns the message with its causes.
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

/// Returns which limit was met, and how to raise it, if `source` is of a call that makes processes, threads or files.
pub(crate) fn limit(source: &io::Error) -> Option<&'static str> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are no limits")]
    match Errno::from_raw(source.raw_os_error()?) {
        Errno::EAGAIN => Some(
            "no process or thread is left; raise the limit of this user (ulimit -u), of the container (its pids limit) \
             or of the unit (TasksMax), or look for what uses them up",
        ),
        Errno::EMFILE => Some(
            "this process has too many open files; raise the limit (ulimit -n, or LimitNOFILE of the unit), or close those \
             that it inherits",
        ),
        Errno::ENFILE => {
            Some("this system has too many open files; raise fs.file-max, or look for what opens them")
        }
        Errno::ENOMEM => {
            Some("no memory is left; raise the limit (ulimit -v, or MemoryMax of the unit), or add some")
        }
        _ => None,
    }
}

/// Returns the error of the system by which a limit was met, if that is the cause of `error`.
fn limit_in(error: &(dyn Error + 'static)) -> Option<io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(system) = error.downcast_ref::<io::Error>().filter(|system| limit(system).is_some()) {
            return system.raw_os_error().map(io::Error::from_raw_os_error);
        }
        cause = error.source();
    }
    None
}

/// Names the variable, which every verb knows, and not the option, which some have.
pub(crate) const RESTART_HINT: &str = "; wait for the restarted nodes, or let them vote with \
    QUORLOCK_RESTART_GUARD=off if they cannot have forgotten a lock, as on their very first start";

/// Whether nodes may not vote yet.
fn keeps_back(report: &VoteReport) -> bool {
    report.votes().iter().any(|vote| matches!(vote.outcome, VoteOutcome::Quarantined { .. }))
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        if let ConfigError::Node { problem, .. } = &error
            && let Some(source) = limit_in(problem)
        {
            return Failure::to("use a node")(source);
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "the others may come from a file or a variable")]
        match error {
            ConfigError::Zero { setting: "max_hold" } => Failure::Usage(format!("--max-hold: {error}")),
            // What is wrong is asked for by an option.
            ConfigError::Resource(_)
            | ConfigError::Resources { .. }
            | ConfigError::LabelTooLong { .. }
            | ConfigError::Permits { .. }
            | ConfigError::Unsupported { .. }
            | ConfigError::NoSemaphores { .. }
            | ConfigError::NoRetention { .. } => Failure::Usage(error.to_string()),
            _ => Failure::Config(format!("{error:#}")),
        }
    }
}
