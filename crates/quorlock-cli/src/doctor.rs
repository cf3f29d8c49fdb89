//! `quorlock doctor`: checks the nodes, and says how to fix what is wrong.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use comfy_table::Table;
use quorlock::{
    Wait,
    doctor::{Finding, NodeReport, Report, Severity, Standing, Subject, Summary},
    duration,
    protocol::{micros, printable},
};
use serde_json::{Value, json};

use crate::config::Settings;
use crate::deployment::DeploymentArgs;
use crate::exit;
use crate::failure::Failure;
use crate::metrics;
use crate::paint::Paint;
use crate::report::{self, json_line, millis, row};
use crate::runtime::block_on;
use crate::stdout;
use crate::values::{Switch, WaitArg};
use crate::width::{self, wrapped};

pub(crate) use again::examine;

mod again;

/// `quorlock doctor`.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 79 for warnings too
    #[arg(long)]
    pub(crate) strict: bool,
    /// Check again every second until the exit code is 0, for up to DURATION, or `forever` [default: check
    /// once].
    ///
    /// With --strict, until there is nothing to warn of: every node votes. What is printed, and the exit code, are
    /// those of the last check.
    #[arg(short, long, value_name = "DURATION")]
    pub(crate) wait: Option<WaitArg>,
    /// Write the result as metrics to this file, for the textfile collector of the node exporter [default:
    /// off]
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics_file: Option<PathBuf>,
    /// TTL of the locks, by which round trips are judged [default: 30s]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// Whether the clients exclude recently restarted nodes from voting [default: on]
    #[arg(long, value_name = "WHETHER")]
    pub(crate) restart_guard: Option<Switch>,
}

/// Checks all nodes and prints the findings.
pub(crate) fn doctor(args: &DoctorArgs, deployment: DeploymentArgs, quiet: bool) -> Result<u8, Failure> {
    let settings = Settings::load_for_lock(deployment, args.restart_guard, args.ttl, None)?;
    let WaitArg(wait) = args.wait.unwrap_or(WaitArg(Wait::Never));
    let in_the_way = |examination: &Report| {
        (exit_code(examination, args.strict) != exit::SUCCESS).then(|| in_short(examination))
    };
    let report = report::Report::to(args.json, quiet);
    let examination =
        block_on(async { Ok(examine(&settings.coordinator()?, wait, report, in_the_way).await) })?;
    let code = exit_code(&examination, args.strict);
    if let Some(path) = &args.metrics_file {
        metrics::of_doctor(path, &examination, code)?;
    }
    let text = if args.json {
        json_line(&in_json(&examination, code))
    } else if quiet {
        findings(&examination, Paint::for_stdout(), Severity::Warning)
    } else {
        let paint = Paint::for_stdout();
        let listed = findings(&examination, paint, Severity::Note);
        let gap = if listed.is_empty() { "" } else { "\n" };
        format!("{}\n\n{listed}{gap}{}\n", table(&examination).trim_fmt(), verdict(&examination, paint))
    };
    stdout::print(&text)?;
    Ok(code)
}

/// Formats the findings other than notes, and the verdict.
pub(crate) fn summarized(examination: &Report) -> String {
    let paint = Paint::none();
    let listed = findings(examination, paint, Severity::Warning);
    let gap = if listed.is_empty() { "" } else { "\n" };
    format!("{listed}{gap}{}", verdict(examination, paint))
}

/// Returns the exit code: no quorum comes before unsafe.
pub(crate) fn exit_code(examination: &Report, strict: bool) -> u8 {
    match examination.summary() {
        Summary::NoQuorum => exit::NO_QUORUM,
        Summary::Unsafe => exit::UNSAFE,
        Summary::Sound | Summary::Unclear | _ if strict && examination.has(Severity::Warning) => exit::UNSAFE,
        Summary::Sound | Summary::Unclear | _ => exit::SUCCESS,
    }
}

/// Returns after which time a quorum votes, if all that keeps it from voting is that servers were started or promoted
/// recently.
pub(crate) fn votes_in(examination: &Report) -> Option<Duration> {
    let left = |node: &NodeReport| match node.standing {
        Standing::Votes => Some(Duration::ZERO),
        Standing::Quarantined { left } => Some(left),
        Standing::Excluded { .. } | Standing::Unknown | _ => None,
    };
    let mut lefts: Vec<Duration> = examination.nodes.iter().filter_map(left).collect();
    lefts.sort_unstable();
    lefts.get(examination.quorum.needed().checked_sub(1)?).copied().filter(|left| !left.is_zero())
}

/// Returns in one line what is wrong.
fn in_short(examination: &Report) -> String {
    let wrong = examination.findings.iter().filter(|finding| finding.severity <= Severity::Warning);
    let codes = wrong.map(|finding| match node(finding) {
        Some(node) => format!("{node} {}", finding.check),
        None => finding.check.to_string(),
    });
    format!("{} ({})", counted(examination), codes.collect::<Vec<_>>().join(", "))
}

fn table(examination: &Report) -> Table {
    let headings = ["node", "server", "up", "p50", "p99", "clock", "vote"];
    let mut table = width::table(headings, &[2, 3, 4, 5], None);
    for node in &examination.nodes {
        let software = node.software.as_ref();
        let trips = node.round_trips;
        table.add_row(row([
            node.name.to_string(),
            software.map(|software| format!("{} {}", software.name, software.version)).unwrap_or_default(),
            node.uptime.map(duration::format).unwrap_or_default(),
            trips.map(|trips| duration::format(trips.median)).unwrap_or_default(),
            trips.map(|trips| duration::format(trips.p99)).unwrap_or_default(),
            node.clock.map(|clock| ahead(clock.ahead_micros)).unwrap_or_default(),
            vote(&node.standing),
        ]));
    }
    table
}

