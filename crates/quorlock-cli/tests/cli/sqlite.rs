//! Locks in an SQLite database: one host, no server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::process::Command;

use nix::sys::signal::Signal;
use quorlock_testkit::{eventually, patience, until};

#[cfg(target_os = "linux")]
use crate::guarding::guardian;
use crate::support::{CROWD, NAMESPACES, Quorlock, Running, children, has_namespaces, is_gone, send, skips};

/// Runs `quorlock` in this folder, which several share.
fn quorlock(folder: &Path, words: &[&str]) -> Quorlock {
    Quorlock::new(words).env("QUORLOCK_NODES", &format!("sqlite://{}/locks.db", folder.display()))
}

fn run(folder: &Path, options: &[&str], script: &str) -> Quorlock {
    quorlock(folder, &[&["run"], options, &["job", "--", "sh", "-c", script]].concat())
}

#[tokio::test]
async fn the_first_run_works_and_others_see_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#""$Q" run --wait 0 job -- echo both; echo "ended $?"; "$Q" status job"#;
    let ended =
        run(folder.path(), &[], script).env("Q", env!("CARGO_BIN_EXE_quorlock")).end().await.expect(0);
    let expected = &ended.stdout;
    assert!(expected.contains("ended 75") && !expected.contains("both"), "{ended:#?}");
    assert!(expected.contains("`job` is held by") && expected.contains("on 1 of 1 nodes"), "{ended:#?}");
    quorlock(folder.path(), &["status", "job"]).end().await.expect(0).shows("`job` is free");
}

#[tokio::test]
async fn fencing_tokens_grow_from_run_to_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = 0;
    for _ in 0..3 {
        let ended = run(folder.path(), &[], "echo $QUORLOCK_FENCE").end().await.expect(0);
        let number: u64 = ended.stdout.trim().parse().unwrap();
        assert!(number > last, "{number} follows {last}");
        last = number;
    }
}

