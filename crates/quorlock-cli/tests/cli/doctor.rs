//! `quorlock doctor`, on real servers with real faults.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what does not go as expected fails the test"
)]

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quorlock_testkit::{
    ClosedPort, Kind, Proxy, Resp, Server, Servers, Setup, Way, eventually, outward, patience, until,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Ended, Quorlock, servers};

fn doctor(urls: &[String], options: &[&str]) -> Quorlock {
    Quorlock::new([&["doctor"], options].concat()).env("QUORLOCK_NODES", &urls.join(","))
}

fn findings(ended: &Ended) -> Vec<Value> {
    ended.json()["findings"].as_array().unwrap().clone()
}

/// Returns a part of a finding.
fn text(finding: &Value, part: &str) -> String {
    finding[part].as_str().unwrap_or_default().to_owned()
}

/// Returns the codes of the findings.
fn found(ended: &Ended) -> BTreeSet<String> {
    findings(ended).iter().map(|finding| text(finding, "finding")).collect()
}

/// Returns the findings about the node whose address contains `name`, with severities.
fn found_of(ended: &Ended, name: &str) -> BTreeSet<(String, String)> {
    let mut all = findings(ended);
    all.retain(|finding| text(finding, "node").contains(name));
    all.iter().map(|finding| (text(finding, "finding"), text(finding, "severity"))).collect()
}

/// Returns the finding with this code.
fn finding(ended: &Ended, code: &str) -> Value {
    let found = findings(ended).into_iter().find(|finding| finding["finding"] == code);
    found.unwrap_or_else(|| panic!("no finding `{code}`: {ended:#?}"))
}

/// Starts one server with these options; returns `None`, with a message, if none is installed.
async fn one(setup: Setup) -> Option<Servers> {
    if Kind::all_found().is_empty() {
        servers(0).await?;
    }
    Some(setup.start(1).await.unwrap())
}

/// Starts this number of servers that store each write before they answer.
async fn durable(count: usize) -> Option<Servers> {
    one(Servers::setup().durable()).await?;
    Some(Servers::setup().durable().start(count).await.unwrap())
}

async fn with(options: &[&str]) -> Option<Servers> {
    // One password for all: some replicate others.
    one(Servers::setup().password("Qq7Zz9").options(options)).await
}

async fn set(server: &Server, words: &[&str]) {
    let answer = server.command(words).await.unwrap();
    assert!(!matches!(answer, Resp::Error(_)), "{words:?}: {answer}");
}

/// Waits until `INFO` of the server contains `what`.
async fn says(server: &Server, what: &str) {
    let reports = async || server.command(&["INFO"]).await.is_ok_and(|info| info.to_string().contains(what));
    until(what, reports).await;
}