/// Returns whether a node votes; the findings say why not.
fn vote(standing: &Standing) -> String {
    match standing {
        Standing::Votes => "yes".to_owned(),
        Standing::Quarantined { left } => format!("in {}", duration::format(*left)),
        Standing::Excluded { .. } => "no".to_owned(),
        Standing::Unknown | _ => "unknown".to_owned(),
    }
}

/// Formats how far a clock is ahead of ours.
fn ahead(micros: i64) -> String {
    let sign = if micros < 0 { '-' } else { '+' };
    format!("{sign}{}", duration::format(Duration::from_micros(micros.unsigned_abs())))
}

/// Formats the findings down to severity `least`, worst first. Those that differ only in the node are merged.
fn findings(examination: &Report, paint: Paint, least: Severity) -> String {
    let mut noted: Vec<(&str, &str)> = Vec::new();
    let mut blocks = Vec::new();
    for finding in examination.findings.iter().filter(|finding| finding.severity <= least) {
        let kind = (&*finding.evidence, &*finding.cure);
        if noted.contains(&kind) {
            continue;
        }
        noted.push(kind);
        let alike = examination.findings.iter().filter(|other| (&*other.evidence, &*other.cure) == kind);
        let nodes: Vec<&str> = alike.filter_map(node).collect();
        let who = if nodes.is_empty() { String::new() } else { format!("{}: ", nodes.join(", ")) };
        let word = format!("{:8}", finding.severity);
        let word = match finding.severity {
            Severity::Unsafe => paint.bad(word),
            Severity::Warning => paint.strong(word),
            Severity::Unknown | Severity::Note | _ => paint.faint(word),
        };
        let (matter, cure) = (finding.check, paint.faint("cure:"));
        let evidence = beside(MARGIN, &printable(&format!("{who}{}", finding.evidence)).to_string());
        let remedy = beside(MARGIN + "cure: ".len(), &printable(&finding.cure).to_string());
        blocks.push(format!("{word} {matter:14} {evidence}\n{:23} {cure} {remedy}\n", ""));
    }
    blocks.concat()
}

/// The indentation of findings.
const MARGIN: usize = 24;

/// Wraps `text` to the terminal, right of `margin`.
fn beside(margin: usize, text: &str) -> String {
    let Some(width) = width::of(io::stdout()) else { return text.to_owned() };
    // A narrower terminal breaks the lines itself.
    let width = width.saturating_sub(margin).max(MARGIN);
    wrapped(text, width).join(&format!("\n{:margin$}", ""))
}

fn node(finding: &Finding) -> Option<&str> {
    match &finding.subject {
        Subject::Node(node) => Some(node),
        Subject::Deployment | _ => None,
    }
}

fn counted(examination: &Report) -> String {
    let voting = examination.nodes.iter().filter(|node| node.standing == Standing::Votes).count();
    let (nodes, needed) = (examination.nodes.len(), examination.quorum.needed());
    format!("{voting} of {nodes} nodes vote, {needed} needed")
}

fn verdict(examination: &Report, paint: Paint) -> String {
    let counted = counted(examination);
    match examination.summary() {
        Summary::Sound => format!("{}: {counted}", paint.good("locks can be held safely")),
        Summary::Unsafe => format!("{}: {counted}", paint.bad("locks can be held, but are not safe")),
        Summary::NoQuorum => format!("{}: {counted}", paint.bad("no lock can be acquired")),
        Summary::Unclear | _ => format!("unknown whether locks can be held: {counted}"),
    }
}

fn in_json(examination: &Report, code: u8) -> Value {
    let summary = match examination.summary() {
        Summary::Sound => "sound",
        Summary::Unsafe => "unsafe",
        Summary::NoQuorum => "no_quorum",
        Summary::Unclear | _ => "unknown",
    };
    json!({
        "summary": summary,
        "exit_code": code,
        "quorum": examination.quorum.needed(),
        "nodes": examination.nodes.iter().map(node_in_json).collect::<Vec<_>>(),
        "findings": examination.findings.iter().map(finding_in_json).collect::<Vec<_>>(),
    })
}

fn node_in_json(report: &NodeReport) -> Value {
    let (vote, reason) = match &report.standing {
        Standing::Votes => ("yes", None),
        Standing::Quarantined { left } => ("later", Some(format!("in {}", duration::format(*left)))),
        Standing::Excluded { reason } => ("no", Some(reason.to_string())),
        Standing::Unknown | _ => ("unknown", None),
    };
    json!({
        "node": &*report.name,
        "server": report.software.as_ref().map(|software| software.name),
        "version": report.software.as_ref().map(|software| &software.version),
        "uptime_ms": report.uptime.map(millis),
        "round_trip_p50_us": report.round_trips.map(|trips| micros(trips.median)),
        "round_trip_p99_us": report.round_trips.map(|trips| micros(trips.p99)),
        "clock_ahead_us": report.clock.map(|clock| clock.ahead_micros),
        "clock_uncertainty_us": report.clock.map(|clock| micros(clock.uncertainty)),
        "vote": vote,
        "reason": reason,
    })
}

fn finding_in_json(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity.word(),
        "finding": finding.check.code(),
        "node": node(finding),
        "evidence": finding.evidence,
        "cure": finding.cure,
    })
}
