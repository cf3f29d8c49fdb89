//! What other users of a host can do with the files of a node.

use std::path::Path;
use std::sync::Arc;

/// What any user of the host can do with the files of a node, as their modes say: a clause with the evidence.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Exposure {
    /// Read them: enough to lock them, and so to keep everyone from locks, and to see the tokens.
    Readable(Arc<str>),
    /// Change or replace them, and so take locks away.
    Writable(Arc<str>),
}

impl Exposure {
    /// Returns what any user can do with these `files` in `folder`, the worse first; `None` if nothing is known. Files
    /// that do not exist are none.
    #[must_use]
    pub fn of<'a>(folder: &Path, files: impl IntoIterator<Item = &'a Path>) -> Option<Exposure> {
        const READ: u32 = 0o4;
        const WRITE: u32 = 0o2;
        const SEARCH: u32 = 0o1;
        let clause = |what: &str, path: &Path, mode: u32| {
            format!("the {what} `{}` has the mode {:04o}", path.display(), mode & 0o7777).into()
        };
        let of_folder = mode(folder)?;
        if of_folder & WRITE != 0 {
            return Some(Exposure::Writable(clause("folder", folder, of_folder)));
        }
        if of_folder & SEARCH == 0 {
            return None;
        }
        let modes: Vec<(&Path, u32)> =
            files.into_iter().filter_map(|file| Some((file, mode(file)?))).collect();
        let first = |bit: u32| modes.iter().find(|(_, mode)| mode & bit != 0);
        first(WRITE)
            .map(|(file, mode)| Exposure::Writable(clause("file", file, *mode)))
            .or_else(|| first(READ).map(|(file, mode)| Exposure::Readable(clause("file", file, *mode))))
    }
}

#[cfg(unix)]
fn mode(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;

    path.metadata().ok().map(|found| found.mode())
}

/// Other systems have no modes.
#[cfg(not(unix))]
fn mode(_: &Path) -> Option<u32> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_worst_that_any_user_can_do_is_named() {
        let folder = std::env::temp_dir().join(format!("quorlock-exposure-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (first, second) = (folder.join("first"), folder.join("second"));
        let seen = |of_folder: u32, one: u32, other: u32| {
            for (path, mode) in [(&first, one), (&second, other), (&folder, of_folder)] {
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            }
            match Exposure::of(&folder, [first.as_path(), second.as_path(), Path::new("/nowhere")])? {
                Exposure::Readable(clause) => Some(("read", clause.contains("/second` has the mode 0644"))),
                Exposure::Writable(clause) if clause.starts_with("the folder") => Some(("replace", true)),
                Exposure::Writable(clause) => Some(("write", clause.contains("/second` has the mode 0666"))),
            }
        };
        for path in [&first, &second] {
            fs::write(path, "").unwrap();
        }
        assert_eq!(seen(0o755, 0o600, 0o660), None);
        assert_eq!(seen(0o755, 0o600, 0o644), Some(("read", true)));
        assert_eq!(seen(0o755, 0o644, 0o666), Some(("write", true)));
        assert_eq!(seen(0o1777, 0o600, 0o600), Some(("replace", true)));
        assert_eq!(seen(0o750, 0o644, 0o644), None, "they do not get there");
        fs::remove_dir_all(&folder).unwrap();
    }
}
