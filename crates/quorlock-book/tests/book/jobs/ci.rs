//! The file for GitHub Actions: its schema, and its script, as the runner runs and cancels it.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::hosts::{Host, Hosts};
use super::shown;
use super::tools::{check, checked, read};

const RESOURCE: &str = "deploy/production";

/// The script of a job.
struct Script {
    lines: String,
    environment: HashMap<String, String>,
}

impl Script {
    fn of_github(hosts: &Hosts) -> Option<Script> {
        let workflow = read(&shown("ci", "yaml")[0])?.remove(0);
        let steps = workflow["jobs"]["deploy"]["steps"].as_array().unwrap();
        let step = steps.iter().find(|step| step["run"].is_string()).expect("a step with a script");
        // The runner replaces the variables and secrets.
        let names: Vec<&String> = step["env"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["QUORLOCK_NODES", "QUORLOCK_PASSWORD"]);
        Some(Script { lines: text(&step["run"]), environment: hosts.nodes() })
    }

    /// Starts it as a runner does: in a file that a shell reads.
    fn start(&self, hosts: &Hosts) -> Host {
        hosts.start(self.command(hosts))
    }

    fn command(&self, hosts: &Hosts) -> Command {
        let script = hosts.path("script.sh");
        // Once: a shell may be reading it.
        if fs::read_to_string(&script).ok().as_ref() != Some(&self.lines) {
            fs::write(script, &self.lines).unwrap();
        }
        hosts.command(&["bash", "-e", "script.sh"].map(str::to_owned), &self.environment)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Runs two jobs at the same time: their deploys do not overlap.
fn one_at_a_time(hosts: &Hosts, script: &Script) {
    hosts.program("deploy.sh", "mkdir busy || { log overlaps; exit 1; }\nsleep 0.2\nrmdir busy");
    let jobs = [script.start(hosts), script.start(hosts)];
    for job in jobs {
        let ended = job.end();
        assert!(ended.status.success(), "{ended:?}");
    }
    assert_eq!(hosts.log(), ["", ""], "two deploys, one after the other");
}

/// A deploy that ends on `signal`, after it has cleaned up.
fn deploy(hosts: &Hosts, signal: &str) {
    let work = format!("trap 'log cleaning; exit 3' {signal}\nlog started\nwhile :; do sleep 0.05; done");
    hosts.program("deploy.sh", &work);
}

#[test]
fn the_file_of_the_page_is_valid_and_a_misspelt_key_is_not() {
    let [workflow] = &shown("ci", "yaml")[..] else { panic!("the page shows one file") };
    if checked("github-workflows", workflow).is_none() {
        return;
    }
    let refused = check("github-workflows", &workflow.replace("timeout-minutes", "timeout-minuts")).unwrap();
    assert!(!refused.status.success(), "{refused:?}");
}

#[tokio::test]
async fn the_workflow_deploys_one_at_a_time() {
    let Some(hosts) = Hosts::new().await else { return };
    let Some(script) = Script::of_github(&hosts) else { return };
    one_at_a_time(&hosts, &script);
}

#[tokio::test]
async fn a_cancelled_workflow_releases_the_lock_when_the_deploy_has_cleaned_up() {
    let Some(hosts) = Hosts::new().await else { return };
    let Some(script) = Script::of_github(&hosts) else { return };
    deploy(&hosts, "INT");
    let job = script.start(&hosts);
    hosts.logged("started", 1).await;
    // Only to the process that the runner has started.
    job.signal(Signal::SIGINT);
    assert_eq!(job.ended().await.status.code(), Some(3));
    hosts.logged("cleaning", 1).await;
    hosts.free(RESOURCE).await;
}

#[tokio::test]
async fn without_exec_the_signals_of_a_cancelled_workflow_do_not_reach_the_deploy() {
    let Some(hosts) = Hosts::new().await else { return };
    let Some(mut script) = Script::of_github(&hosts) else { return };
    script.lines =
        format!("{}\necho deployed", script.lines.strip_prefix("exec ").expect("the page has `exec`"));
    deploy(&hosts, "INT TERM");
    let mut job = script.start(&hosts);
    hosts.logged("started", 1).await;
    job.signal(Signal::SIGINT);
    job.signal(Signal::SIGTERM);
    job.exited().await;
    assert!(!hosts.log().contains(&"cleaning".to_owned()), "{:?}", hosts.log());
    // It goes on without the shell, which is why the runner then kills all descendants.
    let quorlock = hosts.holder(RESOURCE).expect("the lock is still held");
    kill(Pid::from_raw(i32::try_from(quorlock).unwrap()), Signal::SIGTERM).unwrap();
    hosts.logged("cleaning", 1).await;
    hosts.free(RESOURCE).await;
}

#[tokio::test]
async fn the_second_signal_of_a_cancelled_workflow_kills_the_deploy() {
    let Some(hosts) = Hosts::new().await else { return };
    let Some(script) = Script::of_github(&hosts) else { return };
    hosts.program("deploy.sh", "trap 'log asked' INT TERM\nlog started\nwhile :; do sleep 0.05; done");
    let mut job = script.start(&hosts);
    hosts.logged("started", 1).await;
    job.signal(Signal::SIGINT);
    hosts.logged("asked", 1).await;
    // The runner sends it after 7.5 s. From one second on it counts as a second request.
    job.signalled_until_exit(Signal::SIGTERM).await;
    assert_eq!(job.ended().await.status.code(), Some(137));
    hosts.free(RESOURCE).await;
}

#[tokio::test]
async fn a_job_that_waits_is_cancelled_and_one_without_variables_fails() {
    let Some(hosts) = Hosts::new().await else { return };
    let Some(script) = Script::of_github(&hosts) else { return };
    deploy(&hosts, "INT");
    let holder = script.start(&hosts);
    hosts.logged("started", 1).await;
    let verbose = script.lines.replace("quorlock run", "quorlock run -vv");
    let waiting = Script { lines: verbose, environment: script.environment.clone() };
    let mut waits = waiting.start(&hosts);
    waits.says("not acquired");
    waits.signal(Signal::SIGINT);
    assert_eq!(waits.ended().await.status.code(), Some(130));
    holder.signal(Signal::SIGINT);
    holder.ended().await;
    hosts.logged("started", 1).await;

    let fork = Script { lines: script.lines, environment: HashMap::new() };
    assert_eq!(fork.start(&hosts).end().status.code(), Some(78));
}
