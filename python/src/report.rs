//! What nodes said, as the classes of `quorlock.votes`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use pyo3::IntoPyObjectExt as _;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use quorlock::doctor::{Finding, Subject};
use quorlock::duration;
use quorlock::election::Observed;
use quorlock::health::{NodeHealth, NodeStatus};
use quorlock::lock::{HoldLog, QueueListing, SeenHold, Waiting};
use quorlock::node::Expiry;
use quorlock::protocol::machine::wait::Count;
use quorlock::protocol::{Mode, printable};
use quorlock::votes::{Holder, NodeVote, VoteOutcome, VoteReport};

use crate::kept::VOTES;
use crate::keywords::for_python;

fn make<'py>(py: Python<'py>, class: &str, arguments: impl PyCallArgs<'py>) -> PyResult<Py<PyAny>> {
    Ok(VOTES.get(py, class)?.call1(arguments)?.unbind())
}

pub(crate) fn of_votes(py: Python<'_>, report: &VoteReport) -> PyResult<Py<PyAny>> {
    let votes = report.votes().iter().map(|vote| one(py, vote)).collect::<PyResult<Vec<_>>>()?;
    let holder = holder(py, report.holder().as_ref())?;
    let unknown = Count::of(report).is_unknown();
    make(
        py,
        "VoteReport",
        (votes, report.quorum().needed(), report.granted(), holder, unknown, for_python(report.to_string())),
    )
}

fn one(py: Python<'_>, vote: &NodeVote) -> PyResult<Py<PyAny>> {
    let outcome = match &vote.outcome {
        VoteOutcome::Granted => "granted",
        VoteOutcome::Restored => "restored",
        VoteOutcome::Held(_) => "held",
        VoteOutcome::NotYourTurn => "not_your_turn",
        VoteOutcome::FenceAhead => "fence_ahead",
        VoteOutcome::Free => "free",
        VoteOutcome::Quarantined { .. } => "quarantined",
        VoteOutcome::Duplicate { .. } => "duplicate",
        VoteOutcome::Pending => "pending",
        VoteOutcome::Failed(_) => "failed",
        VoteOutcome::Skipped => "skipped",
        _ => "unknown",
    };
    let fencing_token = vote.fencing_token.map(u64::from);
    let arguments =
        (&*vote.node, outcome, for_python(vote.outcome.to_string()), vote.took.as_secs_f64(), fencing_token);
    make(py, "Vote", arguments)
}

pub(crate) fn holder(py: Python<'_>, holder: Option<&Holder>) -> PyResult<Py<PyAny>> {
    let Some(holder) = holder else { return Ok(py.None()) };
    let arguments = (
        holder.token.as_bytes(),
        holder.token.context(),
        holder.fencing_token.map(u64::from),
        holder.nodes,
        seconds(holder.remaining),
        holder.readers.len(),
        holder.describe(),
    );
    make(py, "Holder", arguments)
}

pub(crate) fn waiting(py: Python<'_>, waiting: &Waiting) -> PyResult<Py<PyAny>> {
    let holder = holder(py, waiting.holder.as_ref())?;
    let arguments =
        (holder, waiting.ahead, waiting.processes, waiting.waited.as_secs_f64(), waiting.to_string());
    make(py, "Waiting", arguments)
}

/// Infinity if it never expires.
fn seconds(remaining: Expiry) -> f64 {
    match remaining {
        Expiry::In(remaining) => remaining.as_secs_f64(),
        Expiry::Never => f64::INFINITY,
    }
}

pub(crate) fn observed(py: Python<'_>, observed: &Observed) -> PyResult<Py<PyAny>> {
    match observed {
        Observed::Leader(leader) => {
            let fencing_token = leader.fencing_token.map(u64::from);
            let leader = make(py, "Leader", (&leader.value, fencing_token, seconds(leader.remaining)))?;
            make(py, "Observed", (leader,))
        }
        Observed::NoLeader => make(py, "Observed", (py.None(),)),
        Observed::Unknown(report) => make(py, "Observed", (py.None(), of_votes(py, report)?)),
    }
}

pub(crate) fn queue(py: Python<'_>, listing: &QueueListing) -> PyResult<Py<PyAny>> {
    let waiters = listing.waiters.iter().map(|waiter| {
        make(py, "Waiter", (waiter.id.to_string(), waiter.waited.as_secs_f64(), &waiter.context))
    });
    make(py, "Waiters", (waiters.collect::<PyResult<Vec<_>>>()?, listing.has_more))
}

pub(crate) fn log(py: Python<'_>, log: &HoldLog) -> PyResult<Py<PyAny>> {
    let holds = log.holds.iter().map(|seen| hold(py, seen)).collect::<PyResult<Vec<_>>>()?;
    make(py, "HoldLog", (holds, of_votes(py, &log.report)?))
}

fn hold(py: Python<'_>, SeenHold { hold, nodes, .. }: &SeenHold) -> PyResult<Py<PyAny>> {
    let acquired = (SystemTime::UNIX_EPOCH + hold.acquired).into_pyobject(py)?;
    let is_shared = hold.mode == Mode::Shared;
    let text = format!(
        "{}, {}{} for {}: {}",
        acquired.call_method1("isoformat", (" ", "seconds"))?,
        printable(&hold.context),
        if is_shared { " (shared)" } else { "" },
        duration::format(hold.held_for),
        hold.end
    );
    let arguments = (
        &hold.context,
        acquired,
        hold.held_for.as_secs_f64(),
        hold.end.word(),
        hold.fencing_token.map(u64::from),
        is_shared,
        &hold.id,
        nodes,
        text,
    );
    make(py, "LoggedHold", arguments)
}

pub(crate) fn health(py: Python<'_>, nodes: &[NodeHealth]) -> PyResult<Py<PyAny>> {
    let nodes = nodes.iter().map(|node| {
        let status = match node.status {
            NodeStatus::Unknown => "unknown",
            NodeStatus::Connected => "connected",
            NodeStatus::Quarantined { .. } => "quarantined",
            NodeStatus::Refusing { .. } => "refusing",
            NodeStatus::Partial { .. } => "partial",
            NodeStatus::Stalled { .. } => "stalled",
            NodeStatus::Unreachable { .. } => "unreachable",
            _ => "other",
        };
        let round_trip = node.round_trip.map(|time| time.as_secs_f64());
        let lasted = node.lasted.as_secs_f64();
        make(
            py,
            "NodeHealth",
            (&*node.node, status, for_python(node.status.to_string()), lasted, node.restarts, round_trip),
        )
    });
    nodes.collect::<PyResult<Vec<_>>>()?.into_py_any(py)
}

pub(crate) fn names(
    py: Python<'_>,
    names: &BTreeSet<Arc<str>>,
    failed: BTreeMap<String, String>,
) -> PyResult<Py<PyAny>> {
    make(py, "Names", (names.iter().map(|name| &**name).collect::<Vec<_>>(), failed))
}

pub(crate) fn findings(py: Python<'_>, findings: &[Finding]) -> PyResult<Py<PyAny>> {
    let findings = findings.iter().map(|finding| {
        let node = match &finding.subject {
            Subject::Node(node) => Some(&**node),
            Subject::Deployment | _ => None,
        };
        let [evidence, cure] = [&finding.evidence, &finding.cure].map(|words| for_python(words.clone()));
        let text = for_python(finding.to_string());
        make(py, "Finding", (finding.severity.word(), node, finding.check.code(), evidence, cure, text))
    });
    findings.collect::<PyResult<Vec<_>>>()?.into_py_any(py)
}
