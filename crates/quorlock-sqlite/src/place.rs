//! Checks where the file is: on a disk of this host, whose boots have names.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use quorlock::node::facts::{Concern, Exposure};
use quorlock::node::{NodeError, NodeErrorKind, Reason};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, access, chmodat, mknodat, statfs};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Returns the path without symbolic links, so that the files next to the database have only one name.
///
/// # Errors
///
/// If no database can be there.
pub(crate) fn found(path: &Path) -> Result<PathBuf, NodeError> {
    let real = fs::canonicalize(path).ok();
    let path = match (&real, path.parent(), path.file_name()) {
        (Some(real), ..) => real.clone(),
        (None, Some(directory), Some(name)) => {
            fs::canonicalize(directory).map_err(|_| unopened(path))?.join(name)
        }
        (None, ..) => return Err(unopened(path)),
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    // On an error nothing is known, and the database will not open either.
    if let Ok(system) = statfs(directory)
        && let Some(name) = shared(system.f_type)
    {
        let words = format!(
            "`{}` is on {name}, whose locks and memory other hosts do not share reliably: use a path on a disk of \
             this host, such as /var/lib or /run",
            path.display()
        );
        return Err(NodeError::Unfit { kind: NodeErrorKind::Unsupported, reason: Reason::new(words) });
    }
    Ok(path)
}

/// Where the data are: the files that have them, each by what a copy or a restored one does not have: the
/// inode, and when that was made. One that is not there is an empty text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The database.
    file: String,
    /// Its log. SQLite deletes it only when the last program closes the database, and first copies all of it there.
    log: String,
    /// The index of the log, which is made anew from it; two of them do not exclude each other's programs.
    index: String,
}

impl Place {
    /// What is noted in the database.
    pub(crate) fn noted(&self) -> String {
        format!("{} {}", self.file, self.log)
    }

    /// Whether the data may lack what was written where `noted` says. `is_in_use`: whether a program had the
    /// database open since, so that SQLite did not delete its log.
    pub(crate) fn may_lack(&self, noted: &str, is_in_use: impl FnOnce() -> bool) -> bool {
        let (file, log) = noted.split_once(' ').unwrap_or((noted, ""));
        self.file != file || (self.log != log && is_in_use())
    }
}

/// Returns where the data are.
///
/// # Errors
///
/// If there is no file, or it has several names: the files next to it have names of their own for each, so that
/// programs that use different ones do not exclude each other.
pub(crate) fn place_of(path: &Path) -> Result<Place, NodeError> {
    let found = fs::metadata(path).map_err(|_| unopened(path))?;
    if found.nlink() > 1 {
        let shown = path.display();
        let words = format!(
            "`{shown}` has {} names (hard links), and programs that use different ones would not exclude each other: \
             remove the others (`find / -xdev -samefile {shown}` lists them), or name another file",
            found.nlink()
        );
        return Err(NodeError::Unfit { kind: NodeErrorKind::Misconfigured, reason: Reason::new(words) });
    }
    let next =
        |what| fs::symlink_metadata(beside(path, what)).map(|found| name_of(&found)).unwrap_or_default();
    Ok(Place { file: name_of(&found), log: next("wal"), index: next("shm") })
}

fn name_of(found: &fs::Metadata) -> String {
    let born = found.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    format!("{}:{}", found.ino(), born.as_nanos())
}

/// Creates an empty file for this user alone, or for the group of a directory that passes its group on (setgid): who
/// may read a database can keep everyone from locks, by a lock of the file system on it. SQLite gives its other files
/// the same mode. Returns whether the file is new.
///
/// Does not open the file: closing any descriptor of it would release SQLite's locks. If this fails, SQLite tries, and
/// says why.
pub(crate) fn make(path: &Path) -> bool {
    let shared =
        path.parent().is_some_and(|folder| fs::metadata(folder).is_ok_and(|found| passes_group(&found)));
    let mode = Mode::RUSR | Mode::WUSR;
    let is_new = mknodat(CWD, path, FileType::RegularFile, mode, 0).is_ok();
    if is_new && shared {
        // A mode at creation is subject to the umask.
        let _ = chmodat(CWD, path, mode | Mode::RGRP | Mode::WGRP, AtFlags::empty());
    }
    is_new
}

