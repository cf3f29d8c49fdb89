//! Marks on this host, by which a waiter sees within milliseconds that a holder has died, instead of after its TTL.
//!
//! A holder locks a file of its own with `flock`. The lock belongs to the open file, which the command and all its children
//! inherit: so it ends when the last of them is gone, however they ended, and no sooner. Who finds such a file unlocked takes
//! back the token that is written in it, as `quorlock release --token` does, and then the nodes give the lock to the next.
//!
//! ```text
//! /dev/shm/quorlock-UID/         of this user alone; in /tmp where there is no /dev/shm, or nothing can be written there
//!     HASH/                      of the kernel that runs, the nodes and the name of a lock; removed with its last mark,
//!                                a dead one by the next holder of this lock, or of any lock a day later
//!         RANDOM-alive           token, and the names of all locks that are held with it
//! ```
//!
//! A holder writes to the first place that it can use, and a waiter looks at both, since what one of them cannot use the
//! other may. /tmp may be shared with the kernel of another machine, to which a file that is locked here looks unlocked:
//! hence the kernel in the hash.
//!
//! Process numbers are not looked at: they may be used again. Everything here may fail without harm: the TTL remains.

use std::convert::Infallible;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quorlock::protocol::Mode;
use quorlock::runtime::{Clock as _, Entropy as _, SystemClock, SystemEntropy};
use quorlock::votes::{NodeVote, VoteOutcome, VoteReport};
use quorlock::{Coordinator, Token};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Resource, geteuid, getrlimit};
use tracing::debug;

use crate::runtime::sleep;
use crate::wanted::Acquired;

/// How often a waiter looks for dead holders: a look is a few system calls.
const EVERY: Duration = Duration::from_millis(15);
/// How long after a failure it looks again.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Where marks may be: nothing is to be written to a disk, nor to outlive the system, if that can be avoided.
const PLACES: [&str; 2] = ["/dev/shm", "/tmp"];

/// The places of the marks of some locks of a deployment.
pub(crate) struct Marks {
    coordinator: Coordinator,
    resources: Vec<String>,
    /// Of each lock, in the order of the places.
    folders: Vec<[PathBuf; PLACES.len()]>,
}

/// That this process, or one that has inherited it, holds a lock. Dropping it takes it away.
pub(crate) struct Mark(Vec<(PathBuf, File)>);

impl Marks {
    /// Returns the place of the marks of these locks. `nodes` are as they are configured.
    pub(crate) fn of<'a>(
        coordinator: &Coordinator,
        nodes: &[String],
        key_prefix: &str,
        resources: impl IntoIterator<Item = &'a str>,
    ) -> Marks {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        let mut resources: Vec<String> = resources.into_iter().map(str::to_owned).collect();
        resources.sort_unstable();
        resources.dedup();
        let folders = |kernel: String| {
            let folders = |resource| {
                let mut hasher = DefaultHasher::new();
                (&kernel, &nodes, key_prefix, resource).hash(&mut hasher);
                let name = format!("quorlock-{}/{:016x}", geteuid().as_raw(), hasher.finish());
                PLACES.map(|place| Path::new(place).join(&name))
            };
            resources.iter().map(folders).collect()
        };
        let folders = kernel().map(folders).unwrap_or_default();
        Marks { coordinator: coordinator.clone(), resources, folders }
    }

    /// Marks the locks as held, from now on until the mark is dropped here, or this process and all that have inherited the
    /// mark have ended.
    pub(crate) fn hold(&self, acquired: &Acquired) -> Mark {
        let mut made = Vec::new();
        let names: Vec<String> = match acquired.permit {
            Some(number) => self.resources.iter().map(|name| format!("{name}#{number}")).collect(),
            None => self.resources.clone(),
        };
        let Some(token) =
            str::from_utf8(acquired.token().as_bytes()).ok().filter(|token| !token.contains('\n'))
        else {
            return Mark(made);
        };
        if names.iter().any(|name| name.contains('\n')) {
            return Mark(made);
        }
        if acquired.mode() == Mode::Exclusive {
            // No other holder of the lock, or of this permit, is left of which they could say that it is dead.
            let is_over = |dead: &PathBuf| acquired.permit.is_none() || is_of(dead, &names);
            self.folders.iter().flatten().flat_map(|folder| dead_in(folder)).filter(is_over).for_each(
                |dead| {
                    remove(&dead);
                },
            );
        }
        let bases = self.folders.first().into_iter().flatten().filter_map(|folder| folder.parent());
        bases.for_each(|base| sweep(base, SystemClock::default().wall()));
        let text = format!("{token}\n{}\n", names.join("\n"));
        for folders in &self.folders {
            let mut marks = folders.iter().map(|folder| make(folder, &text));
            made.extend(marks.find_map(|mark| mark.inspect_err(|error| debug!(%error, "no mark")).ok()));
        }
        Mark(made)
    }

    /// Takes back what dead holders on this host have left, again and again.
    pub(crate) async fn take_back(&self) -> Infallible {
        loop {
            sleep(EVERY).await;
            for folder in self.folders.iter().flatten() {
                for path in dead_in(folder) {
                    if !self.take(&path).await {
                        sleep(AFTER_FAILURE).await;
                    }
                }
            }
        }
    }

    /// Takes back what a dead holder has left. Returns whether a quorum no longer has it.
    async fn take(&self, path: &Path) -> bool {
        let Some((_locked, text)) = seize(path) else { return true };
        let mut lines = text.lines();
        let (Some(token), names) = (lines.next(), lines.collect::<Vec<_>>()) else { return true };
        let token = Token::found(token.as_bytes());
        let report = match names.as_slice() {
            [] => return remove(path),
            [name] => self.coordinator.lock(*name).revoke(&token).await,
            names => self.coordinator.lock_all(names.iter().copied()).revoke(&token).await,
        };
        match report {
            Ok(report) if without(&report) >= report.quorum().needed() => {
                debug!(token = %token.short(), "took back what a holder on this host left that has died");
                remove(path)
            }
            Ok(_) => false,
            // It will never work.
            Err(_) => remove(path),
        }
    }
}

