//! Finds the program to run, before the lock is acquired.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{AccessFlags, access};

use crate::failure::{Failure, limit};

/// What to run under the lock.
pub(crate) enum Program {
    /// A command with its arguments.
    Command(Vec<OsString>),
    /// One string for a shell.
    Shell(OsString),
}

impl Program {
    /// Checks that it can be started, as far as possible without starting it.
    pub(crate) fn find(self) -> Result<Found, Failure> {
        self.find_in(&places())
    }

    /// As [`find`](Program::find), with `places` as the `PATH`.
    pub(crate) fn find_in(self, places: &OsStr) -> Result<Found, Failure> {
        let words = match self {
            Program::Command(words) => words,
            // A shell would do nothing, with success, and a slot would be used.
            Program::Shell(line) if line.as_encoded_bytes().trim_ascii().is_empty() => {
                return Err(Failure::NotFound("the command of -c is empty; is a variable unset?".to_owned()));
            }
            Program::Shell(line) => {
                let (path, shell) = shell_in(places)?;
                return Ok(Found { path, words: vec![shell, "-c".into(), line] });
            }
        };
        let name = words.first().ok_or_else(|| {
            Failure::Usage("no command is given; write it after the name of the lock".to_owned())
        })?;
        let path = look_up(name, places)?;
        Ok(Found { path, words })
    }
}

/// A program that was found, to be started any number of times.
pub(crate) struct Found {
    /// Where it was found.
    path: PathBuf,
    /// Its name and arguments.
    words: Vec<OsString>,
}

impl Found {
    /// Returns its name.
    pub(crate) fn name(&self) -> &OsStr {
        self.words.first().map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// Returns the command that starts it.
    pub(crate) fn command(&self) -> Command {
        // It may have moved while the lock was waited for. Otherwise the child need not search for it again.
        let is_there = executable(&self.path).is_ok();
        let mut command = Command::new(if is_there { self.path.as_os_str() } else { self.name() });
        command.arg0(self.name()).args(self.words.iter().skip(1));
        command
    }
}

/// Returns the `PATH`.
pub(crate) fn places() -> OsString {
    env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into())
}

/// Returns the user's shell, and where it was found.
fn shell_in(places: &OsStr) -> Result<(PathBuf, OsString), Failure> {
    let (shell, named) = match env::var_os("SHELL").filter(|shell| !shell.is_empty()) {
        Some(shell) => (shell, ", which the variable SHELL names,"),
        None => ("/bin/sh".into(), ""),
    };
    match look_up(&shell, places) {
        Ok(path) => Ok((path, shell)),
        Err(Failure::NotFound(_)) => Err(Failure::NotFound(format!(
            "the shell {}{named} was not found, and -c needs one: name one in SHELL, or give the command without -c",
            shell.display()
        ))),
        Err(failure) => Err(failure),
    }
}

/// Searches for `name` as the system does when it starts the command.
fn look_up(name: &OsStr, places: &OsStr) -> Result<PathBuf, Failure> {
    if Path::new(name).components().count() > 1 || name.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match executable(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(refused(&path, error)),
        };
    }
    let mut refusal = None;
    // An empty name would be that of each folder itself.
    for place in env::split_paths(places).filter(|_| !name.is_empty()) {
        let path = place.join(name);
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => refusal = refusal.or(Some((path, error))),
        }
    }
    let missing = || refused(Path::new(name), io::ErrorKind::NotFound.into());
    Err(refusal.map_or_else(missing, |(path, error)| refused(&path, error)))
}

fn executable(path: &Path) -> io::Result<()> {
    if path.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    access(path, AccessFlags::X_OK)?;
    Ok(())
}

/// Returns the error for a program at `path` that cannot be started.
fn refused(path: &Path, source: io::Error) -> Failure {
    if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        let path = path.display().to_string();
        let is_variable = path.split_once('=').is_some_and(|(name, _)| !name.contains('/'));
        if path.is_empty() {
            return Failure::NotFound("the name of the command is empty; is a variable unset?".to_owned());
        }
        let cure = if path.contains(char::is_whitespace) {
            "to run a command line of several words, use -c, or `sh -c`"
        } else if is_variable {
            "to set a variable for the command, write `env` before it, or use -c"
        } else {
            "give its path, or a name in PATH; for a function, an alias or a word of the shell use -c, or `sh -c`"
        };
        Failure::NotFound(format!("{path} was not found; {cure}"))
    } else {
        Failure::NotExecutable { path: path.to_owned(), source }
    }
}

/// Returns the error for a program that was found but could not be started.
pub(crate) fn not_started(name: &Path, source: io::Error) -> Failure {
    if let Some(limit) = limit(&source) {
        return Failure::Limit { what: format!("start {}", name.display()), limit, source };
    }
    match look_up(name.as_os_str(), &places()) {
        Ok(path) if source.kind() == io::ErrorKind::NotFound => {
            let interpreter = interpreter(&path).unwrap_or_default();
            Failure::NoInterpreter { path, interpreter }
        }
        Ok(path) => Failure::NotExecutable { path, source },
        Err(_) => refused(name, source),
    }
}

/// Returns the interpreter that the `#!` of a script names, after a space.
fn interpreter(script: &Path) -> Option<String> {
    const MOST: u64 = 128;
    let mut line = String::new();
    BufReader::new(File::open(script).ok()?.take(MOST)).read_line(&mut line).ok()?;
    let named = line.strip_prefix("#!")?.split_whitespace().next()?;
    Some(format!(" {named}"))
}

/// Returns a word as a shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,=@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
