//! Each finding is caused by the facts in its evidence, and by nothing else.

use super::node::has_hole;
use super::*;
use crate::doctor::{Report, Summary};
use crate::node::facts::{
    ClockReading, ConnectFailure, Exposure, Fsync, Location, Memory, Missing, MissingPermission, NodeList,
    OtherClients, Software,
};
use crate::node::{NodeError, NodeErrorKind};
use quorlock_protocol::{Drift, Quarantine, Quorum, list_of_nodes};

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn setting(nodes: usize) -> Setting {
    let max_ttl = Duration::from_secs(30);
    Setting {
        risk_of_one: Some("while it is down, nothing can be locked"),
        one_host: false,
        quorum: Quorum::majority(nodes),
        ttl: max_ttl,
        max_ttl,
        drift: Drift::default(),
        quarantine: Quarantine::new(max_ttl, Drift::default()),
        node_timeout: Some(Duration::from_millis(50)),
    }
}

fn unguarded() -> Setting {
    Setting { quarantine: Quarantine::none(), ..setting(3) }
}

/// A healthy node, number `number` of its deployment.
fn sound(number: u8) -> Facts {
    Facts {
        identity: Some(format!("run-{number}").into()),
        software: Some(Software::new("redis", "8.2.2")),
        role: Some(Role::Master),
        loading: Some(false),
        uptime: Some(HOUR),
        replicas: Some(0),
        promoted: Some(false),
        memory: Some(Memory::new(1, None, "noeviction")),
        append_only: Some(true),
        fsync: Some(Fsync::Always),
        hints: Some(true),
        round_trips: vec![Duration::from_micros(200); 20],
        clock: Some(ClockReading::new(0, Duration::from_micros(100))),
        lock: Some(Ok(())),
        place: Some(Location::new(
            Some(format!("db-{number}")),
            vec![IpAddr::from([10, number, 0, 1])],
            true,
        )),
        ..Facts::default()
    }
}

fn examine(nodes: &[Facts], setting: &Setting) -> Report {
    let name = |number: usize| Arc::from(format!("node-{number}"));
    let nodes: Vec<_> =
        nodes.iter().enumerate().map(|(number, facts)| (name(number), Some(facts.clone()))).collect();
    Report::of(&nodes, setting)
}

/// The examination of three healthy nodes, the first of them changed.
fn one_with(change: impl FnOnce(&mut Facts), setting: &Setting) -> Report {
    let mut nodes = [sound(0), sound(1), sound(2)];
    change(&mut nodes[0]);
    examine(&nodes, setting)
}

fn found(examination: &Report) -> Vec<(Severity, Check)> {
    examination.findings.iter().map(|finding| (finding.severity, finding.check)).collect()
}

fn refusal(command: &'static str, need: Feature) -> MissingPermission {
    MissingPermission::new(command, need, Missing::Right(format!("+{command}")), "NOPERM")
}

fn down(kind: NodeErrorKind) -> ConnectFailure {
    ConnectFailure::new(NodeError::Failed { kind, reason: "for this reason".into() })
}

fn memory(used: u64, policy: &str) -> Memory {
    Memory::new(used, Some(1000), policy)
}

type Change = fn(&mut Facts);

#[test]
fn a_healthy_deployment_has_no_findings() {
    for setting in [setting(3), unguarded()] {
        let examination = one_with(|_| {}, &setting);
        assert_eq!(found(&examination), []);
        assert_eq!(examination.summary(), Summary::Sound);
    }
}

