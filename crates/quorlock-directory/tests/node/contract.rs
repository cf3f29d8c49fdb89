//! The contract suite on a directory.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use quorlock::{
    node::Seams,
    runtime::{Clock as _, SystemClock},
};
use quorlock_directory::DirectoryNode;
use quorlock_testkit::contract::{OfRecords, RecordStore, check_contract};

/// Another client: an administrator with an editor.
struct Editor(PathBuf);

impl Editor {
    fn file(&self, key: &str) -> PathBuf {
        self.0.join("keys").join(DirectoryNode::file_name(key))
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

#[tokio::test]
async fn a_directory_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let node = DirectoryNode::new("directory", path.clone(), &Seams::default()).unwrap();
    let checked = check_contract(&node, &OfRecords(Editor(path)), &SystemClock::default()).await;
    assert!(checked.is_ok(), "{}", checked.unwrap_err());
}
