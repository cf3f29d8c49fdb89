//! Decides whether to trust a file, by what was opened and not by its path, which may change meanwhile.
//!
//! A configuration file names the servers that get the password, and files that are read and written. So only the user
//! who starts the program, or root, may have written it: not the owner of the current folder, nor of a file that a
//! variable names. `--config` alone overrules that, because whoever types it has looked.
//!
//! A secret is judged as `ssh` judges a key: if it belongs to this user, others should not be able to read it. Files of
//! other owners are theirs to protect, as secrets that are mounted into a container. `ssh` refuses such a key; here it is
//! a warning, because a container shows its own secrets to all its users by default, and a job that no longer runs at
//! night harms more than a secret that was readable before.
//!
//! Nothing is waited for: a named pipe in the place of a file would stop every program in that folder.

use std::fs::{File, Metadata, OpenOptions, symlink_metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::unistd::{Gid, Group, Uid, User, geteuid};

/// A regular file, open for reading.
#[derive(Debug)]
pub struct Opened {
    file: File,
    metadata: Metadata,
}

/// What was found at a default place.
pub(crate) enum Found {
    /// A file that only this user and root can write.
    Trusted(Opened),
    /// One that other users can write, and why.
    OfOthers(String),
    /// A folder that this user may not search.
    Hidden(io::Error),
    Nothing,
}

/// Looks at a default place. What is in a folder of others is not even opened.
pub(crate) fn look(path: &Path) -> io::Result<Found> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Found::Hidden(error)),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    // A user who can write to the folder can replace the file.
    if let Some(why) = of_others(&folder.metadata()?) {
        return Ok(Found::OfOthers(format!("its folder {why}")));
    }
    match Opened::at(path) {
        Ok(opened) => Ok(match opened.of_others() {
            Some(why) => Found::OfOthers(why),
            None => Found::Trusted(opened),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match path.read_link() {
            Ok(target) => {
                let problem = format!("it is a link to {}, which is not there", target.display());
                Err(io::Error::new(io::ErrorKind::NotFound, problem))
            }
            // It was removed meanwhile.
            Err(_) => Ok(Found::Nothing),
        },
        Err(error) => Err(error),
    }
}

impl Opened {
    /// Opens the file at `path`, which must be a regular one.
    ///
    /// # Errors
    ///
    /// Those of opening it, and `InvalidInput` for a pipe or a device.
    pub fn at(path: &Path) -> io::Result<Opened> {
        let without_waiting = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_file() {
            return Ok(Opened { file, metadata });
        }
        Err(if metadata.is_dir() {
            io::ErrorKind::IsADirectory.into()
        } else {
            io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or a device, and not a regular file")
        })
    }

    /// Returns its text.
    ///
    /// # Errors
    ///
    /// Those of reading it, and `InvalidData` if it is not UTF-8.
    pub fn text(mut self) -> io::Result<String> {
        let mut text = String::new();
        self.file.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Whether it is the file at `path`.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        path.metadata()
            .is_ok_and(|there| (there.dev(), there.ino()) == (self.metadata.dev(), self.metadata.ino()))
    }

    /// Returns why other users can write it, if they can.
    pub(crate) fn of_others(&self) -> Option<String> {
        of_others(&self.metadata).map(|why| format!("it {why}"))
    }

    /// Returns who else can read it, if it belongs to this user.
    pub(crate) fn readers(&self) -> Option<&'static str> {
        const GROUP: u32 = 0o040;
        const WORLD: u32 = 0o004;
        let ours = geteuid();
        let (mode, group) = (self.metadata.mode(), Gid::from_raw(self.metadata.gid()));
        if Uid::from_raw(self.metadata.uid()) != ours {
            None
        } else if mode & WORLD != 0 {
            Some("all users")
        } else {
            (mode & GROUP != 0 && !is_private(group, ours)).then_some("its group")
        }
    }
}

