//! The metrics of `quorlock run` and `hold`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what does not go as expected fails the test"
)]

use std::fs::symlink_metadata;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use quorlock_testkit::{Server, patience, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use crate::support::{Quorlock, Running, STAYS, UNTIL_ENOUGH, each, keys, kill_all, run, servers};

/// Returns the address at which it logs that metrics are served.
pub(crate) async fn address(running: &Running) -> String {
    let mut found = None;
    until("the address of the metrics", async || {
        let stderr = running.stderr();
        let url = stderr.lines().find_map(|line| line.split_once("url=http://"));
        found = url.and_then(|(_, rest)| Some(rest.split_once("/metrics")?.0.to_owned()));
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// Scrapes it, and returns head and body of the response.
pub(crate) fn scrape(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(patience())).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

/// Returns the value of a series, named without the label `resource`.
#[track_caller]
fn sample(text: &str, series: &str) -> String {
    let line = text.lines().find_map(|line| {
        let (found, value) = line.rsplit_once(' ')?;
        let plain = found.replace("resource=\"job\",", "").replace("{resource=\"job\"}", "");
        let plain = plain.replace(",resource=\"job\"", "");
        (plain == series).then(|| value.to_owned())
    });
    line.unwrap_or_else(|| panic!("{series} is not in {text}"))
}

/// A file for metrics, in a folder of its own.
struct Textfile {
    folder: TempDir,
    path: String,
}

impl Textfile {
    fn new() -> Textfile {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.prom").display().to_string();
        Textfile { folder, path }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }
}

#[tokio::test]
async fn a_run_is_scraped_while_its_command_runs() {
    let Some(servers) = servers(3).await else { return };
    let running = run(&servers, &["-v", "--metrics", "0"], STAYS).prints(1).await;
    let address = address(&running).await;
    assert!(address.starts_with("127.0.0.1:"), "{address} is seen by others");
    let text = scrape(&address, "/metrics");
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("content-type: text/plain; version=0.0.4")
    );
    assert_eq!(sample(&text, "quorlock_held"), "1");
    assert_eq!(sample(&text, "quorlock_quorum"), "2");
    assert_eq!(sample(&text, "quorlock_acquisitions_total{outcome=\"acquired\"}"), "1");
    // The lock is acquired before the slowest connection is made.
    for url in servers.iter().map(Server::bare_url) {
        let up = format!("quorlock_node_up{{node=\"{url}\"}}");
        until(&up, async || sample(&scrape(&address, "/metrics"), &up) == "1").await;
    }
    assert!(text.contains("quorlock_acquire_duration_seconds_bucket"), "histograms have buckets: {text}");
    assert!(scrape(&address, "/").starts_with("HTTP/1.1 404"), "and says where they are");
}

#[tokio::test]
async fn a_hold_is_scraped_as_well() {
    let Some(servers) = servers(3).await else { return };
    let holder = Quorlock::new(["hold", "-v", "--metrics", "0", "job"]).on(&servers).prints(4).await;
    let text = scrape(&address(&holder).await, "/metrics");
    assert_eq!(sample(&text, "quorlock_held"), "1");
    let waited: f64 = sample(&text, "quorlock_run_waited_seconds").parse().unwrap();
    assert!(waited < patience().as_secs_f64(), "{waited}");
}

#[tokio::test]
async fn a_port_in_use_is_an_error_before_the_lock_is_asked_for() {
    let Some(servers) = servers(3).await else { return };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = run(&servers, &["--metrics", &address], "echo ran").end().await.expect(78);
    assert_eq!(ended.stdout, "", "the command was not started");
    assert!(ended.stderr.contains(&address) && ended.stderr.contains("--metrics"), "{ended:?}");
    for server in servers.iter() {
        let asked = server.command(&["INFO", "commandstats"]).await.unwrap().to_string();
        assert!(!asked.contains("cmdstat_eval"), "a node was asked: {asked}");
    }
}

#[tokio::test]
async fn silent_connections_do_not_keep_it_alive() {
    let Some(servers) = servers(3).await else { return };
    let running = run(&servers, &["-v", "--metrics", "127.0.0.1:0"], UNTIL_ENOUGH).prints(1).await;
    let address = address(&running).await;
    let _silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&address).unwrap()).collect();
    running.enough().await.expect(0);
    assert_eq!(keys(&servers).await, [""; 0], "the lock was given back");
}

/// Opens connections that send nothing, or only a part of a request.
fn half_open(address: &str, count: usize) -> Vec<TcpStream> {
    let open = |number| {
        let mut stream = TcpStream::connect(address).expect("it accepts");
        if number % 2 == 0 {
            // Perhaps it is closed already.
            drop(stream.write_all(b"GET /ready HTTP/1.1\r\nHost:"));
        }
        stream
    };
    (0..count).map(open).collect()
}

fn is_open(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[tokio::test]
async fn a_probe_is_answered_beside_any_number_of_half_open_connections() {
    let Some(servers) = servers(3).await else { return };
    // Each is a file of this process.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let running = run(&servers, &["-v", "--metrics", "0"], STAYS).prints(1).await;
    let address = address(&running).await;
    let mut silent = Vec::new();
    for count in [100, 900] {
        silent.extend(half_open(&address, count));
        for path in ["/ready", "/metrics"] {
            let answer = scrape(&address, path);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "beside {}: {answer}", silent.len());
            // Before those ahead of it had to give up.
            let open = silent.iter().filter(|stream| is_open(stream)).count();
            assert!(open >= 90, "it waited for others: {open} of {} are still open", silent.len());
        }
    }
    // They cost the program no more files than it may have.
    let files = std::fs::read_dir(format!("/proc/{}/fd", running.pid())).map_or(0, Iterator::count);
    assert!(files < 400, "{files} files are open");
    drop(silent);
}

#[tokio::test]
async fn a_short_job_leaves_its_metrics_in_a_file() {
    let Some(servers) = servers(3).await else { return };
    let file = Textfile::new();
    run(&servers, &["--metrics-file", &file.path], "exit 3").end().await.expect(3);
    let text = file.text();
    for (series, value) in [
        ("quorlock_run_command_exit_code", "3"),
        ("quorlock_run_command_stopped", "0"),
        ("quorlock_run_exit_code", "3"),
        ("quorlock_held", "0"),
        ("quorlock_waiters", "0"),
        ("quorlock_acquisitions_total{outcome=\"acquired\"}", "1"),
        ("quorlock_releases_total{outcome=\"confirmed\"}", "1"),
    ] {
        assert_eq!(sample(&text, series), value, "{series}");
    }
    let ended: f64 = sample(&text, "quorlock_run_end_timestamp_seconds").parse().unwrap();
    assert!(ended >= sample(&text, "quorlock_run_start_timestamp_seconds").parse().unwrap());
    let mode = symlink_metadata(&file.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o444, 0o444, "the collector may read it");
    assert_eq!(std::fs::read_dir(&file.folder).unwrap().count(), 1, "nothing else is left there");
}

#[tokio::test]
async fn a_job_that_never_ran_says_so_in_its_file() {
    let Some(servers) = servers(3).await else { return };
    each(&servers, &["SET", "job", "another client", "PX", "60000"]).await;
    let file = Textfile::new();
    run(&servers, &["-n", "--metrics-file", &file.path], "echo ran").end().await.expect(75);
    let text = file.text();
    assert_eq!(sample(&text, "quorlock_run_exit_code"), "75");
    assert_eq!(sample(&text, "quorlock_acquisitions_total{outcome=\"contended\"}"), "1");
    assert!(!text.contains("quorlock_run_command_exit_code"), "there was no command");
}

#[tokio::test]
async fn a_lost_lock_differs_from_a_failed_command() {
    let Some(servers) = servers(3).await else { return };
    let file = Textfile::new();
    let options = ["-t", "3s", "--metrics-file", &file.path];
    let running = run(&servers, &options, STAYS).prints(1).await;
    kill_all(&servers[..2]);
    running.end().await.expect(76);
    let text = file.text();
    assert_eq!(sample(&text, "quorlock_run_command_stopped"), "1");
    assert_eq!(sample(&text, "quorlock_run_exit_code"), "76");
    assert_eq!(lost(&text), [("expired", 1)], "it was given back in time, and lost all the same");
}

#[tokio::test]
async fn a_lost_lock_is_counted_once() {
    let Some(servers) = servers(3).await else { return };
    let file = Textfile::new();
    let options = |more: [&'static str; 2]| [more[0], more[1], "--metrics-file", &file.path];
    run(&servers, &options(["--max-hold", "600ms"]), "exec sleep 1000").end().await.expect(76);
    assert_eq!(lost(&file.text()), [("max_hold", 1)]);
    run(&servers, &options(["-t", "5s"]), "exit 3").end().await.expect(3);
    assert_eq!(lost(&file.text()), [], "it was not");
    // The library sees this loss itself.
    let running = run(&servers, &options(["-t", "3s"]), STAYS).prints(1).await;
    each(&servers[..2], &["SET", "job", "another client", "PX", "60000"]).await;
    running.end().await.expect(76);
    assert_eq!(lost(&file.text()), [("quorum_lost", 1)]);
}

#[tokio::test]
async fn a_lock_that_the_release_finds_lost_is_counted_and_the_run_failed() {
    let Some(servers) = servers(3).await else { return };
    let file = Textfile::new();
    let running = run(&servers, &["--metrics-file", &file.path], UNTIL_ENOUGH).prints(1).await;
    each(&servers[..2], &["SET", "job", "another client", "PX", "60000"]).await;
    running.enough().await.expect(76);
    let text = file.text();
    assert_eq!(lost(&text), [("quorum_lost", 1)]);
    assert_eq!(sample(&text, "quorlock_run_command_stopped"), "0");
    assert!(text.contains("quorlock_run_last_failure_timestamp_seconds"), "{text}");
    assert!(!text.contains("quorlock_run_last_success_timestamp_seconds"), "{text}");
}

/// Returns the number of lost leases, for each reason that occurred.
fn lost(text: &str) -> Vec<(&'static str, u64)> {
    let times =
        |reason| sample(text, &format!("quorlock_lost_total{{reason=\"{reason}\"}}")).parse().unwrap();
    let all = ["expired", "quorum_lost", "max_hold", "closed"].map(|reason| (reason, times(reason)));
    all.into_iter().filter(|(_, times)| *times > 0).collect()
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_an_error_before_the_lock_is_asked_for() {
    let Some(servers) = servers(3).await else { return };
    let options = ["--metrics-file", "/nowhere/at/all/job.prom"];
    let ended = run(&servers, &options, "echo ran").end().await.expect(78);
    assert!(ended.stdout.is_empty() && ended.stderr.contains("/nowhere/at/all/job.prom"), "{ended:?}");
}

#[tokio::test]
async fn what_is_no_regular_file_is_not_replaced_by_one() {
    let Some(servers) = servers(3).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let [pipe, link] = ["pipe", "link"].map(|name| folder.path().join(name));
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    symlink(folder.path().join("job.prom"), &link).unwrap();
    // A device is made by root only, and `/dev/null` would be lost to all.
    for (path, what) in [(&pipe, "a pipe"), (&link, "a symbolic link")] {
        let before = symlink_metadata(path).unwrap();
        let option = ["--metrics-file", path.to_str().unwrap()];
        let ended = run(&servers, &option, "echo ran").end().await.expect(78);
        assert!(ended.stdout.is_empty() && ended.stderr.contains(what), "{ended:?}");
        Quorlock::new([&["doctor"], &option[..]].concat()).on(&servers).end().await.expect(78).says(what);
        assert_eq!(symlink_metadata(path).unwrap().ino(), before.ino(), "it was replaced");
    }
}

#[tokio::test]
async fn metrics_settings_work_elsewhere_and_are_not_inherited() {
    let Some(servers) = servers(3).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (outer, file) = (folder.path().join("outer.prom"), folder.path().join("file.prom"));
    let script = "test -z \"$QUORLOCK_METRICS$QUORLOCK_METRICS_FILE\"";
    run(&servers, &[], script)
        .env("QUORLOCK_METRICS", ":0")
        .env("QUORLOCK_METRICS_FILE", outer.to_str().unwrap())
        .end()
        .await
        .expect(0);
    assert!(outer.exists());
    let toml = format!("metrics = '127.0.0.1:0'\nmetrics-file = '{}'\n", file.display());
    let words = ["run", "job", "--", "true"];
    Quorlock::new(words).on(&servers).file("quorlock.toml", &toml).end().await.expect(0);
    assert!(file.exists());
}

#[tokio::test]
async fn the_file_is_written_while_the_command_runs() {
    let Some(servers) = servers(3).await else { return };
    let file = Textfile::new();
    let running = run(&servers, &["--metrics-file", &file.path], STAYS).prints(1).await;
    until("the file to say that it is held", async || {
        let text = std::fs::read_to_string(&file.path).unwrap_or_default();
        text.contains("quorlock_held{resource=\"job\"} 1")
    })
    .await;
    running.ends_by(nix::sys::signal::Signal::SIGTERM).await.expect(143);
}

#[tokio::test]
async fn the_file_keeps_the_last_success_and_failure_over_runs_that_were_refused() {
    let Some(servers) = servers(3).await else { return };
    let file = Textfile::new();
    let options = ["-n", "--metrics-file", &file.path];
    let read = || file.text();
    let of = |text: &str, what: &str| sample(text, &format!("quorlock_run_last_{what}_timestamp_seconds"));
    run(&servers, &options, "exit 3").end().await.expect(3);
    let failed = of(&read(), "failure");
    assert!(!read().contains("quorlock_run_last_success"), "there was none: {}", read());
    run(&servers, &options, "true").end().await.expect(0);
    let succeeded = of(&read(), "success");
    assert_eq!(of(&read(), "failure"), failed);

    let holder = run(&servers, &[], STAYS).prints(1).await;
    run(&servers, &options, "true").end().await.expect(75);
    let refused = read();
    assert_eq!((of(&refused, "success"), of(&refused, "failure")), (succeeded.clone(), failed.clone()));
    assert_eq!(sample(&refused, "quorlock_run_exit_code"), "75");
    drop(holder);

    // Another lock in the same file is another job, and a node that is away is a failure.
    let other = Quorlock::new(["run", "other", "--metrics-file", &file.path, "--", "true"]);
    let nowhere = "redis://127.0.0.1:1";
    other.on(&servers).env("QUORLOCK_NODES", nowhere).env("QUORLOCK_WAIT", "0s").end().await.expect(69);
    assert!(!read().contains("quorlock_run_last_success"), "{}", read());
    assert!(
        read().contains("quorlock_run_last_failure_timestamp_seconds{resource=\"other\"} "),
        "{}",
        read()
    );
}

#[tokio::test]
async fn doctor_writes_what_it_finds() {
    let Some(servers) = servers(3).await else { return };
    servers[0].kill();
    let file = Textfile::new();
    let words = ["doctor", "--restart-guard", "on", "--metrics-file", &file.path];
    Quorlock::new(words).on(&servers).end().await.expect(69);
    let text = file.text();
    let (dead, young) = (servers[0].bare_url(), servers[1].bare_url());
    for line in [
        format!("quorlock_doctor_finding{{severity=\"warning\",finding=\"unreachable\",node=\"{dead}\"}} 1"),
        format!("quorlock_doctor_finding{{severity=\"warning\",finding=\"restarted\",node=\"{young}\"}} 1"),
        "quorlock_doctor_finding{severity=\"warning\",finding=\"no-quorum\",node=\"\"} 1".to_owned(),
        format!("quorlock_doctor_node_votes{{node=\"{dead}\"}} 0"),
        "quorlock_doctor_exit_code 69".to_owned(),
    ] {
        assert!(text.lines().any(|known| known == line), "{line}: {text}");
    }
    assert!(!text.contains("quorlock_node_up"), "its connections are no client's: {text}");
    let nowhere = ["doctor", "--metrics-file", "/nowhere/at/all/doctor.prom"];
    Quorlock::new(nowhere).on(&servers).end().await.expect(78).says("/nowhere/at/all/doctor.prom");
}
