//! What other programs that run a command under a lock were seen to get wrong, as promises of
//! ours: `docs/defects.md` says which.

use nix::sys::signal::Signal;

use crate::support::{Quorlock, run, servers};

#[tokio::test]
async fn a_lock_within_a_lock_sees_its_own() {
    let Some(servers) = servers(3).await else { return };
    let show = r#"echo "$QUORLOCK_RESOURCE $QUORLOCK_TTL_MS $QUORLOCK_TOKEN $QUORLOCK_FENCE""#;
    let inner = format!("\"$QUORLOCK\" run -t 5s inner -c '{show}'");
    let outer = run(&servers, &["-t", "9s"], &format!("{show}; {inner}; {show}"));
    let ended = outer.env("QUORLOCK", env!("CARGO_BIN_EXE_quorlock")).end().await.expect(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let [before, within, after] = lines[..] else { panic!("three lines: {ended:?}") };
    assert!(before.starts_with("job 9000 "), "{before}");
    assert!(within.starts_with("inner 5000 "), "{within}");
    assert_eq!(before, after, "and the outer one still sees its own");
    let words = |line: &str| line.split(' ').skip(2).map(str::to_owned).collect::<Vec<_>>();
    assert_ne!(words(before).first(), words(within).first(), "each has a token of its own");
    assert!(words(before).iter().all(|word| !word.is_empty()) && words(before).len() >= 3, "{before}");
}

#[tokio::test]
async fn a_signal_reaches_what_the_command_has_started() {
    let Some(servers) = servers(3).await else { return };
    // As shells do, it waits for what it has started, and passes no signal on.
    let script = "trap : TERM; \
                  sh -c 'trap \"echo got it; exit 0\" TERM; echo started; while :; do sleep 0.05; done'";
    let running = run(&servers, &[], script).start();
    running.lines(1).await;
    running.signal(Signal::SIGTERM);
    let lines = running.lines(2).await;
    assert_eq!(lines.last().map(String::as_str), Some("got it"));
    running.end().await.expect(0);
}

#[tokio::test]
async fn stdout_is_the_commands_alone() {
    let Some(servers) = servers(3).await else { return };
    for options in [&["-v"][..], &["-vv"], &["--json"], &["--json", "-vv"]] {
        let ended = run(&servers, options, "echo mine").end().await.expect(0);
        assert_eq!(ended.stdout, "mine\n", "{options:?}");
        assert!(!ended.stderr.is_empty(), "{options:?} has something to say");
    }
}

#[tokio::test]
async fn no_shell_stands_between_unless_it_was_asked_for() {
    let Some(servers) = servers(3).await else { return };
    let words = ["run", "job", "--", "echo", "$HOME; exit 3", "*", "--ttl", "-n"];
    let ended = Quorlock::new(words).on(&servers).end().await.expect(0);
    assert_eq!(ended.stdout, "$HOME; exit 3 * --ttl -n\n", "the words arrive as they were written");
}
