//! A child process, and the lines to and from it.
//!
//! Child and *guardian* are a process group. The guardian is a shell that reads a pipe whose other end only this process
//! has. Once that is closed, by [`Child`]'s end or because this process has ended, however it ended, the guardian waits a
//! second and kills the group: the program may ignore the end of its input, and it may be a script that has started others.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::{NodeError, NodeErrorKind, Reason};
use quorlock::runtime::{Clock, within};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child as Process, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tracing::debug;

use crate::address::ExecAddress;
use crate::stderr;
use crate::wire::LONGEST;

/// For its end, once its standard input is closed, or it has closed its output. As in [`GUARDIAN`].
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// How many requests it may leave unread.
pub(crate) const UNREAD: usize = 1024;
/// What the guardian does.
const GUARDIAN: &str = "trap '' HUP INT TERM; read -r end; sleep 1; kill -9 0";

/// A running child. Dropping it kills it, and a second later what it has started.
pub(crate) struct Child {
    process: Process,
    guardian: Option<Process>,
    /// Lines for it.
    pub(crate) requests: mpsc::Sender<String>,
    /// Its lines, until its output ends or has a line that is none.
    pub(crate) lines: mpsc::Receiver<Result<String, Reason>>,
}

impl Child {
    /// Starts the program.
    pub(crate) fn start(address: &ExecAddress, clock: &Arc<dyn Clock>) -> Result<Child, NodeError> {
        // It comes first, so that there is no moment without it.
        let guardian = start_guardian();
        let group = guardian.as_ref().and_then(Process::id).and_then(|id| i32::try_from(id).ok());
        let mut command = Command::new(&*address.program);
        command.args(&*address.arguments).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // An interrupt from the terminal must not end it before the locks are released.
        command.process_group(group.unwrap_or_default());
        let mut process = command.spawn().map_err(|error| unstarted(&address.program, error))?;
        let pipes = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(NodeError::Unreachable { reason: "it has no standard input or output".into() });
        };
        let (requests, unread) = mpsc::channel(UNREAD);
        let (sender, lines) = mpsc::channel(UNREAD);
        tokio::spawn(write(stdin, unread));
        tokio::spawn(read(stdout, sender));
        tokio::spawn(stderr::log(stderr, address.to_string(), Arc::clone(clock)));
        Ok(Child { process, guardian, requests, lines })
    }

    /// Returns why its output has ended.
    pub(crate) async fn ended(&mut self, clock: &dyn Clock) -> Reason {
        match within(clock, ENDS_WITHIN, self.process.wait()).await {
            Some(Ok(status)) => format!("it has ended: {status}").into(),
            Some(Err(error)) => Reason::new("it has ended").because(error),
            None => "it has closed its output and goes on, so that it was killed; it must end then".into(),
        }
    }

    /// Lets it end by itself, since there is nothing more to ask, or ends it and what it has started.
    pub(crate) async fn finish(self, clock: &dyn Clock) {
        let Child { mut process, mut guardian, requests, lines } = self;
        drop((requests, lines, guardian.as_mut().and_then(|guardian| guardian.stdin.take())));
        if within(clock, ENDS_WITHIN, process.wait()).await.is_none() {
            drop(process.start_kill());
            drop(process.wait().await);
        }
        if let Some(mut guardian) = guardian {
            drop(guardian.wait().await);
        }
    }
}

/// The error of a program that was not started: the settings are wrong, unless something is short, which passes.
fn unstarted(program: &str, error: io::Error) -> NodeError {
    // EMFILE and ENFILE have no kind.
    let lacks_files = matches!(error.raw_os_error(), Some(23 | 24));
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are no shortage")]
    let (words, is_short) = match error.kind() {
        io::ErrorKind::WouldBlock => ("no process is left, raise the limit (ulimit -u)", true),
        io::ErrorKind::OutOfMemory => ("no memory is left, raise the limit or add some", true),
        io::ErrorKind::ExecutableFileBusy => ("it is being written, which should end soon", true),
        _ if lacks_files => ("too few files may be open, raise the limit (ulimit -n)", true),
        _ => ("name a program that this user may run", false),
    };
    let reason = Reason::new(format!("cannot start `{program}`: {words}")).because(error);
    if is_short {
        return NodeError::Unreachable { reason };
    }
    NodeError::Failed { kind: NodeErrorKind::Misconfigured, reason }
}

/// Starts the guardian, as the first of its group. `None` without a shell: then what the program has started stays, and the
/// program too if it ignores the end of its input.
fn start_guardian() -> Option<Process> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", GUARDIAN]).process_group(0);
    // Readers of our output must not wait for it.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = command.spawn();
    started.inspect_err(|error| debug!(%error, "programs have no guardian")).ok()
}

async fn write(mut stdin: ChildStdin, mut lines: mpsc::Receiver<String>) {
    while let Some(line) = lines.recv().await {
        // Its output ends, too, if it has gone.
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stdout: ChildStdout, sender: mpsc::Sender<Result<String, Reason>>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let line = match line(&mut stdout).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => return,
            Err(error) => Err(Reason::new("its output cannot be read").because(error)),
        };
        let is_over = line.is_err();
        if sender.send(line).await.is_err() || is_over {
            return;
        }
    }
}

/// Reads a line of limited length; `None` at the end.
async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let found = from.fill_buf().await?;
        if found.is_empty() {
            return Ok(None);
        }
        let end = found.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(found.len(), |end| end + 1);
        line.extend(found.iter().take(end.unwrap_or(found.len())));
        from.consume(taken);
        if line.len() > LONGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a line has more than {LONGEST} bytes"),
            ));
        }
        if end.is_some() {
            let text =
                String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            return Ok(Some(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait must outlast it.
    #[test]
    fn a_shortage_is_no_wrong_setting() {
        let failed = |errno| unstarted("/bin/node", io::Error::from_raw_os_error(errno));
        // EAGAIN, ENOMEM, ENFILE, EMFILE and ETXTBSY.
        for errno in [11, 12, 23, 24, 26] {
            let error = failed(errno);
            assert!(!error.is_permanent() && !error.may_have_acted(), "{error:#}");
        }
        // ENOENT, ENOEXEC, EACCES, ENOTDIR and ELOOP.
        for errno in [2, 8, 13, 20, 40] {
            assert!(failed(errno).is_permanent(), "{:#}", failed(errno));
        }
        assert!(format!("{:#}", failed(24)).contains("raise the limit (ulimit -n): Too many open files"));
    }
}
