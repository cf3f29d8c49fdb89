//! The pages, as files of the project.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A Markdown file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Page {
    /// The path from the root of the project.
    pub path: PathBuf,
    /// The contents.
    pub text: String,
}

/// Returns the root of the project: the checkout that contains the current folder, else the one in which this
/// crate was built.
#[must_use]
pub fn root() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    if let Some(checkout) = here.ancestors().find(|folder| folder.join("book.toml").is_file()) {
        return checkout.to_owned();
    }
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap_or_else(|_| PathBuf::from("."))
}

/// Reads a page by its path from the root of the project.
///
/// # Errors
///
/// If it cannot be read.
pub fn page(path: impl Into<PathBuf>) -> io::Result<Page> {
    let path = path.into();
    let text = fs::read_to_string(root().join(&path))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    Ok(Page { path, text })
}

/// Reads the README and all pages of the book except the summary.
///
/// # Errors
///
/// If they cannot be read.
pub fn pages() -> io::Result<Vec<Page>> {
    let mut paths = vec![PathBuf::from("README.md")];
    find(Path::new("docs"), &mut paths)?;
    paths.sort();
    paths.into_iter().filter(|path| !path.ends_with("SUMMARY.md")).map(page).collect()
}

/// Reads the pages outside the book that contain commands.
///
/// # Errors
///
/// If they cannot be read.
pub fn beside() -> io::Result<Vec<Page>> {
    ["CONTRIBUTING.md", "SECURITY.md", "compose/README.md"].into_iter().map(page).collect()
}

fn find(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root().join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            find(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
    Ok(())
}