/// A fault of one node and its finding, with the restart guard on.
const OF_A_NODE: [(Change, Severity, Check); 43] = [
    (|it| it.failure = Some(down(NodeErrorKind::Unreachable)), Severity::Warning, Check::Unreachable),
    (|it| it.failure = Some(down(NodeErrorKind::Login)), Severity::Warning, Check::Login),
    (|it| it.failure = Some(down(NodeErrorKind::HostRefused)), Severity::Warning, Check::ProtectedMode),
    (|it| it.failure = Some(down(NodeErrorKind::Tls)), Severity::Warning, Check::Tls),
    (|it| it.failure = Some(down(NodeErrorKind::Other)), Severity::Warning, Check::Failed),
    (|it| it.role = Some(Role::Replica), Severity::Warning, Check::Replica),
    (|it| it.role = Some(Role::Sentinel), Severity::Warning, Check::Sentinel),
    (|it| it.role = Some(Role::ClusterMember), Severity::Unsafe, Check::ClusterMember),
    (|it| it.role = Some(Role::ActiveReplica), Severity::Unsafe, Check::ActiveReplica),
    (|it| it.unfit = Some("it calls itself king".into()), Severity::Warning, Check::Unfit),
    (|it| (it.role, it.unfit) = (None, Some("it calls itself king".into())), Severity::Warning, Check::Unfit),
    (|it| it.others = vec!["run-9".into()], Severity::Unsafe, Check::SeveralServers),
    (|it| it.finds_connections = Some(false), Severity::Warning, Check::Proxy),
    (|it| it.known = Some(Duration::from_secs(3540)), Severity::Note, Check::ClockStepped),
    (|it| it.turns = Some(1_799), Severity::Warning, Check::ClockStepped),
    (|it| it.known = Some(Duration::from_secs(20)), Severity::Warning, Check::ClockStepped),
    (
        |it| (it.uptime, it.known) = (Some(Duration::from_secs(50)), Some(Duration::from_secs(5))),
        Severity::Warning,
        Check::ClockStepped,
    ),
    (|it| it.loading = Some(true), Severity::Warning, Check::Loading),
    (|it| it.uptime = Some(Duration::from_secs(31)), Severity::Warning, Check::Restarted),
    (|it| it.replicas = Some(1), Severity::Warning, Check::Replicas),
    (|it| (it.service, it.falls_silent) = (Some("m".into()), Some(false)), Severity::Note, Check::TwoMasters),
    (|it| it.promoted = Some(true), Severity::Warning, Check::Promoted),
    (
        |it| (it.promoted, it.master_since) = (Some(true), Some(Duration::from_secs(9))),
        Severity::Warning,
        Check::Promoted,
    ),
    (|it| (it.promoted, it.master_since) = (Some(true), Some(HOUR)), Severity::Note, Check::Promoted),
    (|it| it.memory = Some(memory(1, "volatile-ttl")), Severity::Unsafe, Check::Eviction),
    (|it| it.memory = Some(memory(900, "noeviction")), Severity::Warning, Check::MemoryFull),
    (|it| it.exposure = Some(Exposure::Readable("its mode".into())), Severity::Warning, Check::ExposedFiles),
    (|it| it.exposure = Some(Exposure::Writable("its mode".into())), Severity::Unsafe, Check::ExposedFiles),
    (|it| it.append_only = Some(false), Severity::Note, Check::NotPersistent),
    (|it| it.fsync = Some(Fsync::EverySecond), Severity::Note, Check::NotPersistent),
    (|it| it.refusals = vec![refusal("set", Feature::Locks)], Severity::Warning, Check::MissingRight),
    (|it| it.refusals = vec![refusal("zincrby", Feature::Fencing)], Severity::Warning, Check::MissingRight),
    (|it| it.refusals = vec![refusal("zadd", Feature::Queue)], Severity::Note, Check::MissingRight),
    (|it| it.refusals = vec![refusal("zincrby", Feature::Sharing)], Severity::Note, Check::MissingRight),
    (|it| it.refusals = vec![refusal("publish", Feature::Offers)], Severity::Note, Check::MissingRight),
    (|it| it.refusals = vec![refusal("client", Feature::Waiting)], Severity::Note, Check::MissingRight),
    (|it| it.lock = Some(Err(NodeError::NotAsked)), Severity::Warning, Check::LockFails),
    (|it| it.software = Some(Software::new("redis", "5.0.14")), Severity::Warning, Check::OldVersion),
    (|it| it.software = Some(Software::new("valkey", "8.1.3")), Severity::Note, Check::KnownHole),
    (|it| it.hints = Some(false), Severity::Note, Check::NoHints),
    (|it| it.round_trips[3] = Duration::from_millis(51), Severity::Warning, Check::SlowNode),
    (|it| it.round_trips[3] = Duration::from_millis(3001), Severity::Warning, Check::ShortTtl),
    (|it| it.memory = None, Severity::Unknown, Check::Untold),
];

#[test]
fn each_fault_of_a_node_has_a_finding() {
    for (change, severity, check) in OF_A_NODE {
        let examination = one_with(change, &setting(3));
        assert!(found(&examination).contains(&(severity, check)), "{check}: {:#?}", examination.findings);
        let finding = examination.findings.iter().find(|finding| finding.check == check).unwrap();
        assert_eq!(finding.subject, Subject::Node("node-0".into()));
        let more = examination.findings.iter().filter(|other| other.subject != Subject::Deployment).count();
        let expected = if check == Check::OldVersion { 2 } else { 1 };
        assert_eq!(more, expected, "one fault is one finding: {:#?}", examination.findings);
    }
}