fn passes_group(folder: &fs::Metadata) -> bool {
    const SETGID: u32 = 0o2000;
    folder.mode() & SETGID != 0
}

/// Refuses files that another user may have put there: who owns them decides who gets a lock. Expected are this user, root,
/// the owner of the folder, and the members of a group that shares it.
///
/// # Errors
///
/// Which file it is, and what to do.
pub(crate) fn check_owners(path: &Path) -> Result<(), NodeError> {
    const OTHERS_WRITE: u32 = 0o2;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let Ok(of_folder) = fs::metadata(folder) else { return Ok(()) };
    let is_shared = passes_group(&of_folder) && of_folder.mode() & OTHERS_WRITE == 0;
    let expected = [geteuid().as_raw(), 0, of_folder.uid()];
    for file in all_files(path) {
        let Ok(found) = fs::symlink_metadata(&file) else { continue };
        let shown = file.display();
        let words = if found.is_symlink() {
            format!("`{shown}` is a symbolic link, which quorlock and SQLite never make: remove it")
        } else if !is_shared && !expected.contains(&found.uid()) {
            format!(
                "`{shown}` belongs to another user (UID {}), who may have put it there to decide who gets a lock: name a file in a \
                 folder of your own; or, if you know that user, share a folder with a group (`chmod 2770`), or `chown` the file",
                found.uid()
            )
        } else {
            continue;
        };
        let reason = Reason::new(words);
        return Err(NodeError::Unfit {
            kind: NodeErrorKind::PermissionDenied(quorlock::node::Access::Key),
            reason,
        });
    }
    Ok(())
}

/// The database and the files next to it.
fn all_files(path: &Path) -> [PathBuf; 4] {
    [path.to_owned(), beside(path, "wal"), beside(path, "shm"), beside(path, "alive")]
}

/// The magic number of a file system, which is signed and has 32 bits on some systems.
fn magic(kind: impl Into<i64>) -> i64 {
    kind.into() & 0xffff_ffff
}

/// Returns the name of a file system that other hosts may share, by its magic number.
fn shared(kind: impl Into<i64>) -> Option<&'static str> {
    Some(match magic(kind) {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x0102_1997 => "9p",
        0x6573_5546 => "FUSE (sshfs, virtiofs and others)",
        0x00c3_6400 => "Ceph",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x564c => "NCP",
        0x0bd0_0bd0 => "Lustre",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        0x786f_4256 | 0xbacb_acbc => "a shared folder of a virtual machine",
        _ => return None,
    })
}

/// Returns what is said of a file in a layer that a container has for itself: each container has another file at the path.
pub(crate) fn concern(path: &Path) -> Option<Concern> {
    const OVERLAY: i64 = 0x794c_7630;
    let path = found(path).ok()?;
    let system = statfs(path.parent()?).ok()?;
    let evidence = "is on an overlay file system, as the own layer of a container is: a program in another container has another \
                    file at this path, and gets the same locks";
    let cure = "if programs of several containers are to exclude each other, mount a directory of the host into all of them, and \
                name a file there";
    (magic(system.f_type) == OVERLAY).then(|| Concern::new(evidence, cure))
}

/// Returns what other users can do with the database at `path` and the files next to it.
pub(crate) fn exposure(path: &Path) -> Option<Exposure> {
    let path = found(path).ok()?;
    Exposure::of(path.parent()?, all_files(&path).iter().map(PathBuf::as_path))
}

/// Returns the path of a file next to the database.
pub(crate) fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-");
    name.push(what);
    name.into()
}

/// Whether an empty database is beside the log of another one.
pub(crate) fn is_cut_off(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.len() == 0) && beside(path, "wal").exists()
}

/// Returns the name of this boot of the kernel. Every process that could hold a lock of an earlier boot is
/// gone.
///
/// # Errors
///
/// If the system has none.
pub(crate) fn boot() -> Result<String, NodeError> {
    match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(boot) => Ok(boot.trim().to_owned()),
        Err(error) => {
            if let Some(short) = shortage(&error) {
                return Err(short);
            }
            let words = "this system does not identify its boot (/proc/sys/kernel/random/boot_id): `sqlite:` \
                         needs Linux with /proc";
            let reason = Reason::new(words).because(error);
            Err(NodeError::Unfit { kind: NodeErrorKind::Unsupported, reason })
        }
    }
}

