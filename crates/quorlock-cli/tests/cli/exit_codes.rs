//! The exit codes that scripts rely on, as numbers: changing one breaks the contract.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use quorlock_testkit::{Servers, until};
use tempfile::TempDir;

use crate::support::{Ended, Quorlock, STAYS, keys, kill_all, run, servers};

#[tokio::test]
async fn the_code_of_the_command_is_passed_on() {
    let Some(servers) = servers(3).await else { return };
    for code in [0, 1, 2, 7, 64, 75, 125, 255] {
        run(&servers, &[], &format!("exit {code}")).end().await.expect(code);
    }
}

#[tokio::test]
async fn a_command_ended_by_a_signal_is_reported_as_shells_do() {
    let Some(servers) = servers(3).await else { return };
    for (name, number) in [("HUP", 1), ("INT", 2), ("ABRT", 6), ("KILL", 9), ("PIPE", 13), ("TERM", 15)] {
        run(&servers, &[], &format!("kill -{name} $$")).end().await.expect(128 + number);
    }
    // A real-time signal, which has no name.
    #[cfg(target_os = "linux")]
    run(&servers, &[], "kill -34 $$").end().await.expect(162);
}

#[tokio::test]
async fn a_held_lock_is_75_or_the_code_asked_for() {
    let Some(servers) = servers(3).await else { return };
    let _holder = run(&servers, &["--label", "the first"], STAYS).prints(1).await;
    let refused = run(&servers, &["-n"], "echo ran").end().await.expect(75).says("held by").says("the first");
    assert_eq!(refused.stdout, "", "the command ran without the lock");
    run(&servers, &["-w", "50ms"], "echo ran").end().await.expect(75);
    run(&servers, &["-n", "-E", "9"], "echo ran").end().await.expect(9);
    let quiet = run(&servers, &["-n", "-E", "0", "-q"], "echo ran").end().await.expect(0);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""), "the idiom for cron is silent");
    let json = run(&servers, &["-n", "--json"], "echo ran").end().await.expect(75);
    assert!(json.stderr.starts_with(r#"{"event":"held","#), "{json:?}");
}

#[tokio::test]
async fn without_a_quorum_it_is_69() {
    let Some(servers) = servers(3).await else { return };
    kill_all(&servers[..2]);
    run(&servers, &["-n"], "echo ran").end().await.expect(69).says("of 3 granted, 2 needed");
    assert_eq!(keys(&servers[2..]).await, [""; 0], "the vote that was granted is taken back");
}

#[tokio::test]
async fn restarted_servers_give_no_quorum_and_the_cure_is_named() {
    let Some(servers) = servers(3).await else { return };
    let guarded = run(&servers, &["-n", "--restart-guard", "on"], "echo ran").end().await.expect(69);
    assert!(guarded.stderr.contains("QUORLOCK_RESTART_GUARD=off"), "{guarded:?}");
}

#[tokio::test]
async fn arguments_that_make_no_sense_are_64() {
    for words in [
        &["run"][..],
        &["run", "job"],
        &["run", "job", "-c", "true", "--", "true"],
        &["run", "-n", "-w", "1s", "job", "--", "true"],
        &["run", "-w", "soon", "job", "--", "true"],
        &["run", "-t", "-30", "job", "--", "true"],
        &["status", "--watch", "500ms", "job"],
        &["release", "job", "--token", "resource: job"],
        &["run", "--nodes", "redis://127.0.0.1:1", "", "--", "true"],
        &["sing"],
        &[],
    ] {
        let refused = Quorlock::new(words).end().await.expect(64);
        assert!(!refused.stderr.is_empty(), "{words:?} is refused without a word");
    }
}

#[tokio::test]
async fn help_and_version_are_0() {
    for words in [&["--help"][..], &["--version"], &["run", "--help"], &["status", "-h"], &["help", "run"]] {
        Quorlock::new(words).end().await.expect(0);
    }
    let help = Quorlock::new(["run", "--help"]).end().await;
    assert!(help.stdout.contains("the lock was lost while the command ran"), "the codes are in the help");
}

#[tokio::test]
async fn a_command_that_is_not_there_is_127_and_one_that_cannot_run_is_126() {
    let Some(servers) = servers(3).await else { return };
    let start = |command: &str| Quorlock::new(["run", "job", "--", command]).on(&servers);
    start("there-is-no-such-command").end().await.expect(127);
    start("./there-is-no-such-file").end().await.expect(127);
    let _line = start("echo several words").end().await.expect(127).says("`sh -c`");
    start("").end().await.expect(127).says("is a variable unset?");
    for verb in ["run", "elect"] {
        let shell = |line: &str| Quorlock::new([verb, "job", "-c", line]).on(&servers);
        for line in ["", " \n"] {
            shell(line).end().await.expect(127).says("is a variable unset?");
        }
        let none = shell("true").env("SHELL", "/no/such/shell").end().await.expect(127);
        assert!(none.stderr.contains("/no/such/shell, which the variable SHELL names,"), "{none:?}");
    }
    start("/").end().await.expect(126);
    start("./data").file("data", "no program").end().await.expect(126);
    // Seen only once it is started, under the lock.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = start(script.to_str().unwrap()).end().await.expect(126);
    assert!(refused.stderr.contains("interpreter /no/such/interpreter was not found"), "{refused:?}");
    assert_eq!(keys(&servers).await, [""; 0], "a lock was left behind");
}

fn limited(servers: &Servers, limit: &str, words: &[&str], folder: &TempDir) -> Quorlock {
    Quorlock::unprivileged(&["prlimit", limit], Path::new("/"), words, folder).on(servers)
}

/// Returns how it has ended under the limit. The processes of all tests with the same user count, and may leave none even for
/// `setpriv`.
async fn ended(start: impl Fn() -> Quorlock) -> Ended {
    let mut ended = start().end().await;
    until("a process for the user", async || {
        let is_refused = ended.stderr.starts_with("setpriv: ");
        if is_refused {
            ended = start().end().await;
        }
        !is_refused
    })
    .await;
    ended
}

/// The mark by which waiters on the same host see that a holder has died cannot be written then.
#[tokio::test]
async fn where_no_file_may_be_written_a_command_runs_all_the_same() {
    let Some(servers) = servers(3).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let job = ["run", "-n", "job", "--", "sh", "-c", "exit 7"];
    limited(&servers, "--fsize=0", &job, &folder).end().await.expect(7);
}

#[tokio::test]
async fn where_no_thread_is_left_for_a_node_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let node = format!("sqlite://{}", folder.path().join("locks.db").display());
    let words = ["run", "--nodes", &node, "job", "--", "true"];
    let start = || Quorlock::unprivileged(&["prlimit", "--nproc=1"], Path::new("/"), &words, &folder);
    assert!(ended(start).await.expect(125).stderr.contains("ulimit -u"));
}