#[tokio::test]
async fn every_fault_that_can_be_made_here_is_named() {
    let Some(master) = with(&[]).await else { return };
    let replica = with(&[]).await.unwrap();
    let promoted = with(&[]).await.unwrap();
    for server in [&replica[0], &promoted[0]] {
        set(server, &["REPLICAOF", "127.0.0.1", &master[0].port().to_string()]).await;
        says(server, "master_link_status:up").await;
    }
    set(&promoted[0], &["REPLICAOF", "NO", "ONE"]).await;
    let evicting = with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await.unwrap();
    let full = with(&["--maxmemory", "1mb", "--maxmemory-policy", "noeviction"]).await.unwrap();
    let member = with(&["--cluster-enabled", "yes"]).await.unwrap();
    let every_second = with(&["--appendonly", "yes", "--appendfsync", "everysec"]).await.unwrap();
    let locked = one(Servers::setup().password("Qq7Zz9")).await.unwrap();
    let no_scripts = with(&["--rename-command", "EVAL", ""]).await.unwrap();
    let mute = with(&["--rename-command", "HELLO", ""]).await.unwrap();
    let silent = with(&["--rename-command", "CONFIG", ""]).await.unwrap();
    let stopped = with(&[]).await.unwrap();
    stopped[0].freeze().unwrap();
    let closed_port = ClosedPort::bind().unwrap();
    let closed = closed_port.address().unwrap();
    let far = with(&[]).await.unwrap();
    let proxy = Proxy::before(&far[0]).await.unwrap();
    proxy.delay(Way::ToServer, Duration::from_millis(25));
    let barred = with(&[]).await.unwrap();
    let words = ["ACL", "SETUSER", "anna", "on", ">pw", "~*", "+@all", "-zremrangebyrank"];
    set(&barred[0], &words).await;
    let barred_url = barred[0].url_as("anna:pw");
    let twin = master[0].url().replace("127.0.0.1", "localhost");

    let of = |servers: &Servers| servers[0].url();
    let urls = [
        of(&master),
        twin,
        of(&replica),
        of(&promoted),
        of(&evicting),
        of(&full),
        of(&member),
        of(&every_second),
        locked[0].url().replace(":Qq7Zz9@", ""),
        of(&no_scripts),
        of(&mute),
        of(&silent),
        of(&stopped),
        format!("redis://{closed}"),
        proxy.url(),
        barred_url,
    ];
    // Nodes of this age do not vote yet; a TTL this short leaves the far one no time.
    let ended = doctor(&urls, &["--json", "--ttl", "100ms"]).end().await.expect(69);
    let of = |servers: &Servers| found_of(&ended, &format!(":{}", servers[0].port()));
    let has = |found: BTreeSet<(String, String)>, finding: &str, severity: &str| {
        assert!(
            found.contains(&(finding.to_owned(), severity.to_owned())),
            "{finding}: {found:?}\n{ended:?}"
        );
    };
    has(found_of(&ended, "127.0.0.1"), "restarted", "warning");
    has(of(&master), "replicas", "warning");
    has(of(&replica), "replica", "warning");
    has(of(&promoted), "promoted", "warning");
    has(of(&evicting), "eviction", "unsafe");
    has(of(&full), "memory-full", "warning");
    has(of(&full), "lock-fails", "warning");
    has(of(&member), "cluster-member", "unsafe");
    has(of(&every_second), "not-persistent", "note");
    has(of(&locked), "login", "warning");
    has(of(&no_scripts), "missing-right", "warning");
    has(of(&mute), "no-hints", "note");
    has(of(&stopped), "unresponsive", "warning");
    has(found_of(&ended, &closed.to_string()), "unreachable", "warning");
    has(found_of(&ended, &proxy.address().to_string()), "short-ttl", "warning");
    has(of(&barred), "missing-right", "warning");
    for finding in ["no-quorum", "same-server", "even-nodes", "loopback"] {
        assert!(found(&ended).contains(finding), "{finding}: {ended:?}");
    }
    assert!(!ended.stdout.contains("pw@") && !ended.stdout.contains("Qq7Zz9"), "{ended:?}");

    // With the guard off, what was a matter of waiting is unsafe; what a server does not report is unknown.
    let unguarded = doctor(&urls, &["--json", "--restart-guard", "off"]).end().await;
    let of = |servers: &Servers| found_of(&unguarded, &format!(":{}", servers[0].port()));
    has(of(&master), "not-persistent", "unsafe");
    has(of(&every_second), "not-persistent", "unsafe");
    has(of(&every_second), "restarted", "unsafe");

    stopped[0].thaw().unwrap();
    for server in [&master[0], &evicting[0], &no_scripts[0], &mute[0], &far[0], &barred[0]] {
        let Resp::List(keys) = server.command(&["KEYS", "*"]).await.unwrap() else { panic!("a list") };
        // Like any client, it notes that it has met a recently started server, leaves a secret for inboxes, and raises counters.
        let stays = |key: &str| {
            [":quorlock:gate:", ":quorlock:fence:", "quorlock:inbox:secret"]
                .iter()
                .any(|kind| key.contains(kind))
        };
        let left: Vec<_> = keys.iter().filter(|key| !stays(&key.to_string())).collect();
        assert!(left.is_empty(), "the check-up left something behind: {left:?}");
    }
}

#[tokio::test]
async fn round_trips_are_numbers_for_programs_and_null_where_nothing_answers() {
    let Some(servers) = one(Servers::setup().durable()).await else { return };
    let closed_port = ClosedPort::bind().unwrap();
    let closed = closed_port.address().unwrap();
    let urls = [servers[0].url(), format!("redis://{closed}")];
    let ended = doctor(&urls, &["--json", "--restart-guard", "off"]).end().await;
    let report = ended.json();
    let [answers, silent] = [0, 1].map(|node| {
        ["round_trip_p50_us", "round_trip_p99_us"].map(|name| report["nodes"][node][name].clone())
    });
    let [median, p99] = answers.map(|micros| micros.as_u64().unwrap_or_default());
    assert!((1..=p99).contains(&median), "{ended:?}");
    assert_eq!(silent, [Value::Null, Value::Null], "{ended:?}");
}

