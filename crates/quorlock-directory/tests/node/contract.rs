//! The contract suite on a directory, and that the suite detects a broken node.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use quorlock::{
    node::{Node, Request, Seams},
    runtime::{Clock as _, SystemClock},
};
use quorlock_directory::DirectoryNode;
use quorlock_testkit::WrappedNode;
use quorlock_testkit::contract::{OfRecords, RecordStore, check_contract};

/// Another client: an administrator with an editor.
struct Editor(PathBuf);

impl Editor {
    fn file(&self, key: &str) -> PathBuf {
        self.0.join("keys").join(DirectoryNode::file_name(key))
    }

    fn plant(&self) -> OfRecords<Editor> {
        OfRecords(Editor(self.0.clone()))
    }
}

impl RecordStore for Editor {
    fn read(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read_to_string(self.file(key)) {
            Ok(text) => Ok(text.split_once('\n').map(|(_, record)| record.into())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, key: &str, record: &[u8]) -> io::Result<()> {
        let head = format!("key {}\n", key.escape_default());
        fs::write(self.file(key), [head.as_bytes(), record].concat())
    }

    fn now(&self) -> Duration {
        SystemClock::default().wall()
    }

    fn restore(&self) -> io::Result<()> {
        let (directory, kept) = (&self.0, self.0.with_extension("kept"));
        Command::new("cp").arg("-a").arg(directory).arg(&kept).status()?;
        fs::remove_dir_all(directory)?;
        fs::rename(kept, directory)
    }
}

fn node(directory: &Path) -> DirectoryNode {
    DirectoryNode::new("directory", directory.to_owned(), &Seams::default()).unwrap()
}

/// Returns the clauses that `node` breaks.
async fn broken(node: &dyn Node, directory: &Path) -> Vec<String> {
    let plant = Editor(directory.to_owned()).plant();
    let Err(breach) = check_contract(node, &plant, &SystemClock::default()).await else { return Vec::new() };
    breach.to_string().lines().filter(|line| line.starts_with("- ")).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_directory_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let broken = broken(&node(directory.path()), directory.path()).await;
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Releases where it should cancel, and so leaves no tombstone.
fn without_tombstones(node: impl Node) -> WrappedNode {
    WrappedNode::new(node).on_request(|request, responder, inner| {
        if let Request::Cancel { claim, .. } = &*request {
            inner.ask(Request::Release { claim: Arc::clone(claim) }.into(), responder);
        } else {
            inner.ask(request, responder);
        }
    })
}

/// Treats another holder's lock as its own.
fn credulous(node: impl Node, editor: Editor) -> WrappedNode {
    WrappedNode::new(node).on_request(move |request, responder, inner| {
        if let Request::Acquire { claim, .. } = &*request {
            drop(fs::remove_file(editor.file(claim.key())));
        }
        inner.ask(request, responder);
    })
}

#[tokio::test]
async fn a_directory_that_breaks_the_contract_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let found = broken(&without_tombstones(node(path)), path).await.join("\n");
    assert!(found.contains("a late acquisition of a cancelled attempt does nothing"), "{found}");
    assert!(!found.contains("a free key is granted"), "{found}");
    let found = broken(&credulous(node(path), Editor(path.to_owned())), path).await.join("\n");
    assert!(found.contains("a held key is refused with its holder"), "{found}");
}