/// `--strict` waits until every node votes, and passes when there is no warning.
#[test]
fn a_node_without_a_vote_has_a_warning() {
    let seconds = |times: &[u64]| {
        let times = times.iter().copied().map(|time| Some(Duration::from_secs(time)));
        times.chain([None]).collect::<Vec<_>>()
    };
    for max_ttl in [30, 300].map(Duration::from_secs) {
        let quarantine = Quarantine::new(max_ttl, Drift::default());
        let setting = Setting { max_ttl, quarantine, ..setting(3) };
        for uptime in seconds(&[5, 31, 33, 50, 299, 3600]) {
            for (known, turns) in
                seconds(&[0, 29, 31, 48, 100]).into_iter().zip([None, Some(0)].into_iter().cycle())
            {
                for role in [Some(Role::Master), Some(Role::Replica), None] {
                    let change = |it: &mut Facts| {
                        (it.uptime, it.known, it.turns, it.role) = (uptime, known, turns, role);
                    };
                    let examination = one_with(change, &setting);
                    let votes = matches!(examination.nodes[0].standing, Standing::Votes);
                    let warned = examination.findings.iter().any(|finding| {
                        finding.severity <= Severity::Warning && finding.subject != Subject::Deployment
                    });
                    assert!(votes || warned, "{uptime:?} {known:?} {turns:?} {role:?} {max_ttl:?}");
                }
            }
        }
    }
}

#[test]
fn the_fix_of_a_busy_or_full_server_is_not_another_server() {
    for kind in [NodeErrorKind::Busy, NodeErrorKind::OutOfSpace] {
        let refused = NodeError::Failed { kind, reason: "for this reason".into() };
        let failing = one_with(|it| it.failure = Some(down(kind)), &setting(3));
        let refusing = one_with(|it| it.lock = Some(Err(refused)), &setting(3));
        for examination in [failing, refusing] {
            let failed = |finding: &&Finding| finding.subject == Subject::Node("node-0".into());
            let finding = examination.findings.iter().find(failed).unwrap();
            assert!(matches!(finding.check, Check::Failed | Check::LockFails), "{finding}");
            assert!(finding.cure.contains("the error says"), "{finding}");
        }
    }
}

#[test]
fn a_node_without_a_vote_leaves_no_spare_node() {
    for (change, _, check) in OF_A_NODE {
        let votes = matches!(one_with(change, &setting(3)).nodes[0].standing, Standing::Votes);
        let examination = one_with(change, &setting(3));
        let spare = !found(&examination).contains(&(Severity::Warning, Check::NoSpare));
        assert_eq!(votes, spare, "{check}");
    }
    let two = examine(&[Facts { replicas: Some(1), ..sound(0) }, sound(1), sound(2)], &setting(3));
    assert_eq!(two.summary(), Summary::Sound, "warnings alone are not unsafe");
}

#[test]
fn a_volatile_node_without_the_guard_is_unsafe() {
    let cases: [(Change, Severity, Check); 4] = [
        (|it| it.append_only = Some(false), Severity::Unsafe, Check::NotPersistent),
        (|it| it.fsync = Some(Fsync::EverySecond), Severity::Unsafe, Check::NotPersistent),
        (|it| it.fsync = None, Severity::Unknown, Check::Untold),
        (
            |it| (it.uptime, it.append_only) = (Some(Duration::from_secs(31)), Some(false)),
            Severity::Unsafe,
            Check::Restarted,
        ),
    ];
    for (change, severity, check) in cases {
        let examination = one_with(change, &unguarded());
        assert!(found(&examination).contains(&(severity, check)), "{check}: {:#?}", examination.findings);
    }
    let kept = one_with(|it| it.uptime = Some(Duration::from_secs(3)), &unguarded());
    assert_eq!(found(&kept), [], "a server with `appendfsync always` has lost nothing");
}

