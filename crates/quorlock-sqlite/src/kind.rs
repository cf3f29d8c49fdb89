//! What makes a node of a URL.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use quorlock::{AddressError, Node, NodeAddress, NodeKind, Reason, Seams};

use crate::SqliteNode;

/// SQLite databases of this host: `sqlite:///var/lib/quorlock.db`.
///
/// The path is absolute. `%2C` is a comma, so that the URL can stand in a list, and `%25` a percent sign.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SqliteKind;

impl SqliteKind {
    /// The kind.
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
        let (_, path) = url.split_once("://").ok_or_else(|| wrong("has no path"))?;
        if path.contains(['?', '#']) {
            return Err(wrong("has a `?` or `#` (in a file name, write `%3F` or `%23`)"));
        }
        let path = decoded(path).ok_or_else(|| wrong("has a `%` that is not followed by two hex digits"))?;
        if !path.starts_with('/') {
            return Err(wrong("has no absolute path"));
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
        // One spelling for `//a/./b` and `/a/b`.
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
        let node = SqliteNode::new(self.to_string(), self.0.clone(), seams);
        Ok(Arc::new(node.map_err(|error| Reason::new("no thread can be started").because(error))?))
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

/// Without `%XX`. `None` where something else follows a `%`, or what comes out is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
