//! `quorlock man` and `quorlock completions`.

use std::process::{Command, Stdio};

use crate::shown::VERBS;
use crate::support::Quorlock;

#[tokio::test]
async fn each_verb_has_a_page_with_its_exit_codes_and_variables() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/man1");
    let ended = Quorlock::new(["man", "--out", out.to_str().unwrap()]).end().await.expect(0);
    let read = |page: &str| std::fs::read_to_string(out.join(page)).expect("the page is there");
    for verb in VERBS {
        let page = read(&format!("quorlock-{verb}.1"));
        assert!(page.contains(&format!("quorlock\\-{verb}")) && page.contains(".SH SYNOPSIS"), "{page}");
        assert!(ended.stdout.contains(&format!("quorlock-{verb}.1\n")), "it says what it has written");
    }
    let run = read("quorlock-run.1");
    for word in ["QUORLOCK_NODES", "QUORLOCK_FENCE", "QUORLOCK_PASSWORD", "76     the lock was lost"] {
        assert!(run.contains(word), "{word} is missing: {run}");
    }
    for verb in ["hold", "release", "status"] {
        assert!(read(&format!("quorlock-{verb}.1")).contains("Exit codes:"), "{verb}");
    }
    let whole = Quorlock::new(["man"]).end().await.expect(0);
    assert_eq!(whole.stdout, read("quorlock.1"));
    assert!(VERBS.iter().all(|verb| whole.stdout.contains(&format!("quorlock\\-{verb}(1)"))), "{whole:?}");
}

#[tokio::test]
async fn completions_are_for_each_shell_and_bash_takes_them() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = Quorlock::new(["completions", shell]).end().await.expect(0);
        assert!(VERBS.iter().all(|verb| ended.stdout.contains(verb)), "{shell}");
        assert!(ended.stdout.contains("until-eof"), "{shell} knows the options");
        if shell == "bash" {
            let Ok(mut bash) = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn() else { continue };
            std::io::Write::write_all(&mut bash.stdin.take().unwrap(), ended.stdout.as_bytes()).unwrap();
            assert!(bash.wait().unwrap().success(), "bash does not take it");
        }
    }
    Quorlock::new(["completions", "tcsh"]).end().await.expect(64);
}