#[test]
fn a_node_that_was_asked_as_for_a_vote_has_the_age_of_its_vote() {
    // As etcd reports a history that is old enough: in whole seconds, and no more than that.
    let is_old =
        |it: &mut Facts| (it.age, it.uptime) = (Some(Duration::from_secs(31)), Some(Duration::from_secs(31)));
    let examination = one_with(is_old, &setting(3));
    assert_eq!((examination.nodes[0].standing.clone(), found(&examination)), (Standing::Votes, Vec::new()));
    let is_young =
        |it: &mut Facts| (it.age, it.uptime) = (Some(Duration::from_secs(30)), Some(Duration::from_secs(30)));
    let examination = one_with(is_young, &setting(3));
    let left = setting(3).quarantine.left(Duration::from_secs(30));
    assert_eq!(examination.nodes[0].standing, Standing::Quarantined { left });
}

#[test]
fn the_reported_wait_of_a_node_is_that_of_the_guard() {
    let examination = one_with(|it| it.uptime = Some(Duration::from_secs(21)), &setting(3));
    assert_eq!(
        examination.nodes[0].standing,
        Standing::Quarantined { left: setting(3).quarantine.left(Duration::from_secs(20)) }
    );
    assert!(
        examination.findings.iter().any(|finding| finding.evidence.contains("for another 10.")),
        "{:#?}",
        examination.findings
    );
}

#[test]
fn one_server_with_two_addresses_votes_once() {
    let examination = one_with(|it| it.identity = Some("run-1".into()), &setting(3));
    assert!(found(&examination).contains(&(Severity::Unsafe, Check::SameServer)));
    assert!(matches!(examination.nodes[0].standing, Standing::Votes));
    assert!(matches!(examination.nodes[1].standing, Standing::Excluded { .. }));
    assert_eq!(examination.summary(), Summary::Unsafe);
}

#[test]
fn the_number_of_nodes_is_judged() {
    let of = |nodes: u8| found(&examine(&(0..nodes).map(sound).collect::<Vec<_>>(), &setting(nodes.into())));
    assert_eq!(of(1), [(Severity::Warning, Check::OneNode)]);
    assert_eq!(of(2), [(Severity::Warning, Check::FewNodes), (Severity::Warning, Check::EvenNodes)]);
    assert_eq!(of(4), [(Severity::Warning, Check::EvenNodes)]);
    assert_eq!(of(5), []);
    let one_host = Setting { one_host: true, ..setting(1) };
    let file = Facts { place: Some(Location::new(None, Vec::new(), true)), ..sound(0) };
    assert_eq!(found(&examine(&[file], &one_host)), [(Severity::Note, Check::OneHost)]);
}

#[test]
fn clients_that_may_use_own_clocks_are_named() {
    let mut node = sound(0);
    let others = OtherClients::new("another program locks there, too", "set its clock");
    node.other_clients = Some(others.clone());
    assert!(found(&examine(&[node.clone()], &setting(1))).contains(&(Severity::Note, Check::ClientClocks)));
    node.other_clients = Some(OtherClients { clock: Some("a row is from tomorrow".into()), ..others });
    let examination = examine(&[node], &setting(1));
    let finding = examination.findings.iter().find(|finding| finding.check == Check::ClientClocks).unwrap();
    assert_eq!(finding.severity, Severity::Unsafe);
    assert_eq!(finding.evidence, "another program locks there, too: a row is from tomorrow");
    assert_eq!(finding.cure, "set its clock");
}

#[test]
fn too_few_votes_are_no_quorum_despite_other_faults() {
    let mut nodes = [sound(0), sound(1), sound(2)];
    for node in &mut nodes[1..] {
        node.role = Some(Role::ClusterMember);
    }
    let examination = examine(&nodes, &setting(3));
    assert!(found(&examination).contains(&(Severity::Warning, Check::NoQuorum)));
    assert_eq!(examination.summary(), Summary::NoQuorum);
}

#[test]
fn nodes_that_cannot_be_examined_are_neither_good_nor_bad() {
    let name = |name: &str| Arc::from(name);
    let examination =
        Report::of(&[(name("a"), None), (name("b"), None), (name("c"), Some(sound(0)))], &setting(3));
    assert_eq!(found(&examination), [(Severity::Unknown, Check::NoQuorum)]);
    assert_eq!(examination.summary(), Summary::Unclear);
}

/// The examination of a deployment of three nodes with these addresses.
fn at(hosts: [(&str, [u8; 4]); 3]) -> Report {
    let nodes = [0, 1, 2].map(|number| {
        let (host, address) = hosts[usize::from(number)];
        Facts {
            place: Some(Location::new(Some(host.into()), vec![IpAddr::from(address)], true)),
            ..sound(number)
        }
    });
    examine(&nodes, &setting(3))
}

