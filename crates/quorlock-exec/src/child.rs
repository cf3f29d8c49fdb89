//! A child process, and the lines to and from it.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use quorlock::node::{NodeError, NodeErrorKind, Reason};
use quorlock::runtime::{Clock, within};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child as Process, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tracing::warn;

use crate::address::ExecAddress;
use crate::wire::{Hello, LONGEST};

/// For its first line.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// For its end, once its standard input is closed.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// How many requests it may leave unread.
pub(crate) const UNREAD: usize = 1024;

/// A running child. Dropping it kills it.
pub(crate) struct Child {
    process: Process,
    /// Lines for it.
    pub(crate) requests: mpsc::Sender<String>,
    /// Its lines, until its output ends or has a line that is none.
    pub(crate) lines: mpsc::Receiver<Result<String, Reason>>,
}

impl Child {
    /// Starts the program, and waits for its first line.
    pub(crate) async fn start(address: &ExecAddress, clock: &dyn Clock) -> Result<(Child, Hello), NodeError> {
        let mut command = Command::new(&*address.program);
        command.args(&*address.arguments).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // An interrupt from the terminal must not end it before the locks are released.
        command.process_group(0);
        let mut process = command.spawn().map_err(|error| {
            let words = format!("cannot start `{}`: name a program that this user may run", address.program);
            NodeError::Failed {
                kind: NodeErrorKind::Misconfigured,
                reason: Reason::new(words).because(error),
            }
        })?;
        let pipes = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(NodeError::Unreachable { reason: "it has no standard input or output".into() });
        };
        let (requests, unread) = mpsc::channel(UNREAD);
        let (sender, lines) = mpsc::channel(UNREAD);
        tokio::spawn(write(stdin, unread));
        tokio::spawn(read(stdout, sender));
        tokio::spawn(log(stderr, address.to_string()));
        let mut child = Child { process, requests, lines };
        let first = within(clock, STARTS_WITHIN, child.lines.recv()).await;
        let hello = match first {
            None => Err(format!("it has not said a line within {STARTS_WITHIN:?}").into()),
            Some(None) => Err(child.ended().await),
            Some(Some(line)) => line.and_then(|line| parse(&line)),
        };
        hello.map(|hello| (child, hello)).map_err(|reason| NodeError::Unreachable { reason })
    }

    /// Returns why its output has ended.
    pub(crate) async fn ended(&mut self) -> Reason {
        match self.process.wait().await {
            Ok(status) => format!("it has ended: {status}").into(),
            Err(error) => Reason::new("it has ended").because(error),
        }
    }

    /// Lets it end by itself, since there is nothing more to ask, or ends it.
    pub(crate) async fn finish(self, clock: &dyn Clock) {
        let Child { mut process, requests, lines } = self;
        drop((requests, lines));
        if within(clock, ENDS_WITHIN, process.wait()).await.is_none() {
            drop(process.start_kill());
            drop(process.wait().await);
        }
    }
}

/// Reads a line.
pub(crate) fn parse<T: DeserializeOwned>(line: &str) -> Result<T, Reason> {
    serde_json::from_str(line)
        .map_err(|error| Reason::new("it has said a line that is none of this protocol").because(error))
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

/// What it writes to its standard error is logged.
async fn log(stderr: ChildStderr, node: String) {
    let mut stderr = BufReader::new(stderr);
    while let Ok(Some(output)) = line(&mut stderr).await {
        warn!(%node, %output, "the node's program says");
    }
}
