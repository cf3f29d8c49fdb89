//! The playbook with a lock for its block, and a playbook under a lock, run by Ansible on this machine.

use std::fs;
use std::path::Path;
use std::process::Output;

use nix::sys::signal::Signal;

use super::hosts::{Host, Hosts};
use super::shown;
use super::tools::packages;

const RESOURCE: &str = "deploy/web";
const SITE: &str = "- hosts: all\n  gather_facts: false\n  connection: local\n  tasks:\n\
                    \x20   - ansible.builtin.command: ./restart.sh\n";

/// Puts the files of the page into the folder.
fn prepare(hosts: &Hosts, packages: &Path) {
    let [playbook] = &shown("ansible-terraform", "yaml")[..] else { panic!("the page shows one playbook") };
    fs::write(hosts.path("restart.yml"), playbook).unwrap();
    fs::write(hosts.path("site.yml"), SITE).unwrap();
    fs::write(
        hosts.path("inventory.ini"),
        "web-1 ansible_python_interpreter=\"{{ ansible_playbook_python }}\"\n",
    )
    .unwrap();
    let ansible = hosts.program("bin/ansible-playbook", "");
    let line = format!("PYTHONPATH={} exec python3 -m ansible playbook \"$@\"", packages.display());
    fs::write(ansible, format!("#!/bin/sh\n{line}\n")).unwrap();
}

fn start(hosts: &Hosts, line: &str) -> Host {
    let mut command = hosts.command(&["sh", "-c", line].map(str::to_owned), &hosts.nodes());
    // `python3` may come from elsewhere than the usual folders.
    let path = format!("{}:{}", hosts.path("bin").display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).env("ANSIBLE_NOCOLOR", "1").env("ANSIBLE_LOCALHOST_WARNING", "false");
    command.env("LC_ALL", "C.UTF-8");
    hosts.start(command)
}

fn output(ended: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr))
}

#[tokio::test]
async fn the_playbook_runs_its_block_under_the_lock_and_releases_it_also_after_a_failure() {
    let Some(hosts) = Hosts::new().await else { return };
    let Some(packages) = packages("ansible") else { return };
    prepare(&hosts, &packages);
    let state = "quorlock status --json deploy/web | grep -o '\"state\":\"[a-z]*\"' | head -n 1";
    hosts.program("restart.sh", &format!("log \"$({state})\""));
    let ended = start(&hosts, "exec ansible-playbook restart.yml").ended().await;
    assert!(ended.status.success(), "{}", output(&ended));
    assert_eq!(hosts.log(), ["", "\"state\":\"held\""]);
    assert_eq!(hosts.status(RESOURCE)["state"], "free", "released before the playbook ends");

    hosts.program("restart.sh", "exit 5");
    let failed = start(&hosts, "exec ansible-playbook restart.yml").ended().await;
    assert_eq!(failed.status.code(), Some(2), "{}", output(&failed));
    assert_eq!(hosts.status(RESOURCE)["state"], "free");
}

#[tokio::test]
async fn the_playbook_fails_while_another_client_holds_the_lock_or_when_it_is_taken_away() {
    let Some(hosts) = Hosts::new().await else { return };
    let Some(packages) = packages("ansible") else { return };
    prepare(&hosts, &packages);
    hosts.program("restart.sh", "");
    let holder = start(&hosts, "exec quorlock run -n deploy/web -- sleep 1000");
    quorlock_testkit::until("a holder", async || hosts.holder(RESOURCE).is_some()).await;
    let text = fs::read_to_string(hosts.path("restart.yml")).unwrap();
    fs::write(hosts.path("soon.yml"), text.replace("--wait 10min", "--wait 0s")).unwrap();
    let refused = start(&hosts, "exec ansible-playbook soon.yml").ended().await;
    assert!(
        !refused.status.success() && output(&refused).contains("Acquire the lock"),
        "{}",
        output(&refused)
    );
    assert_eq!(hosts.log(), Vec::<String>::new(), "no task of the block has run");
    holder.signal(Signal::SIGTERM);
    holder.ended().await;

    // As if the lock were lost: `hold` notices at its next renewal.
    hosts.program(
        "restart.sh",
        "quorlock release --force --yes deploy/web\nwhile kill -0 $(cat */pid); do sleep 0.1; done",
    );
    fs::write(hosts.path("soon.yml"), text.replace("state: directory", "state: directory\n        path: ."))
        .unwrap();
    let lost = start(&hosts, "QUORLOCK_TTL=2s exec ansible-playbook soon.yml").ended().await;
    assert!(!lost.status.success(), "{}", output(&lost));
    assert!(output(&lost).contains("Check that the lock was held"), "{}", output(&lost));
}

#[tokio::test]
async fn a_playbook_runs_under_the_lock() {
    let Some(hosts) = Hosts::new().await else { return };
    let Some(packages) = packages("ansible") else { return };
    prepare(&hosts, &packages);
    hosts.program("restart.sh", "mkdir busy && sleep 0.2 && rmdir busy");
    let lines = shown("ansible-terraform", "bash").concat();
    let line = lines.lines().find(|line| line.contains("ansible-playbook")).unwrap();
    for started in [start(&hosts, line), start(&hosts, line)] {
        let ended = started.ended().await;
        assert!(ended.status.success(), "{}", output(&ended));
    }
    assert_eq!(hosts.log().len(), 2);
    hosts.free(RESOURCE).await;
}
