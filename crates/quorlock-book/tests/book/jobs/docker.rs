//! The Dockerfile and the file for Compose: their words are run as process 1 would be, without an engine.

use std::collections::HashMap;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::hosts::Hosts;
use super::shown;
use super::tools::{checked, strings};

/// Returns the list of an instruction.
fn instruction(dockerfile: &str, name: &str) -> Vec<String> {
    let line = dockerfile.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let list: Value = serde_json::from_str(line.unwrap_or_else(|| panic!("no {name}"))).expect("a list");
    strings(&list)
}

fn process_1() -> Vec<String> {
    let [dockerfile] = &shown("docker", "dockerfile")[..] else { panic!("the page shows one Dockerfile") };
    [instruction(dockerfile, "ENTRYPOINT"), instruction(dockerfile, "CMD")].concat()
}

#[tokio::test]
async fn the_entrypoint_runs_the_command_once() {
    let Some(hosts) = Hosts::new().await else { return };
    hosts.program("bin/import", "sleep 0.05");
    let ended = hosts.run(4, || hosts.command(&process_1(), &hosts.nodes()));
    let mut codes: Vec<_> = ended.iter().map(|ended| ended.status.code().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 75, 75, 75]);
    assert_eq!(hosts.log().len(), 1);
}

#[tokio::test]
async fn docker_stop_reaches_the_command_and_the_lock_is_kept_until_it_has_ended() {
    let Some(hosts) = Hosts::new().await else { return };
    let work = "trap 'log stopping; until [ -e enough ]; do sleep 0.05; done; exit 4' TERM\nlog started\n\
                while :; do sleep 0.05; done";
    hosts.program("bin/import", work);
    // Without a slot, so that the lock is free afterwards.
    let words: Vec<String> =
        process_1().into_iter().filter(|word| word != "--at-least" && word != "5min").collect();
    let container = hosts.start(hosts.command(&words, &hosts.nodes()));
    hosts.logged("started", 1).await;
    container.signal(Signal::SIGTERM);
    hosts.logged("stopping", 1).await;
    assert_eq!(hosts.holder("nightly-import"), Some(container.pid()));
    std::fs::write(hosts.path("enough"), "").unwrap();
    assert_eq!(container.ended().await.status.code(), Some(4));
    hosts.free("nightly-import").await;
}

#[tokio::test]
async fn docker_stop_ends_a_container_that_waits() {
    let Some(hosts) = Hosts::new().await else { return };
    hosts.program("bin/import", "exec sleep 1000");
    let holder = hosts.start(hosts.command(&process_1(), &hosts.nodes()));
    hosts.logged("", 1).await;
    let words: Vec<String> = process_1();
    let mut waits =
        hosts.start(hosts.command(&[&words[..2], &["-vv".to_owned()], &words[2..]].concat(), &hosts.nodes()));
    waits.says("not acquired");
    waits.signal(Signal::SIGTERM);
    assert_eq!(waits.ended().await.status.code(), Some(143));
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.ended().await.status.code(), Some(143));
}

#[tokio::test]
async fn the_file_for_compose_is_valid_and_its_service_leads_on_one_host() {
    let Some(hosts) = Hosts::new().await else { return };
    hosts.program("bin/scheduler", "log started\nexec sleep 1000");
    let [text] = &shown("docker", "yaml")[..] else { panic!("the page shows one file for Compose") };
    let Some(documents) = checked("compose-spec", &hosts.here(text)) else { return };
    let service = &documents[0]["services"]["scheduler"];
    let words = [strings(&service["entrypoint"]), strings(&service["command"])].concat();
    let mut environment: HashMap<String, String> = HashMap::new();
    for (name, value) in service["environment"].as_object().unwrap() {
        environment.insert(name.clone(), value.as_str().unwrap().to_owned());
    }
    let secret = environment.remove("QUORLOCK_PASSWORD_FILE").expect("the password is a secret");
    let name = secret.strip_prefix("/run/secrets/").expect("where Compose mounts secrets");
    assert!(strings(&service["secrets"]).contains(&name.to_owned()));
    assert!(documents[0]["secrets"][name].is_object());
    // The servers of the test have no password.
    let started: Vec<_> = (0..2).map(|_| hosts.start(hosts.command(&words, &environment))).collect();
    hosts.logged("started", 1).await;
    hosts.waited_for("web-scheduler", 1).await;
    for host in started {
        host.signal(Signal::SIGTERM);
        assert_eq!(host.ended().await.status.code(), Some(143));
    }
}
