//! Reads stdin: its end means that the process that wanted the lock has gone, and its lines may be commands.

use std::collections::VecDeque;
use std::future::pending;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::thread;

use clap::ValueEnum;
use nix::sys::stat::{SFlag, fstat};
use tokio::sync::mpsc::{Receiver, channel};

use crate::failure::Failure;

/// When the end of stdin ends the hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum UntilEof {
    // If stdin is a pipe or a socket. The default, because a script that is killed closes its pipe and must
    // not leave its lock behind, while a service manager, or `&` in a script, gives /dev/null, which ends
    // immediately and means nothing.
    Auto,
    // For every stdin: on a terminal, Ctrl-D.
    Always,
    Never,
}

/// What comes from stdin.
pub(super) enum Input {
    Line(String),
    Ended,
}

/// The lines of stdin, and its end.
pub(super) struct Stdin {
    lines: Option<Receiver<String>>,
    /// Those that came during the wait for the lock.
    kept: VecDeque<String>,
    /// Whether its end ends the hold.
    heeded: bool,
}

/// Longer lines are cut: no command is as long.
const LONGEST: u64 = 1024;
/// How many lines are read ahead.
const AHEAD: usize = 16;

impl Stdin {
    /// Begins to read, unless `until` ignores the end and there are no commands.
    ///
    /// # Errors
    ///
    /// If no thread is left that could read.
    pub(super) fn read(until: UntilEof, has_commands: bool) -> Result<Stdin, Failure> {
        let is_pipe = is_a_pipe();
        let heeded = match until {
            UntilEof::Auto => is_pipe,
            UntilEof::Always => true,
            UntilEof::Never => false,
        };
        let kept = VecDeque::new();
        if !(heeded || has_commands && is_pipe) {
            return Ok(Stdin { lines: None, kept, heeded });
        }
        let (sender, lines) = channel(AHEAD);
        // The thread ends with the program, since a read cannot be interrupted.
        let read = move || {
            let mut stdin = BufReader::new(io::stdin());
            loop {
                let mut line = Vec::new();
                match stdin.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
                    Ok(0) => return,
                    // Without commands what it says means nothing.
                    Ok(_) if !has_commands => {}
                    Ok(_) => {
                        let line = String::from_utf8_lossy(&line).trim().to_owned();
                        if sender.blocking_send(line).is_err() {
                            return;
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        };
        thread::Builder::new().spawn(read).map_err(Failure::to("start a thread for stdin"))?;
        Ok(Stdin { lines: Some(lines), kept, heeded })
    }

    /// Returns what comes next.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Input {
        if let Some(line) = self.kept.pop_front() {
            return Input::Line(line);
        }
        let Some(lines) = &mut self.lines else { return pending().await };
        match lines.recv().await {
            Some(line) => Input::Line(line),
            None if self.heeded => Input::Ended,
            None => pending().await,
        }
    }

    /// Waits for the end. Keeps the lines before it.
    pub(super) async fn ended(&mut self) {
        let Some(lines) = &mut self.lines else { return pending().await };
        while let Some(line) = lines.recv().await {
            if self.kept.len() < AHEAD {
                self.kept.push_back(line);
            }
        }
        if !self.heeded {
            pending::<()>().await;
        }
    }
}

fn is_a_pipe() -> bool {
    let kind = fstat(io::stdin()).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
    matches!(kind, Ok(SFlag::S_IFIFO | SFlag::S_IFSOCK))
}