#[tokio::test]
async fn hidden_facts_are_unknown() {
    let Some(servers) = one(Servers::setup().durable().options(&["--rename-command", "CONFIG", ""])).await
    else {
        return;
    };
    let ended = doctor(&servers.urls(), &["--json", "--restart-guard", "off"]).end().await.expect(79);
    let found = found_of(&ended, "127.0.0.1");
    assert!(found.contains(&("untold".to_owned(), "unknown".to_owned())), "{ended:?}");
    assert!(!found.iter().any(|(finding, _)| finding == "not-persistent"), "neither good nor bad: {ended:?}");
}

#[tokio::test]
async fn the_number_of_nodes_and_who_of_them_is_there_is_judged() {
    let Some(servers) = durable(4).await else { return };
    let urls = servers.urls();
    let of = async |count: usize, code: u8| {
        let options = ["--json", "--restart-guard", "off"];
        found(&doctor(&urls[..count], &options).end().await.expect(code))
    };
    assert!(of(1, 0).await.contains("one-node"));
    let two = of(2, 0).await;
    assert!(two.contains("few-nodes") && two.contains("even-nodes"), "{two:?}");
    let three = of(3, 0).await;
    assert!(
        !three.iter().any(|finding| finding.ends_with("-nodes") || finding.ends_with("spare")),
        "{three:?}"
    );
    assert!(of(4, 0).await.contains("even-nodes"));
    servers[1].kill();
    assert!(of(3, 0).await.contains("no-spare"));
    let strict = doctor(&urls[..3], &["--strict", "--restart-guard", "off"]).end().await.expect(79);
    assert!(strict.stdout.ends_with("locks can be held safely: 2 of 3 nodes vote, 2 needed\n"), "{strict:?}");
    servers[2].kill();
    assert!(of(3, 69).await.contains("no-quorum"));
}

#[tokio::test]
async fn five_sound_servers_are_called_safe_once_they_are_old_enough() {
    let Some(servers) = durable(5).await else { return };
    let urls = servers.urls();
    doctor(&urls, &[]).end().await.expect(69).shows("does not vote for another");

    // A second is the longest TTL here, so they are old enough in two or three.
    let examined = || doctor(&urls, &["--max-ttl", "1s", "--strict"]).end();
    shows(examined, 0, include_str!("snapshots/doctor_sound.txt")).await;
    let quiet = doctor(&urls, &["--max-ttl", "1s", "-q"]).end().await.expect(0);
    assert_eq!((quiet.stdout, quiet.stderr), (String::new(), String::new()));

    // The same five, without the guard: a server that keeps everything needs none.
    doctor(&urls, &["--restart-guard", "off"]).end().await.expect(0);
}

#[tokio::test]
async fn a_larger_max_ttl_of_another_client_is_what_keeps_nodes_from_voting() {
    let Some(servers) = servers(3).await else { return };
    let with = |words: &[&str]| Quorlock::new(words).on(&servers).env("QUORLOCK_RESTART_GUARD", "on");
    with(&["run", "-n", "--max-ttl", "1h", "job", "--", "true"]).end().await.expect(69);
    let ours = ["--max-ttl", "1s"];
    let examined = with(&[&["doctor", "--json"], &ours[..]].concat()).end().await.expect(69);
    assert!(
        found(&examined).is_superset(&["max-ttl", "no-quorum"].map(str::to_owned).into()),
        "{examined:?}"
    );
    // It does not wait for an hour.
    let refused = with(&[&["init"], &ours[..]].concat()).end().await.expect(69);
    for refused in
        [refused, with(&[&["run", "-n"], &ours[..], &["job", "--", "true"]].concat()).end().await.expect(69)]
    {
        assert!(refused.stderr.contains("max_ttl is 1s here, and another client has 1h"), "{refused:?}");
        assert!(refused.stderr.contains("delete the key `…:quorlock:gate:max-ttl`"), "{refused:?}");
    }
}

