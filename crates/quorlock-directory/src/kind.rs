//! Creates nodes from `directory://` URLs.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use quorlock::node::{AddressError, Node, NodeAddress, NodeKind, Reason, Seams, percent_decoded};

use crate::DirectoryNode;

/// Directories: `directory:///var/lib/locks`.
///
/// The path is absolute. `%2C` encodes a comma, which separates URLs in a list, and `%25` a percent sign.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DirectoryKind;

impl DirectoryKind {
    /// Creates the kind.
    #[must_use]
    pub fn new() -> DirectoryKind {
        DirectoryKind
    }
}

impl NodeKind for DirectoryKind {
    fn schemes(&self) -> &[&str] {
        &["directory"]
    }

    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
        let wrong =
            |problem| AddressError::malformed("directory://…", problem, "write `directory:///var/lib/locks`");
        let (_, path) = url.split_once("://").ok_or_else(|| wrong("has no path"))?;
        let path =
            percent_decoded(path).ok_or_else(|| wrong("has a `%` that is not followed by two hex digits"))?;
        if !path.starts_with('/') {
            return Err(wrong("has no absolute path"));
        }
        if Path::new(&path).components().any(|part| part == Component::ParentDir) {
            return Err(wrong("has a `..` in its path"));
        }
        // The same spelling for `//a/./b/` and `/a/b`.
        Ok(Box::new(Directory(Path::new(&path).components().collect())))
    }
}

#[derive(Debug)]
struct Directory(PathBuf);

impl NodeAddress for Directory {
    fn servers(&self) -> Vec<String> {
        vec![self.0.display().to_string()]
    }

    fn node(&self, seams: &Seams) -> Result<Arc<dyn Node>, Reason> {
        Ok(Arc::new(DirectoryNode::new(self.to_string(), self.0.clone(), seams)?))
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.0.display().to_string().replace('%', "%25").replace(',', "%2C");
        write!(f, "directory://{path}")
    }
}
