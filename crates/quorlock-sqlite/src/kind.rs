//! Creates nodes from `sqlite:` URLs.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use quorlock::node::{AddressError, Node, NodeAddress, NodeKind, Reason, Seams, percent_decoded};

use crate::SqliteNode;

/// SQLite databases of this host: `sqlite:///var/lib/quorlock.db`.
///
/// `sqlite:/var/lib/quorlock.db` is the same. The path is absolute: a relative one would name another file,
/// and so other locks, in every directory. `%2C` encodes a comma, which separates URLs in a list, and `%25` a
/// percent sign.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SqliteKind;

impl SqliteKind {
    /// Creates the kind.
    #[must_use]
    pub fn new() -> SqliteKind {
        SqliteKind
    }
}

impl NodeKind for SqliteKind {
    fn schemes(&self) -> &[&str] {
        &["sqlite"]
    }

    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
        let wrong =
            |problem| AddressError::malformed("sqlite://…", problem, "write `sqlite:///var/lib/quorlock.db`");
        let path = url.split_once(':').map(|(_, rest)| rest.strip_prefix("//").unwrap_or(rest));
        let path = path.filter(|path| !path.is_empty()).ok_or_else(|| wrong("has no path"))?;
        if path.eq_ignore_ascii_case(":memory:") {
            return Err(wrong("names a database in memory, which no other program sees"));
        }
        if path.contains(['?', '#']) {
            return Err(wrong("has a `?` or `#` (in a file name, write `%3F` or `%23`)"));
        }
        let path =
            percent_decoded(path).ok_or_else(|| wrong("has a `%` that is not followed by two hex digits"))?;
        if !path.starts_with('/') {
            return Err(AddressError::malformed(
                "sqlite:…",
                "has a relative path, which leads to another file in every directory",
                "write the path from `/` on, as in `sqlite:///var/lib/quorlock.db` or `sqlite://$PWD/quorlock.db`",
            ));
        }
        if path.contains('\0') {
            return Err(wrong("has a zero byte in its path"));
        }
        if Path::new(&path).components().any(|part| part == Component::ParentDir) {
            return Err(wrong("has a `..` in its path"));
        }
        if path.ends_with('/') {
            return Err(wrong("names a directory, and no file in it"));
        }
        // The same spelling for `//a/./b` and `/a/b`.
        Ok(Box::new(Database(Path::new(&path).components().collect())))
    }
}

#[derive(Debug)]
struct Database(PathBuf);

impl NodeAddress for Database {
    fn servers(&self) -> Vec<String> {
        vec![self.0.display().to_string()]
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        Ok(Arc::new(SqliteNode::new(self.to_string(), self.0.clone(), seams)?))
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sqlite://")?;
        for letter in self.0.display().to_string().chars() {
            match letter {
                '%' => f.write_str("%25")?,
                ',' => f.write_str("%2C")?,
                '?' => f.write_str("%3F")?,
                '#' => f.write_str("%23")?,
                letter => write!(f, "{letter}")?,
            }
        }
        Ok(())
    }
}