#[tokio::test]
async fn clients_with_another_key_prefix_are_named() {
    let Some(servers) = servers(3).await else { return };
    let urls = servers.urls();
    for prefix in ["ours:", "{theirs}", ""] {
        // Refused, since the servers are new. Each client leaves its note all the same.
        let job = Quorlock::new(["run", "-n", "--key-prefix", prefix, "job", "--", "true"]);
        job.env("QUORLOCK_NODES", &urls.join(",")).end().await.expect(69);
    }
    let examined = doctor(&urls, &["--json", "--key-prefix", "ours:"]).end().await;
    let mut all = findings(&examined);
    all.retain(|finding| finding["finding"] == "other-prefixes");
    let [finding] = &all[..] else { panic!("{all:?}") };
    assert_eq!(finding["severity"], "note");
    let evidence = text(finding, "evidence");
    assert!(evidence.contains("with no key prefix, the key prefix `{theirs}` in"), "{evidence}");
    assert!(!evidence.contains("ours:"), "{evidence}");
}

/// What keeps one server from voting: the words to it, those that undo it, and the finding. All are found only because
/// the check looks for anything that is wrong, and not for certain words.
const FAULTS: [(&[&str], &[&str], &str); 4] = [
    (
        &["ACL", "SETUSER", "ann", "resetpass", ">other"],
        &["ACL", "SETUSER", "ann", "resetpass", ">pw"],
        "login",
    ),
    (&["ACL", "SETUSER", "ann", "-zadd"], &["ACL", "SETUSER", "ann", "+zadd"], "missing-right"),
    (&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"], "replica"),
    (&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"], "memory-full"),
];

#[tokio::test]
async fn with_wait_it_ends_when_every_server_votes_and_not_while_one_is_misconfigured() {
    let Some(servers) = durable(3).await else { return };
    for server in servers.iter() {
        set(server, &["ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all"]).await;
    }
    let urls: Vec<_> = servers.iter().map(|server| server.url_as("ann:pw")).collect();
    let waiting = |options: &[&str]| doctor(&urls, &[&["--max-ttl", "1s", "--strict"], options].concat());
    let young = waiting(&["-q", "--wait", "forever"]).end().await.expect(0);
    assert_eq!((young.stdout, young.stderr), (String::new(), String::new()));
    for (fault, cure, finding) in FAULTS {
        set(&servers[0], fault).await;
        doctor(&urls, &["--max-ttl", "1s"]).end().await.expect(0);
        let over = waiting(&["--json", "--wait", "1ms"]).end().await.expect(79);
        assert!(found(&over).contains(finding), "{finding}: {over:?}");
        let running = waiting(&["--wait", "forever"]).start();
        let what = format!("a line about {finding}");
        until(&what, async || {
            let stderr = running.stderr();
            stderr.contains("waiting: 2 of 3 nodes vote, 2 needed (") && stderr.contains(finding)
        })
        .await;
        set(&servers[0], cure).await;
        let ended = running.end().await.expect(0);
        assert_eq!(ended.stderr.matches("waiting: ").count(), 1, "it is said once: {ended:?}");
    }
}

#[tokio::test]
async fn an_unsafe_deployment_is_shown_with_its_cures() {
    let Some(evicting) = with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]).await else {
        return;
    };
    let sound = Servers::setup().durable().start(2).await.unwrap();
    let urls = [evicting.urls(), sound.urls()].concat();
    let examined = || doctor(&urls, &["--restart-guard", "off"]).end();
    shows(examined, 79, include_str!("snapshots/doctor_unsafe.txt")).await;
    assert_eq!(examined().await.stderr, "", "findings are reported once");
}

/// Waits until the output is `wanted`: on a busy machine long round trips are found as well.
async fn shows<F: Future<Output = Ended>>(examined: impl Fn() -> F, code: i32, wanted: &str) {
    let mut seen = String::new();
    let as_wanted = eventually("the output", patience(), async || {
        let ended = examined().await;
        seen = format!("{:?}\n{}", ended.code, masked(&ended.stdout));
        seen == format!("{:?}\n{wanted}", Some(code))
    });
    let as_wanted = as_wanted.await;
    assert!(as_wanted.is_ok(), "{seen}");
}