#[test]
fn shared_failure_domains_are_found() {
    let far = ("c", [10, 9, 9, 9]);
    let same = at([("a", [10, 0, 0, 1]), ("b", [10, 0, 0, 1]), far]);
    assert_eq!(found(&same), [(Severity::Warning, Check::SharedHost)], "two of three are a quorum");
    assert!(same.findings[0].evidence.contains("node-0 and node-1 are at 10.0.0.1"), "{same:?}");
    let near = at([("a", [10, 0, 0, 1]), ("b", [10, 0, 0, 2]), far]);
    assert_eq!(found(&near), [(Severity::Note, Check::SharedNetwork)]);
    assert!(near.findings[0].evidence.contains("10.0.0.0/24"), "{near:?}");
    let here = at([("a", [127, 0, 0, 1]), ("localhost", [127, 0, 0, 1]), far]);
    assert_eq!(found(&here), [(Severity::Note, Check::Loopback)]);

    let five = (0..5).map(|number| match number {
        0 | 1 => Facts { place: Some(Location::new(Some("twin".into()), vec![], true)), ..sound(number) },
        _ => sound(number),
    });
    let five = examine(&five.collect::<Vec<_>>(), &setting(5));
    assert_eq!(found(&five), [(Severity::Note, Check::SharedHost)], "three of five remain: {five:?}");
}

#[test]
fn an_unencrypted_remote_connection_is_noted() {
    let place = |address: [u8; 4]| Some(Location::new(Some("a".into()), vec![IpAddr::from(address)], false));
    let open = one_with(|it| it.place = place([10, 0, 0, 1]), &setting(3));
    assert_eq!(found(&open), [(Severity::Note, Check::PlainText)]);
    let here = one_with(|it| it.place = place([127, 0, 0, 1]), &setting(3));
    assert_eq!(found(&here), [(Severity::Note, Check::Loopback)]);
}

#[test]
fn certain_clock_differences_are_found() {
    let ahead = |micros, uncertain| {
        let clock = Some(ClockReading::new(micros, Duration::from_millis(uncertain)));
        found(&one_with(|it| it.clock = clock, &setting(3)))
    };
    assert_eq!(ahead(16_000_000, 10), [(Severity::Warning, Check::ClockSpread)]);
    assert_eq!(ahead(-16_000_000, 10), [(Severity::Warning, Check::ClockSpread)]);
    assert_eq!(ahead(16_000_000, 2000), [], "14 s are certain, 15 s are allowed");
    assert_eq!(ahead(200_000, 10), []);
}

#[test]
fn a_distant_node_has_a_longer_timeout() {
    let far = |trip, setting: &Setting| {
        found(&one_with(|it| it.round_trips = vec![Duration::from_millis(trip); 20], setting))
    };
    assert_eq!(far(80, &setting(3)), [(Severity::Warning, Check::SlowNode)], "a number is a number");
    assert_eq!(far(1_500, &Setting { node_timeout: None, ..setting(3) }), []);
}

#[test]
fn fixed_versions_are_told_from_vulnerable_ones() {
    for (name, version, hole) in [
        ("redis", "7.0.15", true),
        ("redis", "7.2.10", true),
        ("redis", "7.2.11", false),
        ("redis", "6.2.20", false),
        ("redis", "8.0.3", true),
        ("redis", "8.4.0", false),
        ("valkey", "8.1.4", false),
        ("valkey", "8.0.5", true),
        ("valkey", "9.0.0", false),
    ] {
        assert_eq!(has_hole(name, Software::new(name, version).numbers()), hole, "{name} {version}");
    }
}

#[test]
fn the_longest_of_twenty_is_the_99th_percentile() {
    let samples: Vec<_> = (1..=20).rev().map(Duration::from_millis).collect();
    let trips = RoundTrips::of(&samples).unwrap();
    assert_eq!((trips.median, trips.p99), (Duration::from_millis(10), Duration::from_millis(20)));
    assert_eq!(RoundTrips::of(&[]), None);
}

