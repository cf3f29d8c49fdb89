//! Reads the configuration files of the pages with `quorlock`.

use std::fs;
use std::process::Command;

use quorlock_book::block::blocks;
use quorlock_book::page::pages;
use quorlock_testkit::Servers;
use toml::{Table, Value};

use super::output::with_servers;
use crate::target;

const NO_QUORUM: i32 = 69;

#[tokio::test]
async fn every_config_file_is_read() {
    // The addresses of the pages have no passwords.
    let servers = Servers::setup().without_password().start(6).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut count = 0;
    for page in pages().unwrap() {
        for block in blocks(&page.text).into_iter().filter(|block| block.language == "toml") {
            let place = format!("{}:{}", page.path.display(), block.line);
            let text = with_servers(&block.text, &servers);
            let table: Table = text.parse().unwrap_or_else(|error| panic!("{place}: {error}"));
            if !is_of_quorlock(&table) {
                // Layouts, scenarios and Cargo manifests are read in the session of their page.
                continue;
            }
            if table.contains_key("password-file") {
                // tests/book/masters.rs uses it, on servers that know the user.
                continue;
            }
            let file = folder.path().join("quorlock.toml");
            fs::write(&file, text).unwrap();
            let mut quorlock = Command::new(target().join("quorlock"));
            quorlock.args(["status", "--config"]).arg(&file).arg("job").env_clear();
            // The servers have just started.
            quorlock.env("QUORLOCK_RESTART_GUARD", "off");
            let ended = quorlock.output().unwrap();
            // No Sentinels and clusters are started here: the program fails after it has read the file.
            // tests/real/ covers them.
            let expected = if names_servers(&table) { 0 } else { NO_QUORUM };
            let stderr = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(expected), "{place}: {stderr}");
            count += 1;
        }
    }
    assert!(count > 0, "no configuration file was found");
}

fn is_of_quorlock(table: &Table) -> bool {
    nodes(table).any(|url| url.contains("://"))
}

fn names_servers(table: &Table) -> bool {
    !nodes(table).any(|url| url.contains("+sentinel://") || url.contains("+cluster://"))
}

fn nodes(table: &Table) -> impl Iterator<Item = &str> {
    let nodes = table.get("nodes").and_then(Value::as_array);
    nodes.into_iter().flatten().filter_map(Value::as_str)
}