/// Returns why other users can write there, if they can.
fn of_others(metadata: &Metadata) -> Option<String> {
    const GROUP: u32 = 0o020;
    const WORLD: u32 = 0o002;
    let (owner, ours) = (Uid::from_raw(metadata.uid()), geteuid());
    if owner != ours && !owner.is_root() {
        return Some(format!("belongs to {}", user(owner).unwrap_or_else(|| owner.to_string())));
    }
    if metadata.mode() & WORLD != 0 {
        return Some("is writable by all users".to_owned());
    }
    let group = Gid::from_raw(metadata.gid());
    if metadata.mode() & GROUP != 0 && !is_private(group, ours) {
        return Some("is writable by its group".to_owned());
    }
    None
}

fn user(id: Uid) -> Option<String> {
    User::from_uid(id).ok().flatten().map(|user| user.name)
}

/// Whether `us` is the only member of `group`: many systems give each user a group of the same name, and make
/// files writable by it.
fn is_private(group: Gid, us: Uid) -> bool {
    let (Ok(Some(user)), Ok(Some(group))) = (User::from_uid(us), Group::from_gid(group)) else {
        return false;
    };
    user.gid == group.gid && user.name == group.name && group.mem.iter().all(|member| *member == user.name)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Returns why a file with mode `file` in a folder with mode `folder` is not trusted.
    fn why(file: u32, folder: u32) -> Option<String> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("quorlock.toml");
        fs::write(&path, "ttl = '3s'").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(file)).unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(folder)).unwrap();
        match look(&path).unwrap() {
            Found::Trusted(opened) => {
                assert_eq!(opened.text().unwrap(), "ttl = '3s'");
                None
            }
            Found::OfOthers(why) => Some(why),
            Found::Hidden(_) | Found::Nothing => unreachable!("it is there"),
        }
    }

    #[test]
    fn a_file_that_others_can_write_or_replace_is_not_trusted() {
        assert_eq!(why(0o644, 0o755), None);
        assert_eq!(why(0o646, 0o755).unwrap(), "it is writable by all users");
        assert_eq!(why(0o644, 0o757).unwrap(), "its folder is writable by all users");
        assert_eq!(why(0o600, 0o1777).unwrap(), "its folder is writable by all users");
    }

    #[test]
    fn a_group_of_one_is_private() {
        let us = User::from_uid(geteuid()).unwrap().unwrap();
        let alone = Group::from_gid(us.gid).unwrap().unwrap();
        let alone = alone.name == us.name && alone.mem.iter().all(|member| *member == us.name);
        assert_eq!(is_private(us.gid, geteuid()), alone);
        // `daemon`, which has no members.
        assert!(!is_private(Gid::from_raw(1), geteuid()) || us.gid.as_raw() == 1);
    }

    #[test]
    fn a_file_of_another_user_is_not_trusted() {
        if !geteuid().is_root() {
            // Only root can change the owner of a file.
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("quorlock.toml");
        fs::write(&path, "").unwrap();
        std::os::unix::fs::chown(&path, Some(1), None).unwrap();
        let Found::OfOthers(why) = look(&path).unwrap() else { unreachable!("it is trusted") };
        assert!(why.starts_with("it belongs to "), "{why}");
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        std::os::unix::fs::chown(place.path(), Some(1), None).unwrap();
        let Found::OfOthers(why) = look(&path).unwrap() else { unreachable!("it is trusted") };
        assert!(why.starts_with("its folder belongs to "), "{why}");
    }
    #[test]
    fn only_readers_of_a_file_of_ours_are_named() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("password");
        fs::write(&path, "secret").unwrap();
        for (mode, readers) in [(0o600, None), (0o644, Some("all users")), (0o604, Some("all users"))] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(Opened::at(&path).unwrap().readers(), readers, "{mode:o}");
        }
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
            assert_eq!(Opened::at(&path).unwrap().readers(), None, "its owner protects it, or not");
        }
    }
}
