//! Servers for trying `quorlock` out: for one command, or until a signal.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::ExitStatus;

use nix::sys::signal::Signal;
use quorlock_servers::Fleet;

use crate::child::{Change, Child};
use crate::exit;
use crate::failure::Failure;
use crate::program::{Program, not_started, places};
use crate::run::code_of;
use crate::signals::{self, Signals};
use crate::stderr;
use crate::stdout::print;
use crate::terminal::Terminal;

/// Runs the command `words` with these servers, and returns its exit code.
pub(super) async fn to_command(
    servers: &dyn Fleet,
    words: Vec<OsString>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let path = places_with_this_program();
    let program = Program::Command(words).find_in(&path)?;
    let mut command = program.command();
    command.envs(settings(servers)).env("PATH", path).env("PS1", prompt());
    let name = program.name().to_owned();
    if !is_quorlock_or_script(&name) {
        stderr::say(NEW_SERVERS);
    }
    let child = Child::start(command, signals).map_err(|error| not_started(Path::new(&name), error))?;
    let status = Beside { child, terminal: Terminal::of_stdin() }.until_ended(signals).await;
    Ok(code_of(status.map_err(Failure::to("watch the command"))?))
}

/// The library reads no variable for it, and its events have no subscriber in a program that is first tried out.
const NEW_SERVERS: &str = "quorlock: the servers are new: a program that uses the library waits 30 s for its first lock, \
    unless it is built with the restart guard off; `quorlock` itself does not wait here\n";

/// Whether a command does not wait for new servers, or is a shell or a script, which is likely to run others that do not.
fn is_quorlock_or_script(name: &OsStr) -> bool {
    let base = Path::new(name).file_name().and_then(OsStr::to_str);
    let mut begin = [0; 2];
    let mut is_script =
        || File::open(name).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == *b"#!";
    matches!(base, Some("quorlock" | "sh" | "bash" | "dash" | "zsh" | "fish")) || is_script()
}

/// Prints the shell exports to reach these servers, and waits for a signal.
pub(super) async fn until_signal(servers: &dyn Fleet, signals: &mut Signals) -> Result<u8, Failure> {
    for (name, value) in settings(servers) {
        print(&format!("export {name}={value}\n"))?;
    }
    stderr::say(format!(
        "quorlock: {}; Ctrl-C stops them, and they keep no data\n\
         quorlock: these settings switch the restart guard off, because the servers are new and have nothing to \
         forget; `quorlock doctor` calls that unsafe, as it would be for servers that may restart\n",
        servers.summary()
    ));
    signals.next_end().await;
    Ok(exit::SUCCESS)
}

/// Returns the settings for clients of these servers. The servers are new, so they cannot have forgotten a lock. A
/// `quorlock.toml` in the folder may have a quorum or a password of other nodes.
fn settings(servers: &dyn Fleet) -> [(&'static str, String); 3] {
    [
        ("QUORLOCK_NODES", servers.urls().join(",")),
        ("QUORLOCK_RESTART_GUARD", "off".to_owned()),
        ("QUORLOCK_CONFIG", "/dev/null".to_owned()),
    ]
}

/// Returns the prompt of a shell, unless its own files set one: a reminder that the servers end with it.
fn prompt() -> String {
    format!("(quorlock demo) {}", env::var("PS1").unwrap_or_else(|_| "$ ".to_owned()))
}

/// Returns a `PATH` with the folder of this program, so that the command finds `quorlock`.
fn places_with_this_program() -> OsString {
    let (program, places) = (env::current_exe().unwrap_or_default(), places());
    let ours = program.parent().map(Path::to_owned);
    // An error means a colon in the name of a folder.
    env::join_paths(ours.into_iter().chain(env::split_paths(&places))).unwrap_or(places)
}

/// The command, in the foreground of the terminal while it runs, so that Ctrl-C reaches the command and not the
/// servers, which it may need to clean up.
struct Beside {
    child: Child,
    terminal: Option<Terminal>,
}

impl Beside {
    async fn until_ended(mut self, signals: &mut Signals) -> io::Result<ExitStatus> {
        if Terminal::is_undivided() {
            self.lend();
        }
        loop {
            tokio::select! {
                biased;
                change = self.child.change() => match change? {
                    Change::Ended(status) => return Ok(status),
                    Change::Stopped(signal) => self.stopped(signal),
                },
                signal = signals.next_named() => self.pass_on(signal),
            }
        }
    }

    fn stopped(&mut self, signal: Signal) {
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        let has_terminal = self.terminal.as_ref().is_some_and(Terminal::is_lent);
        if wants_terminal && self.lend() {
            self.child.signal(Signal::SIGCONT);
        } else if wants_terminal || has_terminal {
            self.stop_itself();
        }
        // Otherwise the command alone was stopped; or it was stopped together with us, which is reported only now
        // that we have been continued: stopping again would take another SIGCONT.
    }

    fn pass_on(&mut self, signal: Signal) {
        if signal == Signal::SIGTSTP {
            self.child.signal(Signal::SIGSTOP);
            return self.stop_itself();
        }
        if signal == Signal::SIGCONT {
            return self.go_on();
        }
        self.child.signal(signal);
    }

    fn go_on(&mut self) {
        self.lend();
        self.child.signal(Signal::SIGCONT);
    }

    fn lend(&mut self) -> bool {
        self.terminal.as_mut().is_some_and(|terminal| terminal.lend(self.child.group()))
    }

    /// Stops this process: the shell waits for us, not for the command.
    fn stop_itself(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        if !signals::stop(Signal::SIGTSTP, self.terminal.is_some()) {
            self.go_on();
        }
    }
}