/// Returns what distinguishes the kernel that runs from others with which it may share files; `None` if it does not say.
fn kernel() -> Option<String> {
    if cfg!(target_os = "linux") {
        fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()
    } else {
        // There files of other kernels are rare, and nothing says so in a file.
        Some(String::new())
    }
}

/// How many nodes no longer have the token.
fn without(report: &VoteReport) -> usize {
    let is_without = |vote: &&NodeVote| matches!(vote.outcome, VoteOutcome::Granted | VoteOutcome::Free);
    report.votes().iter().filter(is_without).count()
}

impl Drop for Mark {
    fn drop(&mut self) {
        for (path, _) in &self.0 {
            remove(path);
        }
    }
}

/// For how long a dead holder's mark stays where no holder and no waiter of its lock comes: longer than nearly any TTL.
const STAYS: Duration = Duration::from_secs(24 * 60 * 60);
/// How many folders are looked into for such marks, so that it takes a few milliseconds at most.
const MOST_SWEPT: usize = 64;

/// Removes what dead holders of other locks have left long before `now`: those locks may never be asked for again.
fn sweep(base: &Path, now: Duration) {
    let is_old = |folder: &PathBuf| {
        let changed = folder.symlink_metadata().ok().and_then(|found| u64::try_from(found.mtime()).ok());
        changed.is_some_and(|changed| now.saturating_sub(Duration::from_secs(changed)) > STAYS)
    };
    let folders = fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path());
    folders.filter(is_old).take(MOST_SWEPT).flat_map(|folder| dead_in(&folder)).for_each(|dead| {
        remove(&dead);
    });
}

fn remove(path: &Path) -> bool {
    // Another one may have been faster, and there may be other marks.
    drop(fs::remove_file(path));
    drop(path.parent().map(fs::remove_dir));
    true
}

/// How often a folder is created again that was removed with another mark.
const ATTEMPTS: u32 = 100;

fn make(folder: &Path, text: &str) -> io::Result<(PathBuf, File)> {
    let mut attempts = 0..ATTEMPTS;
    loop {
        match make_in(folder, text) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempts.next().is_some() => {}
            made => {
                // Without a mark of another in it.
                return made.inspect_err(|_| drop(fs::remove_dir(folder)));
            }
        }
    }
}

fn make_in(folder: &Path, text: &str) -> io::Result<(PathBuf, File)> {
    // A write beyond it would kill this process, by SIGXFSZ.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < text.len() as u64) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    for folder in folder.parent().into_iter().chain([folder]) {
        match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let found = folder.symlink_metadata()?;
        if found.is_dir() && found.uid() == geteuid().as_raw() && is_stricter(&found) {
            // Created under a umask that leaves its owner less.
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        } else if !is_ours(&found) {
            return Err(io::Error::other(format!("{} belongs to another user", folder.display())));
        }
    }
    // The guardian keeps a file of such a name open, for a command that closes what it inherits.
    let random = format!("{:032x}-alive", SystemEntropy::default().next_u128());
    // Under its name only once it is locked.
    let (new, path) = (folder.join(format!(".{random}")), folder.join(random));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(io::Error::from)
        .and_then(|()| file.write_all(text.as_bytes()))
        .and_then(|()| Ok(fcntl_setfd(&file, FdFlags::empty())?))
        .and_then(|()| fs::rename(&new, &path));
    if let Err(error) = written {
        remove(&new);
        return Err(error);
    }
    Ok((path, file))
}

