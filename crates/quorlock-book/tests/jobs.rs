//! Runs the crontab, the service and the timer of `docs/jobs.md` as cron and systemd would on ten hosts.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use quorlock_book::block::blocks;
use quorlock_book::page::page;
use quorlock_testkit::{Kind, Servers};
use tempfile::TempDir;

const HOSTS: usize = 10;
/// The option in the crontab that makes the job run once per slot.
const OPTION: &str = "--at-least 5min ";

/// Returns the blocks of this language.
fn shown(language: &str) -> Vec<String> {
    let page = page("docs/jobs.md").unwrap();
    let shown = blocks(&page.text).into_iter().filter(|block| block.language == language);
    shown.map(|block| block.text).collect()
}

fn quorlock() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("quorlock");
    assert!(program.exists(), "{} is not built; run `cargo build --all-features`", program.display());
    program
}

/// The servers, and the folder in which the jobs run and write.
struct Hosts {
    servers: Servers,
    folder: TempDir,
}

impl Hosts {
    async fn new() -> Option<Hosts> {
        if !matches!(Kind::choose().unwrap(), Kind::Program { .. }) {
            // `eprintln` would be captured by the test harness.
            drop(writeln!(std::io::stderr(), "skipped: no valkey-server or redis-server installed"));
            return None;
        }
        let hosts = Hosts { servers: Servers::start(3).await.unwrap(), folder: tempfile::tempdir().unwrap() };
        for name in ["import.sh", "import"] {
            let job = format!("#!/bin/sh\necho \"$@\" >> {}\nsleep 0.05\n", hosts.path("log").display());
            let path = hosts.path(name);
            fs::write(&path, job).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(hosts)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces the servers and program paths of the page by those of the test.
    fn here(&self, text: &str) -> String {
        let mut text = text
            .replace("/usr/local/bin/quorlock", &quorlock().display().to_string())
            .replace("PATH=/usr/local/bin:", &format!("PATH={}:", quorlock().parent().unwrap().display()))
            .replace("/usr/local/bin/import", &self.path("import").display().to_string())
            .replace("/etc/quorlock.env", &self.path("quorlock.env").display().to_string());
        for (number, server) in self.servers.iter().enumerate() {
            text = text.replace(&format!("10.{number}.0.1"), &format!("127.0.0.1:{}", server.port()));
        }
        assert!(!text.contains("10."), "a server of the page is left in {text}");
        text
    }

    fn start(&self, mut command: Command) -> Child {
        command.env("HOME", self.folder.path()).current_dir(self.folder.path());
        // The servers have just started.
        command.env("QUORLOCK_RESTART_GUARD", "off");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs the job on all hosts, on half of them after the others have ended, as with clocks that differ.
    fn run(&self, command: impl Fn() -> Command) -> Vec<Output> {
        let mut ended = Vec::new();
        for _ in 0..2 {
            let started: Vec<Child> = (0..HOSTS / 2).map(|_| self.start(command())).collect();
            ended.extend(started.into_iter().map(|child| child.wait_with_output().unwrap()));
        }
        ended
    }

    /// Returns the arguments of each run of the job.
    fn runs(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

/// A crontab, as cron reads it: environment variables and one command.
struct Crontab {
    environment: Vec<(String, String)>,
    command: String,
}

impl Crontab {
    fn read(text: &str) -> Crontab {
        let (settings, jobs): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.split(' ').next().is_some_and(|word| word.contains('=')));
        let [job] = *jobs else { panic!("one line is a job: {jobs:?}") };
        let fields: Vec<&str> = job.splitn(6, ' ').collect();
        let [.., command] = *fields else { panic!("no fields") };
        assert_eq!(fields.len(), 6, "not five fields and a command: {job}");
        // An unescaped `%` ends the command and begins its stdin.
        let escaped = command.replace("\\%", "\0");
        assert!(!escaped.contains('%'), "cron would cut {command}");
        let setting = |line: &&str| line.split_once('=').map(|(name, value)| (name.into(), value.into()));
        Crontab {
            environment: settings.iter().filter_map(setting).collect(),
            command: escaped.replace('\0', "%"),
        }
    }

    fn command(&self) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().envs(self.environment.iter().cloned()).args(["-c", &self.command]);
        shell
    }
}

#[tokio::test]
async fn the_crontab_of_the_page_runs_its_job_once_on_ten_hosts_and_sends_no_mail() {
    let Some(hosts) = Hosts::new().await else { return };
    let [text] = &shown("crontab")[..] else { panic!("the page shows one crontab") };
    let crontab = Crontab::read(&hosts.here(text));
    for ended in hosts.run(|| crontab.command()) {
        assert!(ended.status.success(), "{ended:?}");
        assert!(ended.stdout.is_empty() && ended.stderr.is_empty(), "cron would send it: {ended:?}");
    }
    let runs = hosts.runs();
    assert!(
        matches!(&runs[..], [day] if day.starts_with("--day 20") && day.len() == "--day 2026-01-31".len()),
        "once, with the day: {runs:?}"
    );
}

#[tokio::test]
async fn without_at_least_the_crontab_runs_the_job_repeatedly() {
    let Some(hosts) = Hosts::new().await else { return };
    let text = shown("crontab").concat();
    assert!(text.contains(OPTION), "{text}");
    let crontab = Crontab::read(&hosts.here(&text.replace(OPTION, "")));
    hosts.run(|| crontab.command());
    assert!(hosts.runs().len() >= 2, "{:?}", hosts.runs());
}

#[tokio::test]
async fn the_service_of_the_page_runs_its_job_once_on_ten_hosts_and_fails_on_none() {
    let Some(hosts) = Hosts::new().await else { return };
    let environment = shown("env").concat();
    let units = shown("systemd");
    let [service, timer] = &units[..] else { panic!("the page shows a service and a timer") };
    fs::write(hosts.path("quorlock.env"), hosts.here(&environment)).unwrap();
    let (service, timer) = (hosts.here(service), hosts.here(timer));
    for (name, text) in [("nightly-import.service", &service), ("nightly-import.timer", &timer)] {
        fs::write(hosts.path(name), text).unwrap();
        verify(&hosts.path(name));
    }

    let setting = |name: &str| {
        let line = service.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("there is no {name}")).to_owned()
    };
    let (words, success) = (setting("ExecStart"), setting("SuccessExitStatus"));
    let environment = fs::read_to_string(setting("EnvironmentFile")).unwrap();
    let ended = hosts.run(|| {
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let settings = environment.lines().filter_map(|line| line.split_once('='));
        command.env_clear().env("PATH", "/usr/bin:/bin").envs(settings).args(words);
        command
    });
    assert_eq!(hosts.runs().len(), 1);
    let late: Vec<&Output> = ended.iter().filter(|ended| !ended.status.success()).collect();
    assert_eq!(late.len(), HOSTS - 1);
    for late in late {
        let code = late.status.code().unwrap().to_string();
        assert_eq!(code, success, "systemd would call it failed: {late:?}");
        let told = String::from_utf8_lossy(&late.stderr);
        assert!(told.contains("`nightly-import` stays taken ") && told.contains(" ran at "), "{told}");
    }
}

/// Verifies a unit with systemd, if it is installed.
fn verify(unit: &Path) {
    let Ok(ended) = Command::new("systemd-analyze").arg("verify").arg(unit).output() else {
        drop(writeln!(std::io::stderr(), "not verified: no systemd-analyze installed"));
        return;
    };
    let told = String::from_utf8_lossy(&ended.stderr);
    // It also reports other units of this machine.
    let about_it: Vec<&str> = told.lines().filter(|line| line.contains("nightly-import")).collect();
    assert!(about_it.is_empty(), "{about_it:#?}");
}
