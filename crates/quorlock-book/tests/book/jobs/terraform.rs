//! Terraform under a lock: the real program if it is installed, else a stand-in.

use std::fs;
use std::process::Command;

use super::hosts::{Host, Hosts};
use super::shown;
use crate::skip;

const RESOURCE: &str = "terraform/production";

/// A resource that each run replaces, which takes a moment. It needs no provider from a registry.
const MAIN: &str = r#"terraform {
  required_version = ">= 1.4"
}

resource "terraform_data" "web" {
  triggers_replace = timestamp()
  provisioner "local-exec" {
    command = "mkdir busy && sleep 0.2 && rmdir busy && echo applied >> log"
  }
}
"#;

/// Plans and applies as much as the test asserts.
const STAND_IN: &str = r#"#!/bin/sh
case "$1 $*" in
    plan*-out=plan*) echo plan > plan ;;
    apply*) mkdir busy && sleep 0.2 && rmdir busy && echo applied >> log ;;
esac
"#;

/// Returns the command lines of the page that begin so.
fn line(word: &str) -> String {
    let lines = shown("ansible-terraform", "bash").concat();
    lines.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("no line with {word}")).to_owned()
}

fn prepare(hosts: &Hosts) {
    fs::write(hosts.path("main.tf"), MAIN).unwrap();
    let mut init = Command::new("terraform");
    init.args(["init", "-input=false"]).current_dir(hosts.path("")).env("CHECKPOINT_DISABLE", "1");
    let ready = init.output().is_ok_and(|ended| ended.status.success());
    if !ready {
        skip("no terraform 1.4 or newer is installed; a stand-in of this name runs under the lock");
        let path = hosts.program("bin/terraform", "");
        fs::write(path, STAND_IN).unwrap();
    }
}

fn start(hosts: &Hosts, line: &str) -> Host {
    let words = ["sh", "-c", line].map(str::to_owned);
    let mut command = hosts.command(&words, &hosts.nodes());
    // The real program may be anywhere.
    let path = format!("{}:{}", hosts.path("bin").display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).env("CHECKPOINT_DISABLE", "1").env("SHELL", "/bin/sh");
    hosts.start(command)
}

#[tokio::test]
async fn apply_runs_one_at_a_time() {
    let Some(hosts) = Hosts::new().await else { return };
    prepare(&hosts);
    let line = line("-auto-approve");
    for started in [start(&hosts, &line), start(&hosts, &line)] {
        let ended = started.end();
        assert!(ended.status.success(), "{ended:?}");
    }
    assert_eq!(hosts.log(), ["applied", "applied"], "one after the other");
    hosts.free(RESOURCE).await;
}

#[tokio::test]
async fn a_plan_and_its_apply_run_under_one_lock() {
    let Some(hosts) = Hosts::new().await else { return };
    prepare(&hosts);
    let line = line("-out=plan");
    for started in [start(&hosts, &line), start(&hosts, &line)] {
        let ended = started.end();
        assert!(ended.status.success(), "a plan of the other run would be stale: {ended:?}");
    }
    assert_eq!(hosts.log(), ["applied", "applied"]);
}
