//! The file for the textfile collector, which sees whole files only.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use metrics_exporter_prometheus::PrometheusHandle;
use tracing::warn;

/// A file with the samples of this moment, replaced as a whole.
#[derive(Clone)]
pub(super) struct Textfile {
    path: PathBuf,
    handle: PrometheusHandle,
    /// Held while it is written, so that what is older never replaces what is newer.
    progress: Arc<Mutex<Progress>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Going,
    Failing,
    Finished,
}

impl Textfile {
    /// Writes it for the first time.
    pub(super) fn create(path: &Path, handle: &PrometheusHandle) -> io::Result<Textfile> {
        let progress = Arc::new(Mutex::new(Progress::Going));
        let file = Textfile { path: path.to_owned(), handle: handle.clone(), progress };
        file.write()?;
        Ok(file)
    }

    /// Writes it again, unless it is finished.
    pub(super) fn update(&self) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if *progress == Progress::Finished {
            return;
        }
        let outcome = self.write();
        if let (Err(error), Progress::Going) = (&outcome, *progress) {
            warn!(path = %self.path.display(), %error, "metrics not written");
        }
        *progress = if outcome.is_ok() { Progress::Going } else { Progress::Failing };
    }

    /// Writes it for the last time.
    pub(super) fn finish(&self) {
        self.update();
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Progress::Finished;
    }

    /// Under another name at first, which no collector reads.
    fn write(&self) -> io::Result<()> {
        let folder = self.path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new()
            .prefix(".quorlock-")
            .suffix(".tmp")
            // The collector is usually another user.
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(folder)?;
        file.write_all(self.handle.render().as_bytes())?;
        file.persist(&self.path)?;
        Ok(())
    }
}
