//! The manifests: their schema, and the commands of their containers as the kubelet would start them.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use nix::sys::signal::Signal;
use quorlock_testkit::until;
use serde_json::Value;

use super::hosts::{Host, Hosts, leader};
use super::shown;
use super::tools::{check, checked, read, strings};

const RESOURCE: &str = "web-scheduler";

/// Returns all manifests of the page, as `cat` would join its files.
fn page() -> String {
    let blocks = shown("kubernetes", "yaml");
    // The changes follow the Deployment that they belong to.
    let (service, changes) = blocks[3].split_once("---\n").expect("a Service and the changed fields");
    [&blocks[0], &blocks[1], service, &blocks[2], changes].map(str::to_owned).join("---\n")
}

fn of_kind<'a>(manifests: &'a [Value], kind: &str) -> Vec<&'a Value> {
    manifests.iter().filter(|manifest| manifest["kind"] == kind).collect()
}

/// A container of a manifest.
struct Container<'a> {
    container: &'a Value,
    environment: HashMap<String, String>,
}

impl<'a> Container<'a> {
    fn of(hosts: &Hosts, manifests: &'a [Value], pod: &'a Value) -> Container<'a> {
        let container = &pod["spec"]["containers"][0];
        let mut environment = HashMap::new();
        for source in container["envFrom"].as_array().unwrap() {
            let (kind, data) = if source["configMapRef"].is_object() {
                ("ConfigMap", "data")
            } else {
                ("Secret", "stringData")
            };
            let name = &source[if kind == "Secret" { "secretRef" } else { "configMapRef" }]["name"];
            let found = of_kind(manifests, kind).into_iter().find(|found| found["metadata"]["name"] == *name);
            let found = found.unwrap_or_else(|| panic!("there is no {kind} {name}"));
            for (name, value) in found[data].as_object().unwrap() {
                environment.insert(name.clone(), hosts.here(value.as_str().unwrap()));
            }
        }
        // The servers of the test have no password.
        assert!(environment.remove("QUORLOCK_PASSWORD").is_some(), "the password is in the Secret");
        Container { container, environment }
    }

    fn command(&self, hosts: &Hosts) -> Command {
        hosts.command(&strings(&self.container["command"]), &self.environment)
    }
}

#[tokio::test]
async fn the_manifests_of_the_page_are_valid_and_an_unknown_field_is_not() {
    // The second Deployment is the first with the changes for a Service.
    let Some(manifests) = checked("kubernetes", &page()) else { return };
    let kinds: Vec<&str> = manifests.iter().map(|manifest| manifest["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ConfigMap", "Secret", "CronJob", "Service", "Deployment", "Deployment"]);
    let strategy = &manifests[5]["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(strategy["maxUnavailable"], "100%", "less would never replace the leader");
    let misspelt = page().replace("concurrencyPolicy:", "concurencyPolicy:");
    let refused = check("kubernetes", &misspelt).unwrap();
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("concurencyPolicy")
    );
}

#[tokio::test]
async fn the_cron_job_runs_once_over_all_clusters_and_the_others_are_complete() {
    let Some(hosts) = Hosts::new().await else { return };
    hosts.program("bin/import", "sleep 0.05");
    let Some(manifests) = read(&page()) else { return };
    let pod = &of_kind(&manifests, "CronJob")[0]["spec"]["jobTemplate"]["spec"]["template"];
    let container = Container::of(&hosts, &manifests, pod);
    for ended in hosts.run(6, || container.command(&hosts)) {
        assert!(ended.status.success(), "{ended:?}");
    }
    assert_eq!(hosts.log().len(), 1, "one run");
}

