//! The file for the textfile collector of the node exporter.

use std::fs::{File, Permissions, symlink_metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;
use quorlock::runtime::Mutex;
use tracing::warn;

/// A file with the current samples, replaced atomically.
#[derive(Clone)]
pub(super) struct Textfile {
    path: PathBuf,
    handle: PrometheusHandle,
    /// Locked during a write, so that an older write never replaces a newer one.
    progress: Arc<Mutex<Progress>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Going,
    Failing,
    Finished,
}

impl Textfile {
    /// Creates the file.
    pub(super) fn create(path: &Path, handle: &PrometheusHandle) -> io::Result<Textfile> {
        let progress = Arc::new(Mutex::new(Progress::Going));
        let file = Textfile { path: path.to_owned(), handle: handle.clone(), progress };
        file.write()?;
        Ok(file)
    }

    /// Rewrites the file, unless it is finished. Logs the first failure of a series.
    pub(super) fn update(&self) {
        let mut progress = self.progress.lock();
        if *progress == Progress::Finished {
            return;
        }
        let outcome = self.write();
        if let (Err(error), Progress::Going) = (&outcome, *progress) {
            warn!(path = %self.path.display(), %error, "metrics not written");
        }
        *progress = if outcome.is_ok() { Progress::Going } else { Progress::Failing };
    }

    /// Writes the file for the last time.
    pub(super) fn finish(&self) {
        self.update();
        *self.progress.lock() = Progress::Finished;
    }

    fn write(&self) -> io::Result<()> {
        write(&self.path, &self.handle)
    }
}

/// Writes to a temporary name, which the collector ignores, and renames it.
pub(super) fn write(path: &Path, handle: &PrometheusHandle) -> io::Result<()> {
    // Root would rename it over `/dev/null`.
    let present = symlink_metadata(path).ok().filter(|present| !present.is_file() && !present.is_dir());
    if let Some(present) = present {
        let what = if present.is_symlink() { "a symbolic link" } else { "a pipe, a socket or a device" };
        let problem = format!("it is {what}, which a file would replace");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".quorlock-")
        .suffix(".tmp")
        // The collector usually runs as another user.
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder)?;
    file.write_all(handle.render().as_bytes())?;
    file.persist(path)?;
    Ok(())
}

/// The longest file that is read.
const LONGEST: u64 = 1 << 20;

/// Returns the value of the gauge `name` of `resource` in the file of an earlier run, if there is one.
pub(super) fn kept(path: &Path, name: &str, resource: &str) -> Option<f64> {
    // Opening another thing, such as a pipe, might wait for ever.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    let escaped = resource.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let series = format!("{name}{{resource=\"{escaped}\"}} ");
    let value: f64 = text.lines().find_map(|line| line.strip_prefix(&series))?.trim().parse().ok()?;
    value.is_finite().then_some(value)
}
