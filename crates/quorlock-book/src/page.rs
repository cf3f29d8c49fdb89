//! The pages, as files of the project.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One file in Markdown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Page {
    /// Where it is, from the root of the project.
    pub path: PathBuf,
    /// What stands in it.
    pub text: String,
}

/// The folder of the project: the checkout in which this runs, which need not be the one in which it was
/// built; else that one.
#[must_use]
pub fn root() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    if let Some(checkout) = here.ancestors().find(|folder| folder.join("book.toml").is_file()) {
        return checkout.to_owned();
    }
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap_or_else(|_| PathBuf::from("."))
}

/// One page, by its path from the root of the project.
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

/// The README and all that is in the book, but for the summary, which has no text of its own.
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

/// The pages beside the book that tell their readers what to type.
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