#[tokio::test]
async fn where_no_process_thread_or_file_is_left_it_says_so_and_ends() {
    let Some(servers) = servers(3).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let job = ["run", "-n", "job", "--", "sh", "-c", "echo ran"];
    for (limit, expected) in
        [("--nproc=1", "ulimit -u"), ("--nofile=8", "ulimit -n"), ("--nofile=16", "ulimit -n")]
    {
        let ended = ended(|| limited(&servers, limit, &job, &folder)).await.expect(125);
        assert_eq!(ended.stdout, "", "{limit}");
        assert!(
            ended.stderr.contains(expected) && ended.stderr.starts_with("quorlock: cannot "),
            "{limit}: {ended:?}"
        );
        assert_eq!(keys(&servers).await, [""; 0], "{limit}: the lock is taken");
    }
    // Its words need a thread, or none.
    let words = ["list", "nothing/"];
    let listed = ended(|| limited(&servers, "--nproc=1", &words, &folder)).await.expect(0);
    assert!(listed.stdout.starts_with("no lock is held"), "{listed:?}");
    // The limit is met while the command runs.
    let script = "prlimit --pid $PPID --nproc=1; exit 7";
    let ended = limited(&servers, "--nproc=1000", &["run", "-n", "job", "-c", script], &folder);
    ended.env("RUST_BACKTRACE", "1").end().await.expect(7);
}

/// Who may touch the key of the lock and none of its companions.
#[tokio::test]
async fn a_user_with_too_few_rights_is_refused_alike_whether_the_lock_is_free_or_held() {
    let Some(servers) = servers(3).await else { return };
    let mut urls = Vec::new();
    for server in servers.iter() {
        server.command(&["ACL", "SETUSER", "few", "on", ">pw", "~job", "&*", "+@all"]).await.unwrap();
        urls.push(server.url_as("few:pw"));
    }
    let tries = || run(&servers, &["-w", "1s"], "echo ran").env("QUORLOCK_NODES", &urls.join(","));
    let free = tries().end().await.expect(69);
    let _holder = run(&servers, &[], STAYS).prints(1).await;
    let held = tries().end().await.expect(69);
    for ended in [free, held] {
        assert!(ended.stderr.contains("its companions, which begin with it"), "{ended:?}");
    }
}
