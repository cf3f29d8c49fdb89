//! The command that runs under the lock.

use nix::sys::signal::Signal;
use quorlock::runtime::{Clock as _, SystemClock};
use quorlock_testkit::until;

use crate::support::{
    Quorlock, STAYS, UNTIL_ENOUGH, freeze, is_gone, keys, kill_all, pause, run, servers, started, thaw,
};

#[tokio::test]
async fn a_lock_within_itself_is_named_as_such() {
    let Some(servers) = servers(3).await else { return };
    let inner = |name: &str| format!("\"$0\" run -n {name} -- echo ran");
    let program = env!("CARGO_BIN_EXE_quorlock");
    let outer = |name: &str| {
        let inner = inner(name);
        Quorlock::new(["run", "job", "--also", "other", "--", "sh", "-c", &inner, program]).on(&servers).end()
    };
    for name in ["job", "other"] {
        let refused = outer(name).await.expect(75);
        let cause = format!("`{name}` is the lock that the `quorlock run` around this one holds");
        assert!(refused.stdout.is_empty() && refused.stderr.contains(&cause), "{refused:?}");
    }
    let third = outer("third").await.expect(0);
    assert_eq!((&*third.stdout, &*third.stderr), ("ran\n", ""));
}

#[tokio::test]
async fn it_reads_stdin_and_writes_stdout_itself() {
    let Some(servers) = servers(3).await else { return };
    let ended = run(&servers, &[], "cat; echo oops >&2").stdin("hello\n").end().await.expect(0);
    assert_eq!(ended.stdout, "hello\n");
    assert_eq!(ended.stderr, "oops\n", "quorlock has nothing to add when all is well");
}

#[tokio::test]
async fn it_has_its_variables() {
    let Some(servers) = servers(3).await else { return };
    let script = r#"echo "$QUORLOCK_HELD $QUORLOCK_RESOURCE $QUORLOCK_TTL_MS"; echo "$QUORLOCK_TOKEN""#;
    let inherited = run(&servers, &["-t", "9s"], script).env("QUORLOCK_RESOURCE", "of an outer lock");
    let ended = inherited.end().await.expect(0);
    let (first, token) = ended.stdout.trim_end().split_once('\n').expect("two lines");
    assert_eq!(first, "1 job 9000");
    assert!(token.len() > 32 && token.contains(':'), "{token} is no token");
}

#[tokio::test]
async fn it_gets_a_fencing_token_that_grows_and_never_that_of_an_outer_lock() {
    let Some(servers) = servers(3).await else { return };
    let fence = async |options: &[&str]| {
        let inner = run(&servers, options, "echo fence:$QUORLOCK_FENCE").env("QUORLOCK_FENCE", "7");
        inner.end().await.expect(0).stdout
    };
    let number = |line: &str| line.trim_end().strip_prefix("fence:").unwrap().parse::<u64>().unwrap();
    let (first, second) = (fence(&[]).await, fence(&[]).await);
    assert!(7 < number(&first) && number(&first) < number(&second), "{first} then {second}");
    assert_eq!(fence(&["--fencing", "off"]).await, "fence:\n", "it would pass for this lock's");
}

#[tokio::test]
async fn without_fencing_only_the_lock_is_stored() {
    let Some(servers) = servers(3).await else { return };
    let _running = run(&servers, &["--fencing", "off"], STAYS).prints(1).await;
    for server in servers.iter() {
        // The third node may answer after the other two have decided.
        until("the lock, and nothing else", async || {
            server.command(&["KEYS", "*"]).await.unwrap().to_string().trim() == "job"
        })
        .await;
    }
}

#[tokio::test]
async fn one_string_runs_through_a_shell() {
    let Some(servers) = servers(3).await else { return };
    let ended = Quorlock::new(["run", "job", "-c", "echo a | tr a b; exit 4"]).on(&servers).end().await;
    assert_eq!(ended.expect(4).stdout, "b\n");
}

#[tokio::test]
async fn what_follows_the_name_is_the_command_with_or_without_two_dashes() {
    let Some(servers) = servers(3).await else { return };
    for (words, expected) in [
        (&["run", "job", "printf", "%s.", "-n", "--json"][..], "-n.--json."),
        (&["run", "-q", "job", "--", "printf", "%s.", "--", "-w"], "--.-w."),
        (&["run", "job", "printf", "%s.", "--", "-w"], "--.-w."),
        (&["run", "job", "-t", "9", "-w", "1.5", "sh", "-c", "printf $QUORLOCK_TTL_MS"], "9000"),
        (&["run", "job", "printf", "%s.", "$HOME; exit 3", "*"], "$HOME; exit 3.*."),
        (&["lock", "job", "printf", "locked"], "locked"),
        (&["exec", "-n", "job", "printf", "locked"], "locked"),
    ] {
        let ended = Quorlock::new(words).on(&servers).end().await.expect(0);
        assert_eq!(ended.stdout, expected, "{words:?}");
    }
}

