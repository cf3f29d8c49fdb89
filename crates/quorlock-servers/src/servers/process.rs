//! One run of a server: a child process, or a task.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use quorlock::runtime::SystemClock;
use tokio::task::AbortHandle;

use super::kind::Kind;
use super::port::Port;
use crate::builtin::{self, BuiltinServer};

/// A server that was started here. Dropping it ends it.
#[derive(Debug)]
pub(super) enum Process {
    Child(OwnChild),
    Task(AbortHandle),
}

/// The configuration of a run.
pub(super) struct How<'a> {
    pub(super) durable: bool,
    pub(super) password: Option<&'a str>,
    pub(super) environment: &'a [(String, OsString)],
    pub(super) options: &'a [String],
    /// The configuration of a Sentinel; empty for a server.
    pub(super) sentinel: &'a str,
}

impl Process {
    pub(super) fn start(kind: &Kind, port: &Port, folder: &Path, how: &How<'_>) -> io::Result<Process> {
        let password = how.password;
        let mut command = match kind {
            Kind::Program { path, .. } => program(path, port, folder, how)?,
            Kind::BuiltinProcess => builtin(port, password)?,
            Kind::BuiltinTask => {
                let clock = Arc::new(SystemClock::default());
                let server = BuiltinServer::with(clock, password.map(str::to_owned));
                let listener = port.listen()?;
                let task = tokio::spawn(async move { server.serve(listener).await });
                return Ok(Process::Task(task.abort_handle()));
            }
        };
        let notes = folder.join(SENTINEL);
        if !how.sentinel.is_empty() && !notes.exists() {
            std::fs::write(notes, format!("port {}\n{}", port.number(), how.sentinel))?;
        }
        let log = File::options().create(true).append(true).open(folder.join(LOG))?;
        command.stdout(log.try_clone()?).stderr(log);
        command.envs(how.environment.iter().map(|(name, value)| (name, value)));
        Ok(Process::Child(OwnChild(crate::lifeline::spawn(&mut command)?)))
    }

    /// Returns the PID; for a task that of this process.
    pub(super) fn pid(&self) -> u32 {
        match self {
            Process::Child(child) => child.0.id(),
            Process::Task(_) => std::process::id(),
        }
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        match self {
            Process::Child(child) => !matches!(child.0.try_wait(), Ok(None)),
            Process::Task(task) => task.is_finished(),
        }
    }

    /// Sends SIGSTOP, and waits until the process has stopped.
    #[cfg(unix)]
    pub(super) fn freeze(&self) -> io::Result<()> {
        use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

        let pid = self.signal(Signal::STOP)?;
        // The signal takes effect a moment later, and until then the server may still answer.
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        Ok(())
    }

    /// Sends SIGCONT.
    #[cfg(unix)]
    pub(super) fn thaw(&self) -> io::Result<()> {
        self.signal(rustix::process::Signal::CONT).map(drop)
    }

    /// Sends a signal, only to a child that has not been waited for, so its PID cannot have been reused.
    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) -> io::Result<rustix::process::Pid> {
        match self {
            Process::Child(child) => {
                let pid = rustix::process::Pid::from_child(&child.0);
                rustix::process::kill_process(pid, signal)?;
                Ok(pid)
            }
            Process::Task(_) => Err(unsupported()),
        }
    }

    #[cfg(not(unix))]
    pub(super) fn freeze(&self) -> io::Result<()> {
        Err(unsupported())
    }

    #[cfg(not(unix))]
    pub(super) fn thaw(&self) -> io::Result<()> {
        Err(unsupported())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Process::Task(task) = self {
            task.abort();
        }
    }
}

/// A child process that ends with its handle, and with this process.
#[derive(Debug)]
pub(super) struct OwnChild(Child);

impl Drop for OwnChild {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process. Errors mean that it has already ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The file in which a Sentinel reads its configuration and saves its state.
const SENTINEL: &str = "sentinel.conf";

/// The file in which a server reads its password.
const SECRET: &str = "password.conf";

/// The log file in the server's folder.
pub(super) const LOG: &str = "server.log";

fn program(path: &Path, port: &Port, folder: &Path, how: &How<'_>) -> io::Result<Command> {
    let mut command = Command::new(path);
    if !how.sentinel.is_empty() {
        command.arg(folder.join(SENTINEL)).arg("--sentinel").stdin(Stdio::null());
        return Ok(command);
    }
    if let Some(password) = how.password {
        // Not on the command line, which every user of the machine can read.
        let file = folder.join(SECRET);
        let mut quoted = String::new();
        for byte in password.bytes() {
            // Writing to a string does not fail.
            let _ = write!(quoted, "\\x{byte:02x}");
        }
        // Its replicas have the same password.
        std::fs::write(&file, format!("requirepass \"{quoted}\"\nmasterauth \"{quoted}\"\n"))?;
        command.arg(file);
    }
    let keep = if how.durable { "yes" } else { "no" };
    command.arg("--port").arg(port.number().to_string());
    command.args(["--bind", "127.0.0.1", "--daemonize", "no", "--save", ""]);
    command.args(["--appendonly", keep, "--appendfsync", "always"]);
    command.arg("--dir").arg(folder);
    command.args(how.options).stdin(Stdio::null());
    Ok(command)
}

fn builtin(port: &Port, password: Option<&str>) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(builtin::PORT, port.number().to_string()).env(builtin::LIFELINE, "stdin");
    if let Some(password) = password {
        command.env(builtin::PASSWORD, password);
    }
    command.stdin(Stdio::piped());
    Ok(command)
}

fn unsupported() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "this server cannot be stopped and continued: install valkey-server or redis-server",
    )
}
