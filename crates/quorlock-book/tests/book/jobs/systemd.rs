//! The units, as systemd runs them, on several hosts.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use nix::sys::signal::Signal;

use super::hosts::{Host, Hosts, leader};
use super::shown;
use crate::skip;

/// A service of the page.
struct Service {
    text: String,
    environment: HashMap<String, String>,
}

impl Service {
    /// Writes the units of the page to the folder and verifies them; returns the service with this command.
    fn read(hosts: &Hosts, verb: &str) -> Service {
        let environment = hosts.here(&shown("systemd", "env").concat());
        fs::write(hosts.path("quorlock.env"), &environment).unwrap();
        let units: Vec<String> = shown("systemd", "systemd").iter().map(|unit| hosts.here(unit)).collect();
        let [job, timer, elected] = &units[..] else { panic!("the page shows three units") };
        let named = [
            ("nightly-import.service", job),
            ("nightly-import.timer", timer),
            ("web-scheduler.service", elected),
        ];
        for (name, text) in named {
            fs::write(hosts.path(name), text).unwrap();
        }
        for (name, _) in named {
            verify(&hosts.path(name));
        }
        let text = units.iter().find(|unit| unit.contains(&format!("quorlock {verb} "))).unwrap().clone();
        let settings = environment.lines().filter_map(|line| line.split_once('='));
        let environment = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Service { text, environment }
    }

    fn setting(&self, name: &str) -> &str {
        let line = self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("there is no {name}"))
    }

    fn command(&self, hosts: &Hosts) -> Command {
        let words: Vec<String> = self.setting("ExecStart").split(' ').map(str::to_owned).collect();
        hosts.command(&words, &self.environment)
    }

    /// Returns whether the unit counts this end as a success.
    fn is_success(&self, ended: &Output) -> bool {
        ended.status.success() || self.lists("SuccessExitStatus", ended)
    }

    fn lists(&self, setting: &str, ended: &Output) -> bool {
        let code = ended.status.code().map(|code| code.to_string());
        self.setting(setting).split(' ').any(|listed| Some(listed) == code.as_deref())
    }
}

/// Verifies a unit with systemd, if it is installed.
fn verify(unit: &Path) {
    let Ok(ended) = Command::new("systemd-analyze").arg("verify").arg(unit).output() else {
        skip("no systemd-analyze installed, so the units are not verified");
        return;
    };
    let stderr = String::from_utf8_lossy(&ended.stderr);
    let name = unit.file_stem().unwrap().to_string_lossy();
    // It also reports other units of this machine.
    let about_it: Vec<&str> = stderr.lines().filter(|line| line.contains(&*name)).collect();
    assert!(about_it.is_empty(), "{about_it:#?}");
}

#[tokio::test]
async fn the_service_of_the_page_runs_its_job_once_on_ten_hosts_and_fails_on_none() {
    let Some(hosts) = Hosts::new().await else { return };
    for name in ["bin/import", "bin/scheduler"] {
        hosts.program(name, "sleep 0.05");
    }
    let service = Service::read(&hosts, "run");
    let ended = hosts.run(10, || service.command(&hosts));
    assert_eq!(hosts.log().len(), 1);
    let late: Vec<&Output> = ended.iter().filter(|ended| !ended.status.success()).collect();
    assert_eq!(late.len(), 9);
    for late in late {
        assert!(service.is_success(late), "systemd would call it failed: {late:?}");
        let stderr = String::from_utf8_lossy(&late.stderr);
        assert!(stderr.contains("`nightly-import` stays taken ") && stderr.contains(" ran at "), "{stderr}");
    }
}

/// What a scheduler does until SIGTERM.
const SCHEDULER: &str = "trap 'log stopped; exit 0' TERM\nlog started\nwhile :; do sleep 0.05; done";

#[tokio::test]
async fn the_elected_service_of_the_page_is_active_on_one_of_three_hosts() {
    let Some(hosts) = Hosts::new().await else { return };
    hosts.program("bin/import", "");
    hosts.program("bin/scheduler", SCHEDULER);
    let mut service = Service::read(&hosts, "elect");
    // Shorter than in the page, so that a crashed leader is replaced soon.
    service.environment.insert("QUORLOCK_TTL".to_owned(), "3s".to_owned());
    let mut candidates: Vec<Host> = (0..3).map(|_| hosts.start(service.command(&hosts))).collect();
    hosts.logged("started", 1).await;

    // `systemctl stop`, with KillMode=mixed.
    let first = leader(&hosts, "web-scheduler", &mut candidates).await;
    first.signal(Signal::SIGTERM);
    let ended = first.ended().await;
    assert!(service.is_success(&ended), "systemd would call it failed: {ended:?}");
    hosts.logged("started", 2).await;
    assert_eq!(hosts.log().iter().filter(|line| *line == "stopped").count(), 1);

    // A crash.
    let second = leader(&hosts, "web-scheduler", &mut candidates).await;
    second.signal(Signal::SIGKILL);
    hosts.logged("started", 3).await;

    let last = leader(&hosts, "web-scheduler", &mut candidates).await;
    last.signal(Signal::SIGTERM);
    assert!(service.is_success(&last.ended().await));
}

#[tokio::test]
async fn the_elected_service_restarts_after_a_crash_and_not_where_it_changes_nothing() {
    let Some(hosts) = Hosts::new().await else { return };
    hosts.program("bin/import", "");
    let scheduler = hosts.program("bin/scheduler", "kill -SEGV $$");
    let mut service = Service::read(&hosts, "elect");
    let end = |service: &Service| hosts.start(service.command(&hosts)).end();

    let crashed = end(&service);
    assert_eq!(crashed.status.code(), Some(139), "{crashed:?}");
    assert!(!service.is_success(&crashed) && !service.lists("RestartPreventExitStatus", &crashed));

    hosts.program("bin/scheduler", "kill -TERM $$");
    assert!(service.is_success(&end(&service)), "a scheduler that does not handle SIGTERM");

    fs::remove_file(scheduler).unwrap();
    let missing = end(&service);
    assert!(missing.status.code() == Some(127) && service.lists("RestartPreventExitStatus", &missing));
    hosts.program("bin/scheduler", "");

    service.environment.insert("QUORLOCK_TTL".to_owned(), "soon".to_owned());
    let invalid = end(&service);
    assert!(service.lists("RestartPreventExitStatus", &invalid), "{invalid:?}");
}
