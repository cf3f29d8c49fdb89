//! The examples print the expected lines.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Cargo builds the examples with the tests, but does not expose their paths.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not built; run `cargo build --examples`", path.display());
    path
}

fn assert_scenario(ended: &Output) {
    let output = assert_lines(ended, &[]);
    let (with, without) = output.split_once("Without the check\n").expect("two runs");
    for (act, words) in [
        (with, &["(SIGSTOP)", "(SIGCONT)", "Refused: fencing token", "reads 150, writes 120", "is 120;"][..]),
        (without, &["(SIGSTOP)", "(SIGCONT)", "She has written 70.", "is 70; it should be 120"]),
    ] {
        for word in words {
            assert!(act.contains(word), "the output lacks `{word}`: {output}");
        }
    }
    assert!(!without.contains("Refused"), "{output}");
}

#[test]
fn a_stale_write_to_sqlite_is_refused_only_by_the_check() {
    assert_scenario(&Command::new(example("fenced_sqlite")).output().unwrap());
}

#[test]
fn the_example_falls_back_to_built_in_servers() {
    let ended = Command::new(example("fenced_sqlite")).env("QUORLOCK_SERVER", "builtin").output().unwrap();
    assert!(String::from_utf8_lossy(&ended.stdout).contains("built-in server"), "it names the servers");
    assert_scenario(&ended);
}

#[test]
fn a_stale_write_to_postgresql_is_refused_only_by_the_check() {
    if let Err(why) = quorlock_testkit::Engine::postgres() {
        // Not with `eprintln`, which the harness captures while a test passes.
        drop(writeln!(std::io::stderr(), "skipped: {why}"));
        return;
    }
    assert_scenario(&Command::new(example("fenced_postgres")).output().unwrap());
}

/// Runs an example to its end, and expects all of these in its output, in this order.
#[track_caller]
fn assert_prints(name: &str, lines: &[&str]) -> String {
    assert_lines(&Command::new(example(name)).output().unwrap(), lines)
}

#[track_caller]
fn assert_lines(ended: &Output, lines: &[&str]) -> String {
    let (output, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    // What the contract does not try.
    let is_quiet = errors.lines().all(|line| line.is_empty() || line.starts_with("skipped, because"));
    assert!(ended.status.success() && is_quiet, "{}\n{output}\n{errors}", ended.status);
    let mut rest = &*output;
    for line in lines {
        rest = rest.split_once(line).unwrap_or_else(|| panic!("the output lacks `{line}` here: {output}")).1;
    }
    output.into_owned()
}

#[test]
fn a_first_lock_excludes_others_until_released() {
    assert_prints(
        "first_lock",
        &["I have the lock", "does not get it", "at 5 of 5 servers", "the next one has it"],
    );
}

#[test]
fn scoped_work_outlives_two_servers_and_is_stopped_with_the_third() {
    assert_prints(
        "scoped_work",
        &["returned 42", "the other three have renewed", "A third", "The job was stopped after"],
    );
}

#[test]
fn a_second_request_gets_409_and_retry_after() {
    let refused = ["409 Conflict | retry-after: ", " | `uploads/report.csv` is held by"];
    let output = assert_prints(
        "http_conflict",
        &["100 Continue", refused[0], refused[1], "200 OK", "200 OK", "(the first request)", "200 OK"],
    );
    let seconds = output.split_once(refused[0]).unwrap().1.split_once(refused[1]).unwrap().0;
    assert!((1..=10).contains(&seconds.parse().unwrap()), "what is left of a TTL of 10 s, not {seconds}");
}

#[test]
fn candidates_lead_in_turn_and_an_observer_sees_it() {
    let (ann, ben) = ("The observer sees http://10.0.0.7:8080.", "The observer sees http://10.1.0.7:8080.");
    assert_prints("leader_election", &["there is no leader", ann, "Ben leads immediately", ben, "Cid leads"]);
}

#[test]
fn a_worker_releases_its_lock_on_sigterm() {
    let mut child = Command::new(example("graceful_shutdown"));
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let (mut line, mut bytes) = (String::new(), 1);
    while bytes > 0 && !line.contains("Send SIGTERM") {
        bytes = reader.read_line(&mut line).unwrap();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut ended = Output { stdout: Vec::new(), ..child.wait_with_output().unwrap() };
    std::io::Read::read_to_end(&mut reader, &mut ended.stdout).unwrap();
    assert_lines(&ended, &["SIGTERM: the work stopped", "is released", "The other worker holds it"]);
}

#[test]
fn a_hundred_locks_are_shared_among_workers() {
    let shared_out = ["The second has 0.", "still holds 100", "the second has 50", "the second has all 100"];
    assert_prints("tenants", &shared_out);
}

#[test]
fn functions_reenter_a_lock_of_their_caller() {
    assert_prints("reentrant", &["transfer has", "deposit has", "transfer still holds it", "free: true"]);
}

#[test]
fn a_lock_across_regions_outlives_one_of_them() {
    assert_prints(
        "regions",
        &["Stockholm, which completes", "Frankfurt is down", "the round trip to Dublin"],
    );
}

#[test]
fn a_custom_node_keeps_the_contract_and_can_be_drained() {
    assert_prints(
        "own_node",
        &["keeps the contract", "is drained", "the other four renew it", "votes again"],
    );
}

#[test]
fn readers_share_a_lock_and_a_writer_reads_on() {
    let story = ["held by ann and ben.", "Dan does not get in", "Cid writes, alone", "and so does Dan."];
    assert_prints("shared_catalog", &story);
}

#[test]
fn transfers_in_a_ring_end_and_no_money_is_lost() {
    let output = assert_prints("transfer", &[]);
    // Ann paid ten and got twenty, Ben paid twenty and got ten.
    for line in ["ann has 110.", "ben has 90.", "cid has 100.", "In total they have 300"] {
        assert!(output.contains(line), "the output lacks `{line}`: {output}");
    }
}

#[test]
#[cfg(feature = "blocking")]
fn threads_without_async_count_without_losing_any() {
    assert_prints(
        "blocking",
        &["has counted to 5", "has counted to 5", "has counted to 5", "The counter is at 20."],
    );
}

#[test]
fn each_example_is_short_listed_and_run_by_a_test() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(project.join("examples/README.md")).unwrap();
    let tests =
        [include_str!("examples.rs"), include_str!("../../crates/quorlock-cli/tests/cli/examples.rs")];
    let mut found = 0;
    for entry in fs::read_dir(project.join("examples")).unwrap() {
        let path = entry.unwrap().path();
        let (file, name) = (path.file_name().unwrap(), path.file_stem().unwrap().to_string_lossy());
        let extension = path.extension().and_then(|extension| extension.to_str());
        if !matches!(extension, Some("rs" | "sh")) {
            continue;
        }
        found += 1;
        assert!(list.contains(&format!("]({})", file.display())), "{name} is missing in examples/README.md");
        let named = [format!("\"{name}\""), format!("examples/{}", file.display())];
        let run = tests.iter().any(|test| named.iter().any(|name| test.contains(name)));
        assert!(run, "no test runs {name}");
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        let limit = if extension == Some("rs") { 80 } else { 100 };
        assert!(
            lines < limit,
            "{name} has {lines} lines; an example must stay below {limit} lines to be readable"
        );
    }
    assert!(found >= 15, "{found} were found");
}