/// Masks what differs between runs and between servers.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut hole = false;
    for line in text.lines() {
        hole = line.contains("known-hole") || (hole && line.trim_start().starts_with("cure:"));
        if hole {
            continue;
        }
        let line = line.replace("redis ", "server ").replace("valkey ", "server ");
        for word in line.split_whitespace() {
            let digits = |character: char| character.is_ascii_digit();
            let mut shown = String::new();
            for character in word.chars() {
                if !digits(character) {
                    shown.push(character);
                } else if !shown.ends_with('#') {
                    shown.push('#');
                }
            }
            let shown = shown.replace("#.#.#.#:#", "HOST:#").replace("ms", "µs").replace("#.#µs", "#µs");
            masked += &shown.replace("#.#s", "#s").replace("+#", "-#");
            masked.push(' ');
        }
        masked = masked.trim_end_matches(' ').to_owned() + "\n";
    }
    masked
}

#[tokio::test]
async fn a_machine_that_several_nodes_share_is_seen_and_so_is_what_can_be_overheard() {
    let Some(address) = outward() else {
        println!("skipped: this machine has no address but loopback");
        return;
    };
    let open = ["--bind", "0.0.0.0", "--protected-mode", "no"];
    let without = |options: &[&str]| one(Servers::setup().without_password().options(options));
    let Some(first) = without(&open).await else { return };
    let second = without(&open).await.unwrap();
    let protected = without(&["--bind", "0.0.0.0", "--protected-mode", "yes"]).await.unwrap();
    let urls: Vec<_> = [&first, &second, &protected]
        .iter()
        .map(|servers| format!("redis://{address}:{}", servers[0].port()))
        .collect();
    let ended = doctor(&urls, &["--json", "--restart-guard", "off"]).end().await;
    let found = found(&ended);
    for finding in ["shared-host", "plain-text", "protected-mode"] {
        assert!(found.contains(finding), "{finding}: {ended:?}");
    }
    assert!(!found.contains("loopback") && !found.contains("login"), "{ended:?}");
}

#[tokio::test]
async fn a_finding_is_logged_once_per_connection_with_its_cure() {
    let Some(evicting) = with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await else {
        return;
    };
    let url = evicting[0].url();
    // Several requests over one connection.
    let run =
        Quorlock::new(["run", "--restart-guard", "off", "job", "--", "true"]).env("QUORLOCK_NODES", &url);
    let ended = run.end().await.expect(0);
    assert_eq!(ended.stderr.matches("may evict locks").count(), 1, "{ended:?}");
    assert!(ended.stderr.contains("maxmemory-policy noeviction"), "the cure: {ended:?}");
}

/// A Sentinel, which needs its own configuration file and stores no keys.
struct Sentinel(Child);

impl Sentinel {
    /// Starts one with these settings; returns its port, too. `None` if no server is installed.
    fn start(folder: &TempDir, settings: &str) -> Option<(Sentinel, u16)> {
        let Some(Kind::Program { path, .. }) = Kind::all_found().into_iter().next() else { return None };
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let file = folder.path().join(format!("sentinel-{port}.conf"));
        std::fs::write(&file, format!("port {port}\nbind 127.0.0.1\n{settings}\n")).unwrap();
        let mut command = Command::new(path);
        command.arg(&file).arg("--sentinel").current_dir(folder);
        Some((Sentinel(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()), port))
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn a_sentinel_differs_from_its_master() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_sentinel, port)) = Sentinel::start(&folder, "protected-mode no") else { return };
    let urls = [format!("redis://127.0.0.1:{port}")];
    let examined = || doctor(&urls, &["--json"]).end();
    until("the Sentinel to be recognised", async || found(&examined().await).contains("sentinel")).await;
}

/// Returns the address of a service whose Sentinels are at these ports.
fn service_at(ports: &[u16]) -> [String; 1] {
    let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    [format!("redis+sentinel://{}/orders", hosts.join(","))]
}

#[tokio::test]
async fn a_service_whose_sentinels_are_dead_is_unreachable() {
    // Nothing listens at the first ports of a machine.
    let ended = doctor(&service_at(&[1, 2, 3]), &["--json"]).end().await;
    let evidence = text(&finding(&ended, "unreachable"), "evidence");
    let named =
        "the Sentinels at redis://127.0.0.1:1, redis://127.0.0.1:2, redis://127.0.0.1:3: unreachable: ";
    assert!(evidence.contains(named), "{evidence}");
    assert!(!found(&ended).contains("failed"), "{ended:?}");
}