/// Whether others may do nothing with a folder, and its owner not everything.
fn is_stricter(folder: &Metadata) -> bool {
    let mode = folder.permissions().mode() & 0o777;
    mode.trailing_zeros() >= 6 && mode != 0o700
}

/// Whether a folder is of this user, and of no other.
fn is_ours(folder: &Metadata) -> bool {
    folder.is_dir() && folder.uid() == geteuid().as_raw() && folder.permissions().mode() & 0o777 == 0o700
}

/// Returns the marks whose holders have died.
fn dead_in(folder: &Path) -> Vec<PathBuf> {
    if !folder.parent().is_some_and(|base| base.symlink_metadata().is_ok_and(|found| is_ours(&found))) {
        return Vec::new();
    }
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_whole =
        |path: &PathBuf| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    names.map(|entry| entry.path()).filter(is_whole).filter(|path| seize(path).is_some()).collect()
}

/// Whether a dead holder's mark is of these locks alone.
fn is_of(mark: &Path, names: &[String]) -> bool {
    seize(mark).is_some_and(|(_, text)| text.lines().skip(1).eq(names))
}

/// Locks a mark and reads it, if no process has it any more.
fn seize(path: &Path) -> Option<(File, String)> {
    let file = File::open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    // A holder that ended properly has removed it before.
    let is_there = path
        .symlink_metadata()
        .is_ok_and(|there| file.metadata().is_ok_and(|found| found.ino() == there.ino()));
    if !is_there {
        return None;
    }
    let text = io::read_to_string(&file).ok()?;
    Some((file, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_dead_once_all_that_inherited_it_are_gone_and_not_if_it_was_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let marks = folder.path().join("a");
        let (path, file) = make(&marks, "token\na\n").unwrap();
        assert!(dead_in(&marks).is_empty());
        let inherited = file.try_clone().unwrap();
        drop(file);
        assert!(dead_in(&marks).is_empty(), "a child has it");
        drop(inherited);
        assert_eq!(dead_in(&marks), std::slice::from_ref(&path));
        let (seized, text) = seize(&path).unwrap();
        assert_eq!(text, "token\na\n");
        assert!(seize(&path).is_none(), "one takes it back");
        drop(seized);
        drop(Mark(vec![(path, File::open("/dev/null").unwrap())]));
        assert!(dead_in(&marks).is_empty());
    }

    #[test]
    fn a_mark_of_a_lock_that_never_comes_again_is_removed_a_day_later() {
        let base = tempfile::tempdir().unwrap();
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let [dead, alive] = ["dead", "alive"].map(|name| base.path().join(name));
        drop(make(&dead, "token\na\n").unwrap().1);
        let kept = make(&alive, "token\na\n").unwrap();
        let now = SystemClock::default().wall();
        sweep(base.path(), now + STAYS / 2);
        assert!(dead.exists(), "its lock may be waited for");
        sweep(base.path(), now + STAYS * 2);
        assert!(!dead.exists() && kept.0.exists());
    }

    #[test]
    fn a_folder_that_its_owner_may_not_enter_is_opened_and_that_of_others_refused() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("quorlock-1");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o600)).unwrap();
        let marks = folder.join("a");
        drop(Mark(vec![make(&marks, "token\na\n").unwrap()]));
        assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(make(&marks, "token\na\n").is_err(), "others may enter it");
        assert!(!marks.exists());
    }

    #[test]
    fn a_folder_is_removed_with_its_last_mark_and_no_mark_is_lost_by_that() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let marks = folder.path().join("a");
        let (one, other) = (make(&marks, "token\na\n").unwrap(), make(&marks, "other\na\n").unwrap());
        drop(Mark(vec![one]));
        assert!(other.0.exists());
        drop(Mark(vec![other]));
        assert!(!marks.exists());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| drop(Mark(vec![make(&marks, "token\na\n").unwrap()]))));
            }
        });
        assert!(!marks.exists());
    }

    #[test]
    fn a_folder_that_others_can_write_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make(&folder.path().join("a"), "token\na\n").is_err());
    }
}