#[tokio::test]
async fn other_kinds_of_lock_and_the_other_verbs_work_there() {
    let folder = tempfile::tempdir().unwrap();
    let words = |words: &[&str]| quorlock(folder.path(), words);
    for options in [
        &["run", "--shared", "job"][..],
        &["run", "--permits", "2", "job"],
        &["run", "--at-least", "1min", "other"],
    ] {
        words(&[options, &["--", "echo", "done"]].concat()).end().await.expect(0).shows("done");
    }
    // Retained, although its holder has ended.
    words(&["run", "--wait", "0", "other", "--", "true"]).end().await.expect(75);
    let mut held = words(&["hold", "third"]).start();
    until("the hold", async || held.stderr().contains("third") || held.stdout().contains("third")).await;
    words(&["run", "--wait", "0", "third", "--", "true"]).end().await.expect(75);
    assert!(!held.has_ended());
    held.ends_by(Signal::SIGTERM).await;
    let ended = words(&["doctor"]).end().await.shows("excludes programs on this host only");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

/// As on a file system that takes no writes.
#[tokio::test]
async fn who_may_only_read_sees_the_locks_and_leaves_nothing_there() {
    let (folder, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hold = ["hold", "--until-eof", "never", "--label", "import", "job"];
    let _holder = quorlock(folder.path(), &hold).prints(4).await;
    let files = || -> Vec<_> { fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect() };
    for file in files() {
        fs::set_permissions(file, Permissions::from_mode(0o444)).unwrap();
    }
    fs::set_permissions(&folder, Permissions::from_mode(0o555)).unwrap();
    let before = files();
    let nodes = format!("sqlite://{}/locks.db", folder.path().display());
    let reader = |words: &[&str]| {
        Quorlock::unprivileged(&[], tools.path(), words, &tools).env("QUORLOCK_NODES", &nodes)
    };
    for words in [&["status", "job"][..], &["list"], &["top", "--iterations", "1"]] {
        reader(words).end().await.expect(0).shows(" import");
    }
    reader(&["run", "other", "--", "true"]).end().await.expect(69).says("takes no writes");
    assert_eq!(files(), before);
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn mixed_with_others_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let nodes =
        format!("sqlite://{}/locks.db,redis://127.0.0.1:1,redis://127.0.0.1:2", folder.path().display());
    let ended =
        quorlock(folder.path(), &["run", "--nodes", &nodes, "job", "--", "true"]).end().await.expect(64);
    assert!(ended.stderr.contains("exists on this host only"), "{ended:#?}");
}

/// Each prints a line at its begin and its end.
const COUNTED: &str = "echo begin >> lines; echo end >> lines";

#[tokio::test]
async fn two_hundred_that_are_started_together_run_one_after_the_other() {
    let _crowd = CROWD.write().await;
    let folder = tempfile::tempdir().unwrap();
    let script = format!("cd {}; {COUNTED}", folder.path().display());
    let mut running: Vec<Running> =
        (0..200).map(|_| run(folder.path(), &["-w", "forever", "-t", "20s"], &script).start()).collect();
    eventually("the end of all", patience() * 2, async || running.iter_mut().all(Running::has_ended))
        .await
        .unwrap();
    for one in running {
        one.end().await.expect(0);
    }
    let lines = fs::read_to_string(folder.path().join("lines")).unwrap();
    assert_eq!(lines, "begin\nend\n".repeat(200), "two of them overlapped, or one is missing");
}

/// A command that keeps its lock for a minute, unless it is ended.
async fn long(folder: &Path, script: &str) -> (Running, Vec<String>) {
    let running = run(folder, &["-t", "30s"], script).start();
    let pids = running.lines(2).await;
    (running, pids)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_lock_of_a_holder_that_is_killed_is_free_when_all_of_its_command_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    // The second has closed what it inherited, as programs that start others do.
    let closing =
        "for fd in /proc/$$/fd/*; do fd=${fd##*/}; ((fd > 2)) && eval \"exec $fd>&-\"; done; exec sleep 1000";
    let script = format!("(exec sleep 1000) & echo $!; bash -c '{closing}' & echo $!; wait");
    let (holder, pids) = long(folder.path(), &script).await;
    let waiter = run(folder.path(), &["-w", "forever"], "date +%s").start();
    until("the waiter", async || has_open(&waiter, "locks.db-shm")).await;
    // One for itself, and none of SQLite's.
    let guardian = guardian(&holder).await;
    assert_eq!(open_files(&guardian, "locks.db"), ["locks.db-alive"], "what the guardian keeps");
    holder.signal(Signal::SIGKILL);
    // Well before the thirty seconds of its lease.
    let ended = waiter.end().await.expect(0);
    assert!(!ended.stdout.is_empty(), "{ended:#?}");
    for pid in &pids {
        assert!(is_gone(pid), "{pid} works on while another has the lock");
    }
}

/// As for processes that a command has started, without its guardian.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn while_a_part_of_the_command_lives_on_the_lock_of_a_dead_holder_is_not_free() {
    let folder = tempfile::tempdir().unwrap();
    let (holder, pids) = long(folder.path(), "(exec sleep 1000) & echo $!; echo $$; wait").await;
    // It must not start another guardian either.
    holder.signal(Signal::SIGSTOP);
    for child in children(&holder.pid()).into_iter().filter(|child| *child != pids[1]) {
        send(&child, Signal::SIGKILL);
        until("the end of the guardian", async || is_gone(&child)).await;
    }
    holder.signal(Signal::SIGKILL);
    until("the end of the holder", async || is_gone(&holder.pid()) && is_gone(&pids[1])).await;
    for _ in 0..3 {
        run(folder.path(), &["-w", "0"], "true").end().await.expect(75);
    }
    assert!(!is_gone(&pids[0]), "it lives");
    send(&pids[0], Signal::SIGKILL);
    run(folder.path(), &["-w", "10s"], "true").end().await.expect(0);
}

/// Process 1 of a container is often one that does not reap.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_lock_of_a_holder_that_is_killed_is_free_although_nobody_reaps_its_processes() {
    if !has_namespaces() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let quorlock = env!("CARGO_BIN_EXE_quorlock");
    let nodes = format!("sqlite://{}/locks.db", folder.path().display());
    // It becomes a program that waits for no child.
    let script = format!(
        "{quorlock} run --nodes {nodes} -t 30s job -- sh -c 'echo started; sleep 1000' & echo $!; exec sleep 1000"
    );
    let first = Quorlock::new([""; 0])
        .through_all("unshare", &[&NAMESPACES[..], &["sh", "-c", &script, "--"]].concat());
    let first = first.start();
    let lines = first.lines(2).await;
    let holder = lines.iter().find(|line| *line != "started").unwrap();
    let process_1 = children(&first.pid()).remove(0);
    let wanted = format!("/proc/{process_1}/root/proc/{holder}");
    let kill = ["-t", &process_1, "-p", "-m", "kill", "-KILL", holder];
    assert!(Command::new("nsenter").args(kill).status().unwrap().success());
    // Well before the thirty seconds of its lease.
    run(folder.path(), &["-w", "10s"], "true").end().await.expect(0);
    let stat = fs::read_to_string(format!("{wanted}/stat")).unwrap();
    assert!(stat.contains(") Z "), "it was not reaped: {stat}");
}