#[tokio::test]
async fn signals_are_passed_on_and_its_own_code_counts() {
    let Some(servers) = servers(3).await else { return };
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
    ] {
        let script =
            format!("trap 'echo got {name}; exit 3' {name}; echo started; while :; do sleep 0.05; done");
        let running = run(&servers, &[], &script).prints(1).await;
        let ended = running.ends_by(signal).await.expect(3);
        assert!(ended.stdout.ends_with(&format!("got {name}\n")), "{ended:?}");
    }
    assert_eq!(keys(&servers).await, [""; 0], "a lock was left behind");
}

#[tokio::test]
async fn r5_a_request_that_comes_by_two_ways_is_one() {
    let Some(servers) = servers(3).await else { return };
    let script = "trap 'echo asked' TERM; echo started; while [ ! -e enough ]; do sleep 0.05; done; exit 3";
    let running = run(&servers, &[], script).prints(1).await;
    let clock = SystemClock::default();
    let first = clock.now();
    running.signal(Signal::SIGTERM);
    running.lines(2).await;
    // As `timeout` does, and a service manager.
    running.signal(Signal::SIGTERM);
    let in_time = clock.now().since(first) < std::time::Duration::from_millis(500);
    let ended = running.enough().await;
    // Otherwise it rightly counts as another request.
    if in_time {
        let ended = ended.expect(3);
        assert_eq!(ended.stdout.matches("asked").count(), 1, "the signal was forwarded twice; {ended:?}");
    }
}

#[tokio::test]
async fn r5_one_that_does_not_listen_is_killed_when_asked_twice() {
    let Some(servers) = servers(3).await else { return };
    let script = "trap 'echo asked' TERM; echo started; while :; do sleep 0.05; done";
    let running = run(&servers, &[], script).prints(1).await;
    running.signal(Signal::SIGTERM);
    running.lines(2).await;
    running.ends_by_many(Signal::SIGTERM).await.expect(137);
}

#[tokio::test]
async fn its_lock_survives_two_masters_of_five() {
    let Some(servers) = servers(5).await else { return };
    let running = run(&servers, &["-t", "5s"], UNTIL_ENOUGH).prints(1).await;
    kill_all(&servers[..2]);
    // Two TTLs.
    pause(std::time::Duration::from_secs(10)).await;
    assert_eq!(keys(&servers[2..]).await, ["job"; 3], "the other three hold the lock");
    // On a busy machine a round may come back without a quorum.
    let refused = async || run(&servers, &["-n"], "echo ran").end().await.code == Some(75);
    until("a refusal", refused).await;
    running.enough().await.expect(0);
    assert_eq!(keys(&servers[2..]).await, [""; 0], "a lock was left behind");
}

#[tokio::test]
async fn a_signal_is_forwarded_while_no_node_answers() {
    let Some(servers) = servers(3).await else { return };
    // Long enough that the lock outlives a pause of the machine between the renewal and the signal.
    let (running, pid) = started(&servers, &["-t", "12s", "-vv"]).await;
    freeze(&servers);
    until("a renewal in vain", async || running.stderr().contains("renewal not confirmed")).await;
    running.signal(Signal::SIGTERM);
    // Its own end, and not that of its lock, which would be 76.
    running.end().await.expect(143);
    assert!(is_gone(&pid));
    thaw(&servers);
    until("clean servers", async || keys(&servers).await.is_empty()).await;
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
async fn a_stream_that_was_closed_is_closed_for_the_command() {
    let Some(servers) = servers(3).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for (closed, expected) in [(">&-", "0 2"), ("<&-", "1 2"), ("2>&- <&-", "1"), ("", "0 1 2")] {
        let open = "for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && echo $n >&9; done";
        let script = format!("exec 9> {}; {open}; true", log.display());
        let shell = format!("exec \"$0\" \"$@\" {closed}");
        run(&servers, &[], &script).through_all("sh", &["-c", &shell]).end().await.expect(0);
        let open = std::fs::read_to_string(&log).unwrap();
        assert_eq!(open.split_whitespace().collect::<Vec<_>>().join(" "), expected, "closed by {closed:?}");
    }
}