/// Returns why the file at `path` could not be opened, which has failed with this error.
pub(crate) fn failed_to_open(path: &Path, error: &io::Error) -> NodeError {
    shortage(error).unwrap_or_else(|| unopened(path))
}

/// Returns why the database at `path` could not be opened. Does not open the file: closing any descriptor of
/// it would release SQLite's locks.
pub(crate) fn unopened(path: &Path) -> NodeError {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let (shown, folder) = (path.display().to_string(), directory.display().to_string());
    let failed = |kind, words: String| NodeError::Failed { kind, reason: Reason::new(words) };
    if path.is_dir() {
        let words = format!("`{shown}` is a directory: name a file in it");
        return failed(NodeErrorKind::Misconfigured, words);
    }
    if let Err(Errno::NOENT | Errno::NOTDIR) = access(directory, Access::EXISTS) {
        let words = format!("there is no directory `{folder}`: create it, or name a file elsewhere");
        return failed(NodeErrorKind::Misconfigured, words);
    }
    let file = access(path, Access::READ_OK | Access::WRITE_OK);
    let room = access(directory, Access::WRITE_OK | Access::EXEC_OK);
    for (what, answer) in [("file", file), ("directory", room)] {
        let name = if what == "file" { &shown } else { &folder };
        match answer {
            Err(Errno::ACCESS | Errno::PERM) => {
                let words = format!(
                    "this user may not write the {what} `{name}`: grant write access to file and directory (SQLite \
                     creates files next to the database), or name a file elsewhere"
                );
                return failed(NodeErrorKind::PermissionDenied(quorlock::node::Access::Key), words);
            }
            Err(Errno::ROFS) => return read_only(path),
            Err(_) | Ok(()) => {}
        }
    }
    // SQLite does not say what its error was. It is another file, since closing this one would release its locks.
    if let Some(short) = File::open(directory).err().as_ref().and_then(shortage) {
        return short;
    }
    let words = format!("`{shown}` cannot be opened as a database: name a writable file");
    failed(NodeErrorKind::Misconfigured, words)
}

/// Returns the error of a call that failed because files or memory are short, which passes.
fn shortage(error: &io::Error) -> Option<NodeError> {
    let words = match Errno::from_io_error(error)? {
        Errno::MFILE => "this process has too many open files: raise the limit (ulimit -n)",
        Errno::NFILE => "this system has too many open files: raise fs.file-max",
        Errno::NOMEM => "no memory is left: raise the limit or add some",
        _ => return None,
    };
    Some(NodeError::Unreachable { reason: Reason::new(words) })
}

/// The error of a file that is read-only.
pub(crate) fn read_only(path: &Path) -> NodeError {
    let words = format!(
        "`{}` takes no writes: make the file, its directory and its file system writable, or name a file elsewhere",
        path.display()
    );
    NodeError::Unfit { kind: NodeErrorKind::ReadOnly, reason: Reason::new(words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait must outlast it.
    #[test]
    fn a_shortage_is_no_wrong_setting() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            let error = failed_to_open(Path::new("/no/such/file"), &errno.into());
            assert!(!error.is_permanent() && !error.may_have_acted(), "{error:#}");
        }
        assert!(failed_to_open(Path::new("/no/such/file"), &Errno::NOENT.into()).is_permanent());
    }

    #[test]
    fn network_file_systems_are_refused_by_name_and_disks_are_not() {
        let magics: [(i64, &str); 4] = [
            (0x6969, "NFS"),
            (0xff53_4d42, "SMB"),
            (0x0102_1997, "9p"),
            (0x6573_5546, "FUSE (sshfs, virtiofs and others)"),
        ];
        for (magic, name) in magics {
            assert_eq!(shared(magic), Some(name));
        }
        // As on systems where the number is signed and has 32 bits.
        assert_eq!(shared(-11_317_950_i32), shared(0xff53_4d42_i64));
        // ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS.
        for magic in
            [0xef53_i64, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010]
        {
            assert_eq!(shared(magic), None, "{magic:x}");
        }
    }
}
