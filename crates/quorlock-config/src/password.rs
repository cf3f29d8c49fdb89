//! Where the password comes from. What may change is read again for each connection.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use quorlock::Builder;
use quorlock::runtime::Mutex;

use crate::layer::{self, Layer};
use crate::parent_death::die_with_parent;
use crate::source::Refusal;
use crate::trust::Opened;
use crate::{Warn, warn_of_readers};

/// How long the command may take: as long as a connection waits for it.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// The most that is read of its output.
const LONGEST: u64 = 1 << 16;

// No Debug: it is secret.
#[derive(Clone)]
pub(crate) enum Password {
    Fixed(String),
    File(PathBuf),
    /// A line for the shell, and what it has said when the settings were read.
    Command(String, String),
}

impl Password {
    /// Reads what these settings name, so that a mistake shows before anything is asked.
    pub(crate) fn of(given: &Layer, warn: Warn<'_>) -> Result<Option<Password>, Refusal> {
        if let Some(password) = &given.password {
            return Ok(Some(Password::Fixed(password.clone())));
        }
        match (&given.password_file, &given.password_command) {
            (Some(_), Some(_)) => Err(Refusal::of(&["password-file", "password-command"], layer::ONE_HAS_IT)),
            (Some(file), None) => {
                let checked =
                    check(file, warn).map_err(|problem| Refusal::of_named("password-file", problem));
                checked.map(|()| Some(Password::File(file.clone())))
            }
            (None, Some(line)) => {
                let first = output_of(line)
                    .map_err(|error| Refusal::of_named("password-command", error.to_string()))?;
                Ok(Some(Password::Command(line.clone(), first)))
            }
            (None, None) => Ok(None),
        }
    }

    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        match self {
            Password::Fixed(password) => builder.password(password),
            Password::File(file) => builder.password_file(file),
            Password::Command(line, first) => {
                let (line, first) = (line.clone(), Mutex::new(Some(first.clone())));
                // It has just been asked for the first connection.
                builder.password_source(move || first.lock().take().map_or_else(|| output_of(&line), Ok))
            }
        }
    }
}

/// Reads the first line of the file, and warns of others who can.
fn check(path: &Path, warn: Warn<'_>) -> Result<(), String> {
    let read = || {
        let opened = Opened::at(path)?;
        warn_of_readers("the password file", path, &opened, warn);
        opened.text()
    };
    let text = read().map_err(|error: io::Error| {
        format!(
            "cannot read {}: {error}; that setting names a file, the password itself goes into the variable \
             QUORLOCK_PASSWORD",
            layer::shown("the password file", path)
        )
    })?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(()),
        _ => Err(format!(
            "the password file {} begins with an empty line; its first line is the password",
            path.display()
        )),
    }
}

/// Runs the command, and returns the first line of its output. Its standard error is that of this program.
fn output_of(line: &str) -> io::Result<String> {
    // Neither the line nor its output is repeated: either may have a secret.
    let wrong = |why: String| io::Error::other(format!("the password-command {why}"));
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    die_with_parent(&mut command);
    let mut child =
        command.spawn().map_err(|error| wrong(format!("cannot be started by /bin/sh: {error}")))?;
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let (over, end) = channel::<()>();
    let watch = thread::Builder::new().spawn(move || {
        let is_late = end.recv_timeout(ENDS_WITHIN) == Err(RecvTimeoutError::Timeout);
        if is_late {
            // An error means that it has ended.
            let _ = killpg(group, Signal::SIGKILL);
        }
        is_late
    });
    let watch = watch.map_err(|error| {
        let _ = killpg(group, Signal::SIGKILL);
        let _ = child.wait();
        wrong(format!("cannot be watched, since no thread is left: {error}"))
    })?;
    let mut output = String::new();
    let read = child.stdout.take().map(|stdout| stdout.take(LONGEST).read_to_string(&mut output));
    // A parent that collects all children of `quorlock run` may have been faster.
    let status = child.wait().ok();
    drop(over);
    if watch.join().unwrap_or_default() {
        return Err(wrong(format!("takes longer than {}", quorlock::duration::format(ENDS_WITHIN))));
    }
    if let Some(status) = status.filter(|status| !status.success()) {
        return Err(wrong(format!("has failed: {status}")));
    }
    read.transpose().map_err(|error| wrong(format!("says what is no text: {error}")))?;
    match output.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(wrong("says nothing; the first line of its output is the password".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_a_command_says_is_the_password() {
        assert_eq!(output_of("echo one; echo two").unwrap(), "one");
        for (line, words) in [
            ("exit 3", "exit status: 3"),
            ("true", "says nothing"),
            ("echo; echo Qq7Zz9", "says nothing"),
            ("echo Qq7Zz9; exit 1", "has failed"),
            ("printf '\\377Qq7Zz9'", "no text"),
            ("exec sleep 600", "takes longer than 5s"),
        ] {
            let error = output_of(line).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("Qq7Zz9"), "{line}: {error}");
        }
    }
}
