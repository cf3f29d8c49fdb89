//! A pseudo-terminal with a keyboard and a screen.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::{Pid, tcgetpgrp};
use quorlock_testkit::{eventually, patience, until};
use tempfile::TempDir;

use crate::support::{Quorlock, send};

/// A process on a terminal of its own, as the leader of its session.
pub(crate) struct OnTerminal {
    process: Child,
    keyboard: File,
    /// The modes of the terminal before anything was started on it.
    pub(crate) first_modes: Termios,
    screen: Arc<Mutex<Vec<u8>>>,
    /// Reads what is written to the screen, until no process has the terminal.
    reader: JoinHandle<()>,
    _folder: TempDir,
}

/// How long the rest of the screen is waited for, once the process has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl OnTerminal {
    /// Starts `quorlock` on a terminal.
    pub(crate) fn start(quorlock: Quorlock) -> OnTerminal {
        OnTerminal::start_words(quorlock, &[])
    }

    /// Starts a shell on a terminal, in the environment of `quorlock`, with its path in `$QUORLOCK`.
    pub(crate) async fn shell(quorlock: Quorlock) -> OnTerminal {
        let shell = OnTerminal::start_words(quorlock, &["sh", "-i"]);
        shell.shows("$ ").await;
        shell
    }

    /// Starts a script on a terminal, as [`shell`](OnTerminal::shell).
    pub(crate) fn script(quorlock: Quorlock, shell: &str, text: &str) -> OnTerminal {
        OnTerminal::start_words(quorlock, &[shell, "-c", text])
    }

    fn start_words(quorlock: Quorlock, words: &[&str]) -> OnTerminal {
        let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal");
        let first_modes = tcgetattr(&pty.master).expect("the modes of the terminal");
        let (mut command, folder) = quorlock.on_terminal(words);
        let end = |pty: &std::os::fd::OwnedFd| Stdio::from(pty.try_clone().expect("the terminal"));
        command.stdin(end(&pty.slave)).stdout(end(&pty.slave)).stderr(end(&pty.slave));
        let process = command.spawn().expect("it starts on a terminal");
        drop(command);
        drop(pty.slave);
        let keyboard = File::from(pty.master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, seen) = (keyboard.try_clone().expect("the terminal"), Arc::clone(&screen));
        let reader = thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut part) {
                seen.lock().expect("the screen").extend_from_slice(&part[..length]);
            }
        });
        OnTerminal { process, keyboard, first_modes, screen, reader, _folder: folder }
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("the keyboard takes it");
    }

    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("the screen")).into_owned()
    }

    /// Waits until `what` has been written.
    pub(crate) async fn shows(&self, what: &str) {
        self.shows_times(what, 1).await;
    }

    /// Waits until `what` has been written `times` times.
    pub(crate) async fn shows_times(&self, what: &str, times: usize) {
        let shown = eventually(what, patience(), async || self.screen().matches(what).count() >= times).await;
        shown.unwrap_or_else(|error| panic!("{error}; the screen: {}", self.screen()));
    }

    /// Waits until `group` is in the foreground.
    pub(crate) async fn is_lent_to(&self, group: i32) {
        let lent = async || tcgetpgrp(&self.keyboard) == Ok(Pid::from_raw(group));
        until("the group in the foreground", lent).await;
    }

    pub(crate) fn modes(&self) -> Termios {
        tcgetattr(&self.keyboard).expect("the modes of the terminal")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(&self.process.id().to_string(), signal);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().expect("it is our child").is_some()
    }

    /// Waits for its end, and returns its exit code, as a shell shows it.
    pub(crate) async fn end(&mut self) -> Option<i32> {
        let mut status = None;
        let ended = eventually("its end", patience(), async || {
            status = self.process.try_wait().expect("it is our child");
            status.is_some()
        });
        ended.await.unwrap_or_else(|error| panic!("{error}; the screen: {}", self.screen()));
        // Its last words may not have been read. A process that it has left in the background, or one that was started
        // at the same moment, may still have the terminal.
        drop(eventually("the last words", LAST_WORDS, async || self.reader.is_finished()).await);
        status.and_then(|status| status.code().or(status.signal().map(|number| 128 + number)))
    }

    pub(crate) fn resize(&self, columns: u16) {
        let size = rustix::termios::Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.keyboard, size).expect("the terminal changes its size");
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
