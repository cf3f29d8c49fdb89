//! The contract suite on a directory, and that the suite detects a broken node.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, ready};
use quorlock::{
    node::{Expiry, Node, Request, Seams},
    runtime::{Clock as _, SystemClock},
};
use quorlock_directory::DirectoryNode;
use quorlock_testkit::contract::{Plant, check_contract};
use quorlock_testkit::{Value, WrappedNode};

/// Another client: an administrator with an editor.
struct Editor(PathBuf);

impl Editor {
    fn file(&self, key: &str) -> PathBuf {
        self.0.join("keys").join(DirectoryNode::file_name(key))
    }

    fn write(&self, key: &str, value: &Value, expiry: Expiry) -> io::Result<()> {
        let what = match value {
            Value::Text(text) => {
                text.iter().fold("lock ".to_owned(), |line, byte| format!("{line}{byte:02x}"))
            }
            Value::Number(counter) => format!("counter {}", counter.current),
            Value::List(_) | Value::Scores(_) | Value::Fields(_) => "list of items".to_owned(),
        };
        let ends = match expiry {
            Expiry::In(left) => {
                format!("ends {}\n", (SystemClock::default().wall() + left).as_micros())
            }
            Expiry::Never => String::new(),
        };
        fs::write(self.file(key), format!("key {}\n{ends}{what}\n", key.escape_default()))
    }

    fn ends(&self, key: &str) -> io::Result<Option<Expiry>> {
        let text = match fs::read_to_string(self.file(key)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let ends = text.lines().find_map(|line| line.strip_prefix("ends ")?.parse().ok());
        let left = |ends| Duration::from_micros(ends).saturating_sub(SystemClock::default().wall());
        Ok(Some(ends.map_or(Expiry::Never, |ends| Expiry::In(left(ends)))))
    }
}

impl Plant for Editor {
    fn plant<'a>(&'a self, key: &'a str, value: Value, expiry: Expiry) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(ready(self.write(key, &value, expiry)))
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(ready(fs::remove_file(self.file(key))))
    }

    fn expiry<'a>(&'a self, key: &'a str) -> BoxFuture<'a, io::Result<Option<Expiry>>> {
        Box::pin(ready(self.ends(key)))
    }
}

fn node(directory: &Path) -> DirectoryNode {
    DirectoryNode::new("directory", directory.to_owned(), &Seams::default()).unwrap()
}

/// Returns the clauses that `node` breaks.
async fn broken(node: &dyn Node, directory: &Path) -> Vec<String> {
    let editor = Editor(directory.to_owned());
    let Err(breach) = check_contract(node, &editor, &SystemClock::default()).await else { return Vec::new() };
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
