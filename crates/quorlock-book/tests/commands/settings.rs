//! Files of settings, read by the program that they are for.

use std::fs;
use std::process::Command;

use quorlock_book::block::blocks;
use quorlock_book::page::pages;
use quorlock_testkit::Servers;
use toml::{Table, Value};

use crate::output::with_servers;
use crate::programs::target;

#[tokio::test]
async fn every_file_of_settings_is_read() {
    let servers = Servers::start(5).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut count = 0;
    for page in pages().unwrap() {
        for block in blocks(&page.text).into_iter().filter(|block| block.language == "toml") {
            let place = format!("{}:{}", page.path.display(), block.line);
            let text = with_servers(&block.text, &servers);
            let table: Table = text.parse().unwrap_or_else(|error| panic!("{place}: {error}"));
            if !is_of_quorlock(&table) {
                // Layouts and scenarios, which their page's session has `quorlock-chaos` read, and
                // dependencies, which cargo reads there.
                continue;
            }
            let file = folder.path().join("quorlock.toml");
            fs::write(&file, text).unwrap();
            let mut quorlock = Command::new(target().join("quorlock"));
            quorlock.args(["status", "--config"]).arg(&file).arg("job").env_clear();
            let ended = quorlock.output().unwrap();
            assert!(ended.status.success(), "{place}: {}", String::from_utf8_lossy(&ended.stderr));
            count += 1;
        }
    }
    assert!(count > 0, "the README shows one");
}

fn is_of_quorlock(table: &Table) -> bool {
    let nodes = table.get("nodes").and_then(Value::as_array);
    nodes.is_some_and(|nodes| nodes.iter().any(|node| node.as_str().is_some_and(|url| url.contains("://"))))
}
