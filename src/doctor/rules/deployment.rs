//! Findings about the deployment as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Findings, age, alike, duration, network};
use crate::doctor::finding::{Check, Finding, Severity, Subject};
use crate::doctor::report::{NodeReport, Standing};
use crate::doctor::setting::Setting;
use crate::node::facts::{ClockReading, Facts, Location, NodeList, Role};
use crate::node::lists::{SETTLED, UNKNOWN, list_of, may_be_same};
use quorlock_protocol::{Quorum, printable};

/// A node that reported facts, with its name.
pub(crate) type Examined<'a> = (&'a Arc<str>, &'a Facts);

const CHECKS: [fn(&Case<'_>, &mut Findings<'_>); 10] = [
    votes,
    number,
    same_server,
    max_ttls,
    other_nodes,
    other_prefixes,
    shared_host,
    loopback,
    clocks,
    plain_text,
];

struct Case<'a> {
    examined: &'a [Examined<'a>],
    reports: &'a [NodeReport],
    setting: &'a Setting,
}

/// Returns the findings about the deployment as a whole.
pub(crate) fn findings(examined: &[Examined<'_>], reports: &[NodeReport], setting: &Setting) -> Vec<Finding> {
    let mut sheet = Findings { node: None, findings: Vec::new() };
    let case = Case { examined, reports, setting };
    for check in CHECKS {
        check(&case, &mut sheet);
    }
    sheet.findings
}

fn votes(case: &Case<'_>, sheet: &mut Findings<'_>) {
    let quorum = case.setting.quorum;
    let count =
        |wanted: fn(&Standing) -> bool| case.reports.iter().filter(|report| wanted(&report.standing)).count();
    let voting = count(|standing| matches!(standing, Standing::Votes));
    let unknown = count(|standing| matches!(standing, Standing::Unknown));
    let counted = format!("{voting} of {} nodes vote, {} are needed", quorum.nodes(), quorum.needed());
    if voting + unknown < quorum.needed() {
        sheet.note(Severity::Warning, Check::NoQuorum, format!("{counted}: no lock can be acquired now"));
    } else if voting < quorum.needed() {
        sheet.note(
            Severity::Unknown,
            Check::NoQuorum,
            format!("{counted}, and {unknown} cannot be examined"),
        );
    } else if voting == quorum.needed() && voting < quorum.nodes() {
        sheet.note(Severity::Warning, Check::NoSpare, format!("{counted}: no other node may fail"));
    }
}

fn number(case: &Case<'_>, sheet: &mut Findings<'_>) {
    let (nodes, needed) = (case.setting.quorum.nodes(), case.setting.quorum.needed());
    let spare = nodes - needed;
    if nodes == 1 {
        if case.setting.one_host {
            let evidence = "the only node excludes programs on this host only";
            sheet.note(Severity::Note, Check::OneHost, evidence);
        } else if let Some(risk) = case.setting.risk_of_one {
            sheet.note(Severity::Warning, Check::OneNode, format!("there is only one node: {risk}"));
        }
    } else if nodes < 3 {
        let evidence = format!("there are {nodes} nodes, and both are needed: none may fail");
        sheet.note(Severity::Warning, Check::FewNodes, evidence);
    }
    if nodes.is_multiple_of(2) {
        let evidence =
            format!("there are {nodes} nodes, of which {spare} may fail: no more than with {}", nodes - 1);
        sheet.note(Severity::Warning, Check::EvenNodes, evidence);
    }
}

fn same_server(case: &Case<'_>, sheet: &mut Findings<'_>) {
    let identities =
        case.examined.iter().filter_map(|(name, facts)| Some((facts.identity.as_deref()?, *name)));
    for (identity, names) in alike(identities) {
        sheet.findings.push(one_server(&names, identity));
    }
}

/// Returns the finding that these nodes are one server.
pub(crate) fn one_server(names: &[&str], identity: &str) -> Finding {
    let id: String = identity.chars().take(8).collect();
    let evidence = format!("{} are one server (run_id {id}…)", names.join(" and "));
    let cure = Check::SameServer.cure().to_owned();
    Finding {
        severity: Severity::Unsafe,
        subject: Subject::Deployment,
        check: Check::SameServer,
        evidence,
        cure,
    }
}

/// Nodes on one host fail together. Those of one server are reported by `same_server`.
fn shared_host(case: &Case<'_>, sheet: &mut Findings<'_>) {
    let places = || {
        case.examined.iter().filter_map(|(name, facts)| {
            let place = facts.place.as_ref().filter(|place| !place.is_here())?;
            Some((*name, place))
        })
    };
    let spare = case.setting.quorum.nodes() - case.setting.quorum.needed();
    let by_address = places().flat_map(|(name, place)| {
        let unresolved = place.host.clone().filter(|_| place.addresses.is_empty());
        place.addresses.iter().map(ToString::to_string).chain(unresolved).map(move |address| (address, name))
    });
    let mut reported: Vec<Vec<&str>> = Vec::new();
    for (address, names) in alike(by_address) {
        if reported.contains(&names) {
            continue;
        }
        let (severity, so) = if names.len() > spare {
            (Severity::Warning, "without which there is no quorum")
        } else {
            (Severity::Note, "and fail together")
        };
        let evidence = format!("{} are at {address}, {so}", names.join(" and "));
        sheet.note(severity, Check::SharedHost, evidence);
        reported.push(names);
    }
    let by_network = places()
        .flat_map(|(name, place)| place.addresses.iter().map(move |address| (network(*address), name)));
    for ((address, bits), names) in alike(by_network) {
        if !reported.contains(&names) {
            let evidence = format!("{} are in the same network, {address}/{bits}", names.join(" and "));
            sheet.note(Severity::Note, Check::SharedNetwork, evidence);
            reported.push(names);
        }
    }
}

fn loopback(case: &Case<'_>, sheet: &mut Findings<'_>) {
    let here = case.examined.iter().filter(|(_, facts)| facts.place.as_ref().is_some_and(Location::is_here));
    let (here, nodes) = (here.count(), case.setting.quorum.nodes());
    // That the only node is a file of this host is a note of its own.
    if here > 0 && !case.setting.one_host {
        let evidence = format!("{here} of {nodes} nodes are on this machine, by their addresses");
        sheet.note(Severity::Note, Check::Loopback, evidence);
    }
}

/// Reports the two clocks that certainly differ most, including ours.
fn clocks(case: &Case<'_>, sheet: &mut Findings<'_>) {
    let ours = ("this machine", ClockReading::new(0, Duration::ZERO));
    let others = case.examined.iter().filter_map(|(name, facts)| Some((&***name, facts.clock?)));
    let all: Vec<_> = others.chain([ours]).collect();
    let pairs =
        all.iter().enumerate().flat_map(|(index, one)| all.iter().skip(index + 1).map(move |two| (one, two)));
    let differing = pairs.map(|(one, two)| {
        let apart = Duration::from_micros(one.1.ahead_micros.abs_diff(two.1.ahead_micros));
        let wrong = one.1.uncertainty.saturating_add(two.1.uncertainty);
        (apart.saturating_sub(wrong), apart, wrong, one.0, two.0)
    });
    let Some((least, apart, wrong, one, two)) = differing.max_by_key(|(least, ..)| *least) else { return };
    let bound = case.setting.max_ttl / 2;
    let differ = format!(
        "the clocks of {one} and {two} differ by {} ± {}",
        duration::format(apart),
        duration::format(wrong)
    );
    if least > bound {
        let evidence = format!(
            "{differ}, more than half of max_ttl ({}): fencing tokens may decrease after counters are lost; \
             exclusion is not touched",
            duration::format(bound)
        );
        sheet.note(Severity::Warning, Check::ClockSpread, evidence);
    }
}

/// Returns the finding that another client of the deployment has the `max_ttl` `others`, which differs from
/// `ours`.
pub(crate) fn max_ttl_differs(ours: Duration, others: Duration) -> Finding {
    let both = format!(
        "max_ttl is {} here, and another client has {}",
        duration::format(ours),
        duration::format(others)
    );
    let evidence = if others > ours {
        format!(
            "{both}: its locks may outlast the time for which we do not count restarted nodes. While more \
             nodes report it than may be wrong, we wait as long as it does"
        )
    } else {
        format!("{both}: it counts restarted nodes before our locks have expired, unless it learns of ours")
    };
    let cure = format!(
        "{}; if no client has the other value any more, delete the key `…:quorlock:gate:max-ttl` on the nodes, \
         which etcd and ZooKeeper call `quorlock/max-ttl`",
        Check::MaxTtl.cure()
    );
    let (severity, subject) = (Severity::Warning, Subject::Deployment);
    Finding { severity, subject, check: Check::MaxTtl, evidence, cure }
}

/// Compares the `max_ttl` that the nodes report with ours.
fn max_ttls(case: &Case<'_>, sheet: &mut Findings<'_>) {
    let ours = case.setting.max_ttl;
    let reported = case.examined.iter().filter_map(|(_, facts)| facts.max_ttl);
    let differing: BTreeSet<Duration> =
        reported.filter(|others| others.as_millis() != ours.as_millis()).collect();
    sheet.findings.extend(differing.into_iter().map(|others| max_ttl_differs(ours, others)));
}

/// The nodes of a list, each of which counts once.
struct Listed<'a> {
    known: BTreeSet<&'a str>,
    unknown: usize,
    addresses: usize,
}

