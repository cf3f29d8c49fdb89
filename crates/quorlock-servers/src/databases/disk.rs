//! A small separate disk for a server: a file system in memory, mounted over its folder.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::missing;

/// Dropping it unmounts it.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
}

impl Disk {
    /// Mounts one over the folder `at`, which takes root, and Linux.
    pub fn mount(at: &Path, megabytes: u32) -> io::Result<Disk> {
        let size = format!("size={megabytes}m,mode=755");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "quorlock"]).arg(at).output();
        match mounted {
            Ok(done) if done.status.success() => Ok(Disk { at: at.to_owned() }),
            Ok(done) => {
                let message = String::from_utf8_lossy(&done.stderr).trim().to_owned();
                Err(missing(&format!("no small disk can be mounted here, which takes root: {message}")))
            }
            Err(error) => Err(missing(&format!("no small disk can be mounted here: {error}"))),
        }
    }

    /// Writes until nothing more fits.
    pub fn fill(&self) -> io::Result<()> {
        let mut filler = fs::File::options().create(true).append(true).open(self.filler())?;
        let mut bytes = vec![0; 1 << 20];
        while !bytes.is_empty() {
            match filler.write(&bytes) {
                Ok(0) => break,
                Ok(_) => {}
                // Smaller pieces may still fit.
                Err(full) if full.kind() == io::ErrorKind::StorageFull => bytes.truncate(bytes.len() / 2),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes room again.
    pub fn free(&self) -> io::Result<()> {
        fs::remove_file(self.filler())
    }

    /// Lets no program write to it any more. Returns false while one has a file open for that.
    #[must_use]
    pub fn make_read_only(&self) -> bool {
        let done = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.at).output();
        done.is_ok_and(|done| done.status.success())
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that was just killed may not have closed its files yet.
        drop(Command::new("umount").arg("--lazy").arg(&self.at).output());
    }
}