#[tokio::test]
async fn the_cron_job_is_tried_again_only_where_the_slot_is_free() {
    let Some(hosts) = Hosts::new().await else { return };
    hosts.program("bin/import", "exit 7");
    let Some(manifests) = read(&page()) else { return };
    let job = &of_kind(&manifests, "CronJob")[0]["spec"]["jobTemplate"]["spec"];
    let rule = &job["podFailurePolicy"]["rules"][0];
    assert_eq!((&rule["action"], &rule["onExitCodes"]["operator"]), (&"FailJob".into(), &"NotIn".into()));
    let again = rule["onExitCodes"]["values"].as_array().unwrap().clone();
    let mut container = Container::of(&hosts, &manifests, &job["template"]);

    let failed = hosts.start(container.command(&hosts)).end();
    assert_eq!(failed.status.code(), Some(7), "{failed:?}");
    assert!(!again.contains(&7.into()), "a second pod would be complete");
    let second = hosts.start(container.command(&hosts)).end();
    assert!(second.status.success(), "what the rule prevents: {second:?}");
    assert_eq!(hosts.log().len(), 1);

    let free = ["quorlock", "release", "--force", "--yes", "nightly-import"].map(str::to_owned);
    assert!(hosts.start(hosts.command(&free, &hosts.nodes())).end().status.success());
    for server in hosts.servers.iter().skip(1) {
        server.kill();
    }
    container.environment.insert("QUORLOCK_WAIT".to_owned(), "1s".to_owned());
    let without_quorum = hosts.start(container.command(&hosts)).end();
    let code = without_quorum.status.code().unwrap();
    assert_eq!(code, 69, "{without_quorum:?}");
    assert!(again.contains(&code.into()));
}

#[tokio::test]
async fn one_pod_of_the_deployment_leads_and_only_it_is_ready_for_the_service() {
    let Some(hosts) = Hosts::new().await else { return };
    hosts.program(
        "bin/scheduler",
        "trap 'log stopped; exit 0' TERM\nlog started\nwhile :; do sleep 0.05; done",
    );
    let Some(manifests) = read(&page()) else { return };
    let [all, served] = of_kind(&manifests, "Deployment")[..] else { panic!("two forms") };
    let container = Container::of(&hosts, &manifests, &all["spec"]["template"]);
    let of = |deployment: &Value| {
        let probe = &deployment["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"];
        assert_eq!(probe["port"], container.container["ports"][0]["name"]);
        probe["path"].as_str().unwrap().to_owned()
    };
    let (running, leading) = (of(all), of(served));
    let replicas = all["spec"]["replicas"].as_u64().unwrap();
    let start = || {
        let mut words = strings(&container.container["command"]);
        let address =
            words.iter_mut().find(|word| *word == "0.0.0.0:9090").expect("the address of the probe");
        // Any port, which the log tells.
        "127.0.0.1:0".clone_into(address);
        words.insert(2, "-v".to_owned());
        let mut pod = hosts.start(hosts.command(&words, &container.environment));
        let port = port(&pod.says("metrics are served"));
        (pod, port)
    };
    let (mut pods, ports): (Vec<Host>, Vec<u16>) = (0..replicas).map(|_| start()).unzip();
    hosts.logged("started", 1).await;
    let ready = |path: &str| ports.iter().filter(|port| answer(**port, path) == Some(200)).count();
    assert_eq!(ready(&running), pods.len(), "each pod is ready as soon as quorlock runs");
    until("a ready leader", async || ready(&leading) == 1).await;
    let standbys = ports.iter().filter(|port| answer(**port, &leading) == Some(503)).count();
    assert_eq!(standbys, pods.len() - 1);

    // The kubelet ends the pod.
    let first = leader(&hosts, RESOURCE, &mut pods).await;
    first.signal(Signal::SIGTERM);
    assert_eq!(first.ended().await.status.code(), Some(0));
    hosts.logged("started", 2).await;
    until("another ready leader", async || ready(&leading) == 1).await;
    let next = leader(&hosts, RESOURCE, &mut pods).await;
    hosts.waited_for(RESOURCE, pods.len()).await;
    for pod in pods {
        // A standby.
        pod.signal(Signal::SIGTERM);
        assert_eq!(pod.ended().await.status.code(), Some(143));
    }
    next.signal(Signal::SIGTERM);
    next.ended().await;
}

/// Reads the port from the URL in a line of the log.
fn port(line: &str) -> u16 {
    let after = line.split("127.0.0.1:").nth(1).unwrap_or_else(|| panic!("no address in {line}"));
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

/// Returns the status of an HTTP GET.
fn answer(port: u16, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split(' ').nth(1)?.parse().ok()
}
