//! `quorlock demo`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::support::{Ended, Quorlock, servers};

fn assert_told(ended: &Ended) {
    for word in [
        "she has it after",
        "refused",
        "still has her lock",
        "she has lost it",
        "Ben has the lock",
        "restart guard",
    ] {
        assert!(ended.stdout.contains(word), "the story lacks `{word}`: {ended:?}");
    }
    assert!(!ended.stdout.contains('\x1b'), "no colours in a file");
    assert_eq!(ended.stderr, "");
}

#[tokio::test]
async fn the_story_is_told_to_its_end_with_real_servers() {
    if servers(0).await.is_none() {
        return;
    }
    let ended = Quorlock::new(["demo"]).end().await.expect(0);
    assert!(ended.stdout.contains("-server "), "it says which servers: {ended:?}");
    assert_told(&ended);
}

#[tokio::test]
async fn the_story_is_told_to_its_end_with_the_built_in_server() {
    let ended = Quorlock::new(["demo"]).env("QUORLOCK_SERVER", "builtin").end().await.expect(0);
    assert!(ended.stdout.contains("built-in"), "it says which servers: {ended:?}");
    assert_told(&ended);
}

#[test]
fn a_listener_who_leaves_does_not_make_it_panic() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_quorlock"))
        .arg("demo")
        .env("QUORLOCK_SERVER", "builtin")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let ended = demo.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(141), "as SIGPIPE would");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}