#[test]
fn i49_clients_that_differ_about_the_nodes_are_found() {
    let found = |ids: &[&str], minutes: u64, uptime: Duration, setting: &Setting| {
        let list = NodeList::new(list_of_nodes(ids.to_vec()), Duration::from_secs(minutes * 60));
        let examined = [sound(0), sound(1), sound(2)];
        let examined =
            examined.map(|facts| Facts { node_lists: vec![list.clone()], uptime: Some(uptime), ..facts });
        let found = examine(&examined, setting).findings.into_iter();
        found.filter(|finding| finding.check == Check::OtherNodes).collect::<Vec<_>>()
    };
    let (three, all) = (setting(3), ["run-2", "run-0", "run-1"]);
    assert_eq!(found(&all, 1, HOUR, &three), [], "the same nodes");
    let other = found(&["run-0", "run-1", "x"], 5, HOUR, &three);
    assert!(other.len() == 1 && other[0].severity == Severity::Unsafe, "{other:?}");
    let reply = "another client locks on 3 nodes, of which 2 are among our 3, 5m ago: its quorum may";
    assert!(other[0].evidence.starts_with(reply), "{other:?}");
    assert!(other[0].cure.contains("no client has any more is forgotten within an hour"), "{other:?}");
    let restarted = found(&["run-0", "run-1", "x"], 5, Duration::from_secs(300), &three);
    assert!(restarted.len() == 1 && restarted[0].severity == Severity::Unknown, "{restarted:?}");
    let reply =
        "5m ago cannot be compared with ours (node-0, node-1, node-2: restarted since, or up to 30s before)";
    assert!(restarted[0].evidence.ends_with(reply), "{restarted:?}");

    let one = found(&["run-0"], 5, HOUR, &three);
    assert!(one[0].evidence.contains("on 1 node, of which 1 is among our 3"), "{one:?}");
    // While a node is replaced: two of two and two of three always meet.
    let fewer = found(&["run-0", "run-1"], 5, HOUR, &three);
    assert_eq!(fewer[0].severity, Severity::Warning, "{fewer:?}");
    let twice = found(&["run-0", "x", "x"], 5, HOUR, &three);
    assert!(twice[0].evidence.contains("on 2 nodes at 3 addresses, of which 1 is among our 3"), "{twice:?}");
}

/// A node that does not answer, or has restarted, hides no difference between the others.
#[test]
fn i49_lists_are_compared_by_the_nodes_that_are_known() {
    let found = |ids: &[&str], seconds: u64, changes: &[(usize, Change)]| {
        let list = NodeList::new(list_of_nodes(ids.to_vec()), Duration::from_secs(seconds));
        let mut examined =
            [0, 1, 2, 3, 4].map(|number| Facts { node_lists: vec![list.clone()], ..sound(number) });
        for (index, change) in changes {
            change(&mut examined[*index]);
        }
        let found = examine(&examined, &setting(5)).findings.into_iter();
        let found = found.filter(|finding| finding.check == Check::OtherNodes);
        found.map(|finding| (finding.severity, finding.evidence)).collect::<Vec<_>>()
    };
    let silent: Change = |it| {
        *it = Facts { failure: Some(down(NodeErrorKind::Unreachable)), ..Facts::default() };
    };
    let young: Change = |it| it.uptime = Some(Duration::from_secs(100));
    let restarted: Change = |it| it.identity = Some("new".into());
    let ours = ["run-0", "run-1", "run-2", "run-3", "run-4"];
    let other = ["run-0", "run-1", "run-2", "x", "y"];
    assert_eq!(found(&ours, 5, &[]), []);
    for (node, change) in [(0, silent), (3, silent), (0, young), (4, young)] {
        let found = found(&other, 200, &[(node, change)]);
        assert!(found.len() == 1 && found[0].0 == Severity::Unsafe, "{node}: {found:?}");
    }
    assert_eq!(found(&ours, 200, &[(4, young)]), [], "it still is what it was");

    let of_one = ["run-0", "run-1", "run-2", "run-3", "x"];
    for (list, seconds, severity) in
        [(ours, 200, Severity::Unknown), (of_one, 200, Severity::Unknown), (of_one, 5, Severity::Warning)]
    {
        let found = found(&list, seconds, &[(4, silent)]);
        assert!(found.len() == 1 && found[0].0 == severity, "{found:?}");
        assert!(
            found[0].1.ends_with("ago cannot be compared with ours (node-4: not answering)"),
            "{found:?}"
        );
    }
    let again = found(&of_one, 200, &[(4, young), (4, restarted)]);
    assert!(again.len() == 1 && again[0].0 == Severity::Unknown, "{again:?}");
    let still = found(&of_one, 5, &[(4, young), (4, restarted)]);
    assert!(still.len() == 1 && still[0].0 == Severity::Unsafe, "it is used since: {still:?}");
}

