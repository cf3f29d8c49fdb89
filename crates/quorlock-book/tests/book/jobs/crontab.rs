//! The crontab, as cron reads it, on ten hosts.

use std::process::Command;

use super::hosts::Hosts;
use super::shown;

const HOSTS: usize = 10;
/// The option that makes the job run once per slot.
const OPTION: &str = "--at-least 5min ";

/// Environment variables and one command.
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
    hosts.program("import.sh", "sleep 0.05");
    let [text] = &shown("crontab", "crontab")[..] else { panic!("the page shows one crontab") };
    let crontab = Crontab::read(&hosts.here(text));
    for ended in hosts.run(HOSTS, || crontab.command()) {
        assert!(ended.status.success(), "{ended:?}");
        assert!(ended.stdout.is_empty() && ended.stderr.is_empty(), "cron would send it: {ended:?}");
    }
    let runs = hosts.log();
    assert!(
        matches!(&runs[..], [day] if day.starts_with("--day 20") && day.len() == "--day 2026-01-31".len()),
        "once, with the day: {runs:?}"
    );
}

#[tokio::test]
async fn without_at_least_the_crontab_runs_the_job_repeatedly() {
    let Some(hosts) = Hosts::new().await else { return };
    hosts.program("import.sh", "sleep 0.05");
    let text = shown("crontab", "crontab").concat();
    assert!(text.contains(OPTION), "{text}");
    let crontab = Crontab::read(&hosts.here(&text.replace(OPTION, "")));
    hosts.run(HOSTS, || crontab.command());
    assert!(hosts.log().len() >= 2, "{:?}", hosts.log());
}

#[tokio::test]
async fn a_host_without_the_command_sends_mail_and_leaves_the_slot_free() {
    let Some(hosts) = Hosts::new().await else { return };
    let crontab = Crontab::read(&hosts.here(&shown("crontab", "crontab").concat()));
    let ended = hosts.start(crontab.command()).end();
    assert_eq!(ended.status.code(), Some(127), "{ended:?}");
    assert!(!ended.stderr.is_empty(), "{ended:?}");
    assert_eq!(hosts.status("nightly-import")["state"], "free");
}
