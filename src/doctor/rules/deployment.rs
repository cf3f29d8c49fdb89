//! Findings about the deployment as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Findings, age, alike, duration, network};
use crate::doctor::finding::{Check, Finding, Severity, Subject};
use crate::doctor::report::{NodeReport, Standing};
use crate::doctor::setting::Setting;
use crate::node::facts::{ClockReading, Facts, Location, Role};
use crate::node::lists::SETTLED;
use quorlock_protocol::{Quorum, list_of_nodes, printable};

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
        let id: String = identity.chars().take(8).collect();
        let evidence = format!("{} are one server (run_id {id}…)", names.join(" and "));
        sheet.note(Severity::Unsafe, Check::SameServer, evidence);
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
    if here > 0 {
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

/// Returns the finding that another client has the list of nodes `others`, which differs from `ours`.
pub(crate) fn lists_differ(ours: &str, quorum: Quorum, others: &str, recorded: Option<Duration>) -> Finding {
    let (count, known): (usize, BTreeSet<&str>) = (others.split(' ').count(), ours.split(' ').collect());
    let shared = others.split(' ').filter(|node| known.contains(node)).count();
    let ours = ours.split(' ').count();
    let seen = recorded.map_or_else(String::new, |ago| format!(", {} ago", duration::format(ago)));
    // If theirs is a majority: it may be more.
    let meet = quorum.needed() + Quorum::majority(count).needed() > ours + count - shared;
    let (severity, so) = if meet {
        (
            Severity::Warning,
            "each of our quorums shares a node with each majority of its nodes, but one more change may end that",
        )
    } else {
        (Severity::Unsafe, "its quorum may have no node in common with ours, and then both hold one lock")
    };
    let evidence = format!(
        "another client locks on {}, of which {shared} {} among our {ours}{seen}: {so}",
        if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") },
        if shared == 1 { "is" } else { "are" },
    );
    let cure = Check::OtherNodes.cure().to_owned();
    Finding { severity, subject: Subject::Deployment, check: Check::OtherNodes, evidence, cure }
}

/// Compares the lists of nodes that clients have recorded with ours. The identity of a node changes when it
/// restarts, so lists from before the last restart, and shortly after it, say nothing.
fn other_nodes(case: &Case<'_>, sheet: &mut Findings<'_>) {
    let ids: Option<Vec<&str>> = case
        .examined
        .iter()
        .map(|(_, facts)| facts.identity.as_deref().filter(|_| facts.role != Some(Role::Cluster)))
        .collect();
    let complete = case.examined.len() == case.setting.quorum.nodes();
    let Some(ours) = ids.filter(|_| complete).map(list_of_nodes) else { return };
    let young = case.examined.iter().map(|(_, facts)| age(facts)).min().unwrap_or_default();
    let mut others: BTreeMap<&str, Duration> = BTreeMap::new();
    for list in case.examined.iter().flat_map(|(_, facts)| &facts.node_lists) {
        if *list.nodes != *ours && list.recorded.saturating_add(SETTLED) < young {
            let latest = others.entry(&list.nodes).or_insert(list.recorded);
            *latest = list.recorded.min(*latest);
        }
    }
    let quorum = case.setting.quorum;
    let found = others.into_iter().map(|(others, ago)| lists_differ(&ours, quorum, others, Some(ago)));
    sheet.findings.extend(found);
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