#[test]
fn the_word_of_an_operator_is_repeated_and_settings_that_contradict_it_are_a_warning() {
    let never = |facts: &mut Facts| (facts.never_forgets, facts.age) = (true, Some(Duration::MAX));
    let young = |facts: &mut Facts| {
        never(facts);
        (facts.uptime, facts.known, facts.replicas) = (Some(Duration::from_secs(1)), None, Some(1));
        (facts.promoted, facts.master_since) = (Some(true), Some(Duration::ZERO));
    };
    let word = |severity| vec![(severity, Check::NeverForgets)];
    assert_eq!(found(&one_with(young, &setting(3))), word(Severity::Note));
    let forgetful = |facts: &mut Facts| {
        never(facts);
        facts.append_only = Some(false);
    };
    assert_eq!(found(&one_with(forgetful, &setting(3))), word(Severity::Warning));
}

#[test]
fn clients_with_other_key_prefixes_are_named_once() {
    let prefixes = |prefixes: &[&str]| prefixes.iter().map(|&prefix| prefix.into()).collect();
    let seen = [prefixes(&["b:", ""]), prefixes(&["b:", "a\n"]), Vec::new()];
    let mut seen = seen.into_iter();
    let examined = [sound(0), sound(1), sound(2)]
        .map(|facts| Facts { other_prefixes: seen.next().unwrap_or_default(), ..facts });
    let found = examine(&examined, &setting(3)).findings;
    let found: Vec<_> = found.iter().filter(|finding| finding.check == Check::OtherPrefixes).collect();
    let named = r"with no key prefix, the key prefix `a\n`, the key prefix `b:` in the last month";
    assert!(found.len() == 1 && found[0].evidence.contains(named), "{found:?}");
    assert_eq!(found[0].severity, Severity::Note);
}

#[test]
fn i37_a_node_votes_once_it_is_old_enough_for_the_max_ttl_of_others() {
    let minute = Duration::from_secs(60);
    let reported = |theirs: &[u64], setting: &Setting| {
        let mut nodes =
            [sound(0), sound(1), sound(2)].map(|facts| Facts { uptime: Some(minute * 2), ..facts });
        for (facts, theirs) in nodes.iter_mut().zip(theirs) {
            facts.max_ttl = Some(Duration::from_secs(*theirs));
        }
        examine(&nodes, setting)
    };
    assert_eq!(reported(&[3600], &setting(3)).summary(), Summary::Sound, "one node may be wrong");
    assert_eq!(reported(&[60, 60], &setting(3)).summary(), Summary::Sound, "they are old enough");
    assert_eq!(reported(&[3600, 3600], &unguarded()).summary(), Summary::Sound);
    let examination = reported(&[3600, 3600], &setting(3));
    assert_eq!(examination.summary(), Summary::NoQuorum);
    let left = Quarantine::new(minute * 60, Drift::default()).left(Duration::from_secs(119));
    assert!(examination.nodes.iter().all(|node| node.standing == Standing::Quarantined { left }));
    let restarted = examination.findings.iter().filter(|finding| finding.check == Check::Restarted);
    let evidence: Vec<_> = restarted.map(|finding| &*finding.evidence).collect();
    let expected = format!("started 2m ago and does not vote for another {}", duration::format(left));
    assert_eq!(evidence, [&*expected; 3]);
}

#[test]
fn clients_that_differ_about_max_ttl_are_found_once() {
    let sound = [sound(0), sound(1), sound(2)];
    for (theirs, reply) in
        [(10, "another client has 10s: it counts"), (60, "another client has 1m: its locks")]
    {
        let examined =
            sound.clone().map(|facts| Facts { max_ttl: Some(Duration::from_secs(theirs)), ..facts });
        let found = examine(&examined, &setting(3)).findings;
        let found: Vec<_> = found.iter().filter(|finding| finding.check == Check::MaxTtl).collect();
        assert!(found.len() == 1 && found[0].evidence.contains(reply), "{found:?}");
    }
    let alike = sound.map(|facts| Facts { max_ttl: Some(Duration::from_secs(30)), ..facts });
    assert!(examine(&alike, &setting(3)).findings.iter().all(|finding| finding.check != Check::MaxTtl));
}