#[tokio::test]
async fn a_service_whose_sentinels_refuse_the_password_lacks_a_login() {
    let folder = tempfile::tempdir().unwrap();
    let started = [(); 3].map(|()| Sentinel::start(&folder, "requirepass Qq7Zz9"));
    let (_sentinels, ports): (Vec<_>, Vec<_>) = started.into_iter().flatten().unzip();
    if ports.is_empty() {
        return;
    }
    for (password, refusal) in [("", "it requires a password"), ("wrong", "it rejects the password")] {
        let [url] = service_at(&ports);
        let urls = [format!("{url}?sentinel_password={password}")];
        let examined = || doctor(&urls, &["--json"]).end();
        until("the Sentinels to refuse", async || found(&examined().await).contains("login")).await;
        let ended = examined().await;
        let [evidence, cure] = ["evidence", "cure"].map(|part| text(&finding(&ended, "login"), part));
        assert!(evidence.contains("the Sentinels at") && evidence.contains(refusal), "{evidence}");
        assert!(cure.contains("sentinel_password"), "the servers' password is another: {cure}");
        assert!(!found(&ended).contains("failed"), "{ended:?}");
    }
}

#[tokio::test]
async fn a_hung_server_of_any_kind_is_told_from_one_that_is_down() {
    // The system accepts connections for a process that does not.
    let hung: Vec<_> = (0..3).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    let down: Vec<_> = (0..3).map(|_| ClosedPort::bind().unwrap()).collect();
    let schemes = ["redis://", "postgres://ann:pw@", "mysql://ann:pw@"];
    let hung = hung.iter().map(|listener| listener.local_addr().unwrap().to_string());
    let down = down.iter().map(|port| port.address().unwrap().to_string());
    let url = |(scheme, address): (&str, String)| {
        let database = if scheme == "redis://" { "" } else { "/locks" };
        format!("{scheme}{address}{database}")
    };
    let urls: Vec<_> = schemes.into_iter().zip(hung).chain(schemes.into_iter().zip(down)).map(url).collect();
    let ended = doctor(&urls, &["--json"]).end().await.expect(69);
    for (number, url) in urls.iter().enumerate() {
        let finding = if number < 3 { "unresponsive" } else { "unreachable" };
        let found = found_of(&ended, &url[url.find("127.").unwrap()..]);
        assert!(found.contains(&(finding.to_owned(), "warning".to_owned())), "{url}: {finding}: {ended:?}");
    }
    let cure = "look at its process";
    assert_eq!(ended.stdout.matches(cure).count(), 3, "{ended:?}");
}

#[tokio::test]
async fn it_says_in_its_help_what_its_exit_codes_mean() {
    let help = Quorlock::new(["doctor", "--help"]).end().await.expect(0);
    for word in ["79     something makes locks unsafe", "69     no quorum", "--strict", "--json"] {
        assert!(help.stdout.contains(word), "{word}: {help:?}");
    }
}

#[tokio::test]
async fn a_user_without_any_right_is_given_all_by_one_line() {
    let Some(servers) = with(&[]).await else { return };
    set(&servers[0], &["ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "-@all", "+ping"]).await;
    let cures = async || {
        let ended = doctor(&[servers[0].url_as("ann:pw")], &["--json", "--restart-guard", "off"]).end().await;
        let mut all = findings(&ended);
        all.retain(|found| found["finding"] == "missing-right" && found["severity"] == "warning");
        all.iter().map(|found| text(found, "cure")).collect::<Vec<_>>()
    };
    let first = cures().await;
    assert!(first.len() == 1 && first[0].contains("`CONFIG REWRITE`"), "{first:?}");
    let (_, line) = first[0].split_once('`').unwrap();
    let line: Vec<&str> = line.split_once('`').unwrap().0.split(' ').collect();
    assert_eq!(line[..3], ["ACL", "SETUSER", "ann"]);
    set(&servers[0], &line).await;
    assert_eq!(cures().await, [""; 0]);
}

#[tokio::test]
async fn a_command_that_is_not_there_is_cured_at_the_server_and_not_by_a_right() {
    let Some(servers) = with(&["--rename-command", "SETRANGE", ""]).await else { return };
    let ended = doctor(&servers.urls(), &["--json", "--restart-guard", "off"]).end().await.expect(69);
    let missing = finding(&ended, "missing-right");
    let text = |part: &str| text(&missing, part);
    assert!(text("evidence").starts_with("does not know the command setrange"), "{missing}");
    assert!(text("cure").contains("do not rename") && !text("cure").contains("ACL SETUSER"), "{missing}");
}
