//! Pictures on a terminal, each in the place of the last one, until `q` or a signal: `top` and `status --watch`.
//!
//! They are on the terminal's alternate screen, so that a change of its size leaves nothing behind. Keys are read one
//! by one and not echoed. Dropping the [`Screen`], also in a panic, restores the terminal; in the end the last picture
//! is printed where the shell goes on.

use std::future::pending;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd as _;
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use futures::{Stream, StreamExt as _};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::{getpgrp, read, tcgetpgrp};
use rustix::termios::tcgetwinsize;
use tokio::sync::Notify;

use crate::failure::Failure;
use crate::signals::{Signals, ends, stop};
use crate::stdout::print;
use crate::terminal::Terminal;

/// The size of a terminal, in characters.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

impl Size {
    fn of_stdout() -> Size {
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or(Size { columns: 80, rows: 24 }, |size| Size {
            columns: size.ws_col.into(),
            rows: size.ws_row.into(),
        })
    }
}

/// Shows `pictures` on the terminal at stdout until they or the user end it, each as the `lines` for a size, and
/// returns the last one.
pub(crate) async fn show<P>(
    signals: &mut Signals,
    pictures: impl Stream<Item = Result<P, Failure>>,
    lines: impl Fn(&P, Size) -> Vec<String>,
) -> Result<Option<P>, Failure> {
    let mut pictures = pin!(pictures);
    let (mut screen, mut last) = (None, None);
    loop {
        // In the background nothing is drawn.
        if screen.is_none() && is_in_foreground() {
            screen = Some(Screen::open()?);
        }
        tokio::select! {
            biased;
            signal = signals.next_named() => {
                if ends(signal) {
                    break;
                }
                if signal == Signal::SIGTSTP || signal == Signal::SIGCONT {
                    drop(screen.take());
                }
                if signal == Signal::SIGTSTP {
                    // Until the shell continues it.
                    stop(signal, false);
                }
            }
            () = quits(screen.as_ref()) => break,
            picture = pictures.next() => match picture {
                Some(picture) => last = Some(picture?),
                None => break,
            },
        }
        if let (Some(_), Some(picture)) = (&screen, &last) {
            Screen::draw(lines(picture, Size::of_stdout()))?;
        }
    }
    drop(screen);
    if let Some(picture) = &last {
        print(&(lines(picture, Size::of_stdout()).join("\n") + "\n"))?;
    }
    Ok(last)
}

/// Whether the shell lets this process use the terminal. Where it is another session's, there is no background.
fn is_in_foreground() -> bool {
    tcgetpgrp(io::stdout()).map_or(true, |group| group == getpgrp())
}

/// Waits for the key that ends it.
async fn quits(screen: Option<&Screen>) {
    match screen.and_then(|screen| screen.keyboard.as_ref()) {
        Some(keyboard) => keyboard.quits.notified().await,
        None => pending().await,
    }
}

/// The alternate screen of the terminal at stdout, without a cursor.
struct Screen {
    /// Unless stdin is something else.
    keyboard: Option<Keyboard>,
}

/// Lines are cut at the right edge, and not wrapped.
const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

impl Screen {
    fn open() -> Result<Screen, Failure> {
        let screen = Screen { keyboard: Keyboard::open() };
        print(OPEN)?;
        Ok(screen)
    }

    /// Draws as many of the `lines` as fit, in one write, so that the screen does not flicker.
    fn draw(mut lines: Vec<String>) -> Result<(), Failure> {
        let rows = Size::of_stdout().rows;
        lines.truncate(rows);
        // A line is cleared first: what a full one is followed by acts on its last character.
        let below = if lines.len() < rows { "\n\x1b[J" } else { "" };
        print(&format!("\x1b[H\x1b[K{}{below}", lines.join("\n\x1b[K")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.keyboard.take());
        // In the background the terminal is another's.
        if is_in_foreground() {
            drop(print(CLOSE));
        }
    }
}

/// The terminal at stdin, without echo and lines, and the thread that reads from it. Dropping it ends the thread and
/// restores the terminal.
struct Keyboard {
    terminal: Terminal,
    quits: Arc<Notify>,
    /// Both until it is dropped. The thread ends when its end of the pipe is closed.
    thread: Option<(PipeWriter, JoinHandle<()>)>,
}

impl Keyboard {
    fn open() -> Option<Keyboard> {
        let terminal = Terminal::of_stdin()?;
        let (end, open) = io::pipe().ok()?;
        if !terminal.read_keys() {
            return None;
        }
        let quits = Arc::new(Notify::new());
        let read = {
            let quits = quits.clone();
            move || read_keys(&end, &quits)
        };
        // Without a thread a signal ends it.
        let thread = thread::Builder::new().spawn(read).ok();
        Some(Keyboard { terminal, quits, thread: thread.map(|thread| (open, thread)) })
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        if let Some((open, thread)) = self.thread.take() {
            drop(open);
            drop(thread.join());
        }
        // The job in the foreground has set the terminal as it needs.
        if is_in_foreground() {
            self.terminal.restore_modes();
        }
    }
}

/// Reads keys until the other side of `end` is closed, and notifies of each `q`. Other keys do nothing.
fn read_keys(end: &PipeReader, quits: &Notify) {
    let (stdin, mut typed) = (io::stdin(), [0; 64]);
    loop {
        let mut both = [stdin.as_fd(), end.as_fd()].map(|file| PollFd::new(file, PollFlags::POLLIN));
        match poll(&mut both, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
        let [keys, end] = both.map(|file| file.any().unwrap_or(false));
        if end {
            return;
        }
        if keys {
            match read(&stdin, &mut typed) {
                Ok(length) if typed.iter().take(length).any(|key| *key == b'q') => quits.notify_one(),
                Ok(_) | Err(Errno::EINTR) => {}
                // The terminal is gone.
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::process::{self, Command, Stdio};

    use nix::pty::openpty;
    use nix::sys::termios::tcgetattr;

    use super::*;
    use crate::panic::contained;

    /// Run by the next test on a terminal of its own.
    #[test]
    #[ignore = "ends its process"]
    fn panics() {
        let code = contained(|| {
            let screen = Screen::open();
            panic!(
                "with {}",
                if screen.is_ok_and(|screen| screen.keyboard.is_some()) { "keys" } else { "none" }
            )
        });
        crate::stderr::finish();
        process::exit(code.into());
    }

    #[test]
    fn a_panic_restores_the_terminal_before_it_is_told() {
        let pty = openpty(None, None).unwrap();
        let before = tcgetattr(&pty.slave).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(std::env::current_exe().unwrap());
        command.args(["--exact", "live::tests::panics", "--ignored", "--nocapture"]);
        let status = command.stdin(end()).stdout(end()).stderr(end()).status().unwrap();
        drop(command);
        assert_eq!(status.code(), Some(125));
        assert_eq!(tcgetattr(&pty.slave).unwrap(), before);
        drop(pty.slave);
        let (mut screen, mut master) = (Vec::new(), File::from(pty.master));
        // In the end Linux reports an error, for want of a process at the other side.
        drop(master.read_to_end(&mut screen));
        let screen = String::from_utf8(screen).unwrap();
        let (_, live) = screen.split_once(OPEN).unwrap_or_else(|| panic!("{screen:?}"));
        let (_, reported) = live.split_once(CLOSE).unwrap_or_else(|| panic!("{screen:?}"));
        assert!(reported.contains("with keys"), "{screen:?}");
    }
}
