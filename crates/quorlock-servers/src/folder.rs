//! Folders of servers.

use std::io;
use std::path::Path;

use tempfile::TempDir;

/// Creates a folder in `place` that no other user can enter: it has data, sockets and passwords.
pub(crate) fn private(prefix: &str, place: &Path) -> io::Result<TempDir> {
    let mut folder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;

        folder.permissions(std::fs::Permissions::from_mode(0o700));
    }
    folder.prefix(prefix).tempdir_in(place)
}