/// The guardian leaves a process that keeps the mark until the group is gone: here a process of another user, which it may
/// not kill, and which has closed what it inherited.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_lock_of_a_dead_holder_is_not_free_while_a_process_lives_that_its_guardian_may_not_kill() {
    use std::os::unix::fs::PermissionsExt as _;

    if !nix::unistd::geteuid().is_root() {
        return skips("only root can start a process that others may not kill");
    }
    let (folder, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&folder, &tools] {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    }
    // Runs a command as root, for all users.
    let as_root = tools.path().join("as-root");
    fs::copy(which("setpriv"), &as_root).unwrap();
    fs::set_permissions(&as_root, fs::Permissions::from_mode(0o4755)).unwrap();
    let as_root = format!("{} --reuid=0 --regid=0 --clear-groups", as_root.display());
    let as_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let quorlock = |options: &[&str], script: &str| {
        let quorlock = run(folder.path(), options, script).through_all("setpriv", &as_nobody);
        fs::set_permissions(quorlock.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        quorlock
    };
    // The user may lack access to the programs, and the file system may ignore set-uid.
    let program = format!("{as_root} {} --version", env!("CARGO_BIN_EXE_quorlock"));
    let tried = Command::new("setpriv").args(as_nobody).args(program.split(' ')).output().unwrap();
    if !tried.status.success() {
        return skips(format_args!("{program}: {}", String::from_utf8_lossy(&tried.stderr)));
    }
    let closing = format!(
        "for fd in /proc/$$/fd/*; do fd=${{fd##*/}}; ((fd > 2)) && eval \"exec $fd>&-\"; done; exec {as_root} sleep 1000"
    );
    let holder = quorlock(&["-t", "30s"], &format!("bash -c '{closing}' & echo $!; echo $$; wait")).start();
    let pids = holder.lines(2).await;
    let comm = || fs::read_to_string(format!("/proc/{}/comm", pids[0])).unwrap_or_default();
    until("the process of root", async || comm() == "sleep\n").await;
    let guardian = guardian(&holder).await;
    holder.signal(Signal::SIGKILL);
    until("the end of the others", async || {
        [&holder.pid(), &guardian, &pids[1]].into_iter().all(|pid| is_gone(pid))
    })
    .await;
    for _ in 0..3 {
        quorlock(&["-w", "0"], "true").end().await.expect(75);
    }
    assert!(!is_gone(&pids[0]), "it lives");
    send(&pids[0], Signal::SIGKILL);
    // Well before the thirty seconds of its lease.
    quorlock(&["-w", "10s"], "true").end().await.expect(0);
}

#[cfg(target_os = "linux")]
fn which(program: &str) -> std::path::PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.exists()).unwrap()
}

#[cfg(target_os = "linux")]
fn has_open(running: &Running, name: &str) -> bool {
    open_files(&running.pid(), name).iter().any(|file| file == name)
}

/// Returns the names of the open files of a process that begin with `begins`.
#[cfg(target_os = "linux")]
fn open_files(pid: &str, begins: &str) -> Vec<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = files
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok()?.file_name()?.to_str().map(str::to_owned));
    names.filter(|name| name.starts_with(begins)).collect()
}

#[tokio::test]
async fn what_cannot_be_a_database_is_refused_with_its_cure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("text"), "this is no database, but a text of more than a hundred bytes. ".repeat(9))
        .unwrap();
    fs::create_dir(path.join("folder")).unwrap();
    for (name, expected) in [
        ("text", "is not a database of SQLite: name another file"),
        ("folder", "is a directory: name a file in it"),
        ("missing/locks.db", "there is no directory"),
    ] {
        let nodes = format!("sqlite://{}/{name}", path.display());
        let words = ["run", "--nodes", &nodes, "--wait", "1s", "job", "--", "echo", "ran"];
        let ended = quorlock(path, &words).end().await;
        assert!(ended.stderr.contains(expected) && !ended.stdout.contains("ran"), "{name}: {ended:#?}");
        assert_ne!(ended.code, Some(0), "{name}: {ended:#?}");
    }
}

#[tokio::test]
async fn doctor_names_files_that_any_user_can_read_or_change() {
    let folder = tempfile::tempdir().unwrap();
    let doctor = async || quorlock(folder.path(), &["doctor", "--json"]).end().await;
    let clean = doctor().await.expect(0);
    assert!(!clean.stdout.contains("exposed-files"), "{clean:#?}");
    let database = folder.path().join("locks.db");
    for (path, mode, code, words) in [
        (&database, 0o644, 0, "can be read by any user of this host, who can stop its locks: the file"),
        (&database, 0o666, 79, "can be changed by any user of this host, who can take locks away: the file"),
        (&folder.path().to_owned(), 0o1777, 79, "who can take locks away: the folder"),
    ] {
        let before = fs::metadata(path).unwrap().permissions();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let report = doctor().await.expect(code);
        assert!(report.stdout.contains(words) && report.stdout.contains("chmod o-rwx"), "{report:#?}");
        fs::set_permissions(path, before).unwrap();
    }
}
