//! Decides whether to trust a configuration file at a default place.
//!
//! It names the servers that get the password, and files that are read and written. So only the user who starts the
//! program, or root, may have written it, and not the owner of the current folder.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User, geteuid};

/// What was found at a default place.
pub(super) enum Found {
    /// The text of a file that only this user and root can write.
    Text(String),
    /// A file that other users can write, and why.
    OfOthers(String),
}

/// Reads the file at `path`, if it can be trusted.
pub(super) fn read(path: &Path) -> io::Result<Found> {
    let mut file = File::open(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    // A user who can write to the folder can replace the file.
    for (what, metadata) in [("it", file.metadata()?), ("its folder", folder.metadata()?)] {
        if let Some(why) = of_others(&metadata) {
            return Ok(Found::OfOthers(format!("{what} {why}")));
        }
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(Found::Text(text))
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
        match read(&path).unwrap() {
            Found::Text(text) => {
                assert_eq!(text, "ttl = '3s'");
                None
            }
            Found::OfOthers(why) => Some(why),
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
        let Found::OfOthers(why) = read(&path).unwrap() else { unreachable!("it is trusted") };
        assert!(why.starts_with("it belongs to "), "{why}");
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        std::os::unix::fs::chown(place.path(), Some(1), None).unwrap();
        let Found::OfOthers(why) = read(&path).unwrap() else { unreachable!("it is trusted") };
        assert!(why.starts_with("its folder belongs to "), "{why}");
    }
}
