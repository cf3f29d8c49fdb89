//! The list of nodes changes while commands run, by `--quorum` alone.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what does not go as expected fails the test"
)]

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use quorlock_testkit::{Server, until};

use crate::support::{Quorlock, run, servers};

#[tokio::test]
async fn the_quorum_is_an_option_a_variable_and_a_setting() {
    let Some(servers) = servers(5).await else { return };
    let urls = servers.urls().join(",");
    servers[3..].iter().for_each(Server::kill);
    run(&servers, &["-n"], "true").end().await.expect(0);
    run(&servers, &["-n", "--quorum", "4"], "true").end().await.expect(69).says("of 5 granted, 4 needed");
    run(&servers, &["-n"], "true").env("QUORLOCK_QUORUM", "4").end().await.expect(69);
    let file = format!("nodes = '{urls}'\nrestart-guard = 'off'\nquorum = 4");
    let by_file = Quorlock::new(["run", "-n", "job", "--", "true"]).file("quorlock.toml", &file);
    by_file.end().await.expect(69);
    for (quorum, code) in [("2", 64), ("6", 64), ("many", 64)] {
        run(&servers, &["-n", "--quorum", quorum], "true").end().await.expect(code);
    }
    let impossible = run(&servers, &["-n"], "true").env("QUORLOCK_QUORUM", "2").end().await.expect(78);
    assert!(impossible.stderr.contains("the variable QUORLOCK_QUORUM and "), "{impossible:?}");
}

/// How many run commands under the lock.
const RUNNERS: usize = 3;

/// What all runners read, and how far they are.
struct Load {
    over: Cell<bool>,
    /// For each runner, how many of its commands have ended.
    ended: [Cell<usize>; RUNNERS],
}

/// Runs one command after the other under the lock, with the settings that are in the folder then.
async fn runner(number: usize, load: Rc<Load>, folder: &Path) -> usize {
    let config = folder.join("quorlock.toml");
    let (config, section) = (config.to_str().unwrap(), folder.join("section"));
    let script = format!(
        "mkdir {section} || exit 9; sleep 0.01; rmdir {section} || exit 9",
        section = section.display()
    );
    let mut runs = 0;
    while !load.over.get() {
        let words = ["run", "-w", "10min", "--config", config, "job", "--", "sh", "-c", &script];
        Quorlock::new(words).end().await.expect(0);
        load.ended[number].update(|ended| ended + 1);
        runs += 1;
    }
    runs
}

#[tokio::test]
async fn five_masters_are_replaced_one_by_one_while_commands_run() {
    tokio::task::LocalSet::new().run_until(replace_five()).await;
}

async fn replace_five() {
    let Some(servers) = servers(10).await else { return };
    let urls = servers.urls();
    let folder = tempfile::tempdir().unwrap();
    let write = |nodes: &[String], quorum: &str| {
        let text = format!("nodes = {nodes:?}\nrestart-guard = 'off'\n{quorum}\n");
        fs::write(folder.path().join("next"), text).unwrap();
        fs::rename(folder.path().join("next"), folder.path().join("quorlock.toml")).unwrap();
    };
    write(&urls[..5], "");
    let load = Rc::new(Load { over: Cell::new(false), ended: Default::default() });
    let path: Rc<Path> = folder.path().into();
    let runners: Vec<_> = (0..RUNNERS)
        .map(|number| {
            let (load, path) = (Rc::clone(&load), Rc::clone(&path));
            tokio::task::spawn_local(async move { runner(number, load, &path).await })
        })
        .collect();
    // The next step is taken once no command runs that has read the settings before: of two that ended, the second has not.
    let all_have_read = async || {
        let before = load.ended.each_ref().map(Cell::get);
        let is_new = async || {
            let ended = load.ended.iter().zip(before);
            runners.iter().any(tokio::task::JoinHandle::is_finished)
                || ended.into_iter().all(|(ended, before)| ended.get() >= before + 2)
        };
        until("each runner's next command", is_new).await;
    };
    all_have_read().await;
    write(&urls[..5], "quorum = 4");
    all_have_read().await;
    for replaced in 0..5 {
        write(&urls[replaced + 1..replaced + 6], "quorum = 4");
        all_have_read().await;
        servers[replaced].kill();
    }
    write(&urls[5..], "");
    all_have_read().await;
    load.over.set(true);
    for runner in runners {
        let runs = runner.await.expect("each command got the lock, and had it alone");
        assert!(runs >= 16, "{runs}: two in each step");
    }
}