impl<'a> Listed<'a> {
    fn of(list: &'a str) -> Listed<'a> {
        let known: BTreeSet<&str> = list.split(' ').filter(|id| *id != UNKNOWN).collect();
        let unknown = list.split(' ').filter(|id| *id == UNKNOWN).count();
        Listed { known, unknown, addresses: list.split(' ').count() }
    }

    fn nodes(&self) -> usize {
        self.known.len() + self.unknown
    }
}

/// Returns the finding that another client has the list of nodes `others`, which differs from `ours`.
pub(crate) fn lists_differ(ours: &str, quorum: Quorum, others: &str, recorded: Option<Duration>) -> Finding {
    let (ours, others) = (Listed::of(ours), Listed::of(others));
    let shared = ours.known.intersection(&others.known).count();
    let most = (shared + ours.unknown + others.unknown).min(ours.nodes()).min(others.nodes());
    let seen = recorded.map_or_else(String::new, |ago| format!(", {} ago", duration::format(ago)));
    // If theirs is a majority: it may be more.
    let theirs = Quorum::majority(others.addresses).needed();
    let meet = quorum.needed() + theirs > ours.nodes() + others.nodes() - most;
    let (severity, so) = if meet {
        (
            Severity::Warning,
            "each of our quorums shares a node with each majority of its nodes, but one more change may end that",
        )
    } else {
        (Severity::Unsafe, "its quorum may have no node in common with ours, and then both hold one lock")
    };
    let plural =
        |count: usize, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    let nodes = plural(others.nodes(), "node", "nodes");
    let at = if others.addresses > others.nodes() {
        format!("{nodes} at {} addresses", others.addresses)
    } else {
        nodes
    };
    let are = plural(shared, "is", "are");
    let known = if most > shared { " known to be" } else { "" };
    let evidence =
        format!("another client locks on {at}, of which {are}{known} among our {}{seen}: {so}", ours.nodes());
    let cure = Check::OtherNodes.cure().to_owned();
    Finding { severity, subject: Subject::Deployment, check: Check::OtherNodes, evidence, cure }
}

/// Compares the lists of nodes that clients have recorded with ours. The identity of a node changes when it
/// restarts, so one that does not answer, or has restarted since a list was recorded, may stand in that under another
/// identity.
fn other_nodes(case: &Case<'_>, sheet: &mut Findings<'_>) {
    // Clients record no identity of a cluster, and of a node that cannot be examined none is known here.
    let single = || case.examined.iter().filter(|(_, facts)| facts.role != Some(Role::Cluster));
    let never = vec![None; case.setting.quorum.nodes().saturating_sub(single().count())];
    let ids = |of: &dyn Fn(&Facts) -> Option<&str>| {
        list_of(single().map(|(_, facts)| of(facts)).chain(never.iter().copied()))
    };
    let mut others: BTreeMap<&str, (Duration, String)> = BTreeMap::new();
    let mut unclear: Option<&NodeList> = None;
    for list in case.examined.iter().flat_map(|(_, facts)| &facts.node_lists) {
        // A node that does not answer stands in no list as what it is now.
        if may_be_same(&ids(&|facts| Some(facts.identity.as_deref().unwrap_or_default())), &list.nodes) {
            continue;
        }
        let then = ids(&|facts| facts.identity.as_deref().filter(|_| older(facts, list)));
        if !may_be_same(&then, &list.nodes) {
            let latest = others.entry(&list.nodes).or_insert_with(|| (list.recorded, then.clone()));
            if list.recorded < latest.0 {
                *latest = (list.recorded, then);
            }
        } else if unclear.is_none_or(|latest| list.recorded < latest.recorded) {
            unclear = Some(list);
        }
    }
    let quorum = case.setting.quorum;
    // A client that lost a node has recorded its list without that, too.
    let complete: Vec<&str> = others.keys().copied().filter(|list| !list.contains(UNKNOWN)).collect();
    others
        .retain(|list, _| !list.contains(UNKNOWN) || !complete.iter().any(|other| may_be_same(list, other)));
    let found = others.into_iter().map(|(list, (ago, ours))| lists_differ(&ours, quorum, list, Some(ago)));
    sheet.findings.extend(found);
    if let Some(list) = unclear {
        let names = |silent: bool| {
            let those =
                single().filter(|(_, facts)| facts.identity.is_none() == silent && !older(facts, list));
            those.map(|(name, _)| &***name).collect::<Vec<_>>()
        };
        let (silent, young) = (names(true), names(false));
        // A client of ours does not record this list for long once a node of it has stopped answering.
        let severity = if !silent.is_empty() && list.recorded <= SETTLED {
            Severity::Warning
        } else {
            Severity::Unknown
        };
        // As in [`older`]: a list that is as old as the server may be of the one before.
        let restarted = format!("restarted since, or up to {} before", duration::format(SETTLED));
        let why = [(silent, "not answering"), (young, &*restarted)];
        let why = why.into_iter().filter(|(names, _)| !names.is_empty());
        let why: Vec<_> = why.map(|(names, why)| format!("{}: {why}", names.join(", "))).collect();
        let evidence = format!(
            "a list of nodes that a client recorded {} ago cannot be compared with ours ({})",
            duration::format(list.recorded),
            why.join("; ")
        );
        let cure = "compare the nodes in the settings of all clients; or check again when these nodes have been up \
                    for an hour: lists are forgotten by then";
        sheet.cured(severity, Check::OtherNodes, evidence, cure);
    }
}

/// Whether the node has the same identity now as in a list, if it is in that.
fn older(facts: &Facts, list: &NodeList) -> bool {
    facts.identity.is_some() && list.recorded.saturating_add(SETTLED) < age(facts)
}

/// Names the other key prefixes under which clients lock here.
fn other_prefixes(case: &Case<'_>, sheet: &mut Findings<'_>) {
    let found: BTreeSet<&str> = case
        .examined
        .iter()
        .flat_map(|(_, facts)| facts.other_prefixes.iter().map(|prefix| &**prefix))
        .collect();
    let named = found.iter().map(|prefix| match *prefix {
        "" => "no key prefix".to_owned(),
        prefix => format!("the key prefix `{}`", printable(prefix)),
    });
    let named = named.collect::<Vec<_>>().join(", ");
    if !named.is_empty() {
        let evidence = format!(
            "other clients have locked on these nodes with {named} in the last month: their locks and ours of the same \
             name do not exclude each other"
        );
        sheet.note(Severity::Note, Check::OtherPrefixes, evidence);
    }
}

fn plain_text(case: &Case<'_>, sheet: &mut Findings<'_>) {
    let open = case
        .examined
        .iter()
        .filter(|(_, facts)| facts.place.as_ref().is_some_and(|place| !place.encrypted && !place.is_here()));
    let names: Vec<&str> = open.map(|(name, _)| &***name).collect();
    if !names.is_empty() {
        let evidence = format!("tokens and passwords are sent unencrypted to {}", names.join(" and "));
        sheet.note(Severity::Note, Check::PlainText, evidence);
    }
}
