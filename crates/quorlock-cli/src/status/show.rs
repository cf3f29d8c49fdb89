//! Formats the answers, as a table and as JSON.

use std::time::Duration;

use quorlock::{
    FencingToken, Token, duration,
    lock::{QueueListing, QueuedWaiter},
    node::Expiry,
    protocol::{micros, printable},
    votes::{NodeVote, VoteOutcome, VoteReport},
};
use serde_json::{Value, json};

use super::finding::{Finding, is_answer};
use crate::report::{left_in_millis, millis, row};
use crate::time_left;
use crate::width::{self, keep_whole, wrapped};

/// Returns a table with a row per node, in lines of at most `width` if given. The reasons of silent nodes follow
/// it, since a sentence would make the table too wide.
pub(super) fn table(report: &VoteReport, width: Option<usize>) -> String {
    let headings = ["node", "state", "holder", "remaining", "fencing token", "round trip"];
    let mut table = width::table(headings, &[3, 4, 5], width);
    let mut silent: Vec<(String, Vec<&str>)> = Vec::new();
    for vote in report.votes() {
        let name = vote.node.strip_prefix("redis://").unwrap_or(&vote.node);
        let (state, holder, remaining) = if let VoteOutcome::Held(holding) = &vote.outcome {
            let is_lock = holding.expiry != Expiry::Never || holding.is_place;
            let state = if is_lock { held(&holding.token) } else { "data, no lock" };
            (state.to_owned(), holding.describe(), time_left::in_cell(holding.expiry))
        } else if let VoteOutcome::Quarantined { left, .. } = vote.outcome {
            (format!("free, no vote for {}", duration::format(left)), String::new(), String::new())
        } else if is_answer(&vote.outcome) {
            (vote.outcome.to_string(), String::new(), String::new())
        } else {
            let why = vote.outcome.to_string();
            match silent.iter_mut().find(|(known, _)| *known == why) {
                Some((_, nodes)) => nodes.push(name),
                None => silent.push((why, vec![name])),
            }
            ("unknown".to_owned(), String::new(), String::new())
        };
        let fencing_token = vote.fencing_token.map(|number| number.to_string()).unwrap_or_default();
        table.add_row(row([name.to_owned(), state, holder, remaining, fencing_token, round_trip(vote)]));
    }
    keep_whole(&mut table, width, &[0, 3, 4, 5]);
    let mut shown = table.trim_fmt();
    for (why, nodes) in silent {
        let line = printable(&format!("{}: {why}", nodes.join(", "))).to_string();
        shown.push('\n');
        shown.push_str(&width.map_or_else(|| line.clone(), |width| wrapped(&line, width).join("\n")));
    }
    shown
}

/// Returns whether a process holds the lock, or it is retained for the rest of a slot.
fn held(token: &Token) -> &'static str {
    if token.is_retained() { "retained" } else { "held" }
}

fn round_trip(vote: &NodeVote) -> String {
    if is_answer(&vote.outcome) { duration::format(vote.took) } else { String::new() }
}

/// Returns everything as JSON.
pub(super) fn in_json(
    resource: &str,
    report: &VoteReport,
    quarantines: &[Duration],
    finding: &Finding,
    queue: &QueueListing,
) -> Value {
    let holder = report.holder();
    let holder = holder.map(|holder| {
        let mut shown = json!({
            "context": holder.token.to_string(),
            "readers": holder.readers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "token": holder.token.short(),
            "fencing_token": holder.fencing_token.map(FencingToken::get),
            "nodes": holder.nodes,
            "remaining_ms": left_in_millis(holder.remaining),
        });
        add_depth(&mut shown, holder.depth);
        shown
    });
    let nodes = report.votes().iter().zip(quarantines).map(|(vote, left)| node_in_json(vote, *left));
    json!({
        "resource": resource,
        "state": finding.word(),
        "quorum": report.quorum().needed(),
        "holder": holder,
        "locked_no_sooner_than_ms": match finding {
            Finding::Unclear(_) => millis(report.quarantined_for()),
            Finding::Held(_) | Finding::Free => 0,
        },
        "waiters": queue.waiters.iter().map(waiter_in_json).collect::<Vec<_>>(),
        "more_waiters": queue.has_more,
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

/// Adds how often the holder has acquired the lock, where the nodes count it.
pub(crate) fn add_depth(holder: &mut Value, depth: Option<u64>) {
    if let (Some(holder), Some(depth)) = (holder.as_object_mut(), depth) {
        holder.insert("depth".to_owned(), json!(depth));
    }
}

fn waiter_in_json(waiter: &QueuedWaiter) -> Value {
    json!({
        "id": waiter.id.to_string(),
        "context": waiter.context,
        "waited_ms": millis(waiter.waited),
    })
}

/// Returns lines about the waiters, in the order of the queue; the first ones by name.
pub(super) fn waiters(QueueListing { waiters, has_more, .. }: &QueueListing) -> Vec<String> {
    if waiters.is_empty() {
        return Vec::new();
    }
    let more = if *has_more { " or more" } else { "" };
    let wait = if waiters.len() == 1 { "process waits" } else { "processes wait, in this order" };
    let mut lines = vec![format!("{}{more} {wait}:", waiters.len())];
    lines.extend(
        waiters.iter().take(SHOWN_WAITERS).map(|waiter| {
            format!("  {}, for {}", printable(&waiter.context), duration::format(waiter.waited))
        }),
    );
    if waiters.len() > SHOWN_WAITERS {
        lines.push(format!("  and {}{more}", waiters.len() - SHOWN_WAITERS));
    }
    lines
}

/// The waiters shown by name.
const SHOWN_WAITERS: usize = 8;

fn node_in_json(vote: &NodeVote, quarantine: Duration) -> Value {
    let mut node = json!({ "node": &*vote.node });
    let described = if let VoteOutcome::Held(holding) = &vote.outcome {
        json!({
            "state": held(&holding.token),
            "holder": holding.describe(),
            "token": holding.token.short(),
            "remaining_ms": left_in_millis(holding.expiry),
        })
    } else if is_answer(&vote.outcome) {
        json!({ "state": "free" })
    } else {
        json!({ "state": "unknown", "error": vote.outcome.to_string() })
    };
    if let (Some(node), Value::Object(described)) = (node.as_object_mut(), described) {
        node.extend(described);
        if let Some(fencing_token) = vote.fencing_token {
            node.insert("fencing_token".to_owned(), json!(fencing_token.get()));
        }
        if !quarantine.is_zero() {
            node.insert("no_vote_for_ms".to_owned(), json!(millis(quarantine)));
        }
        if is_answer(&vote.outcome) {
            node.insert("round_trip_us".to_owned(), json!(micros(vote.took)));
        }
    }
    node
}

/// Returns what must differ for a change to be shown: neither remaining times nor round trips.
pub(super) fn gist(report: &VoteReport, finding: &Finding, queue: &QueueListing) -> String {
    let node = |vote: &NodeVote| {
        if let VoteOutcome::Held(holding) = &vote.outcome {
            format!("{:?} {:?}", holding.token, holding.readers)
        } else if is_answer(&vote.outcome) {
            "free".to_owned()
        } else {
            "unknown".to_owned()
        }
    };
    let nodes = report.votes().iter().map(node).collect::<Vec<_>>().join(" ");
    let waiters: Vec<_> = queue.waiters.iter().map(|waiter| waiter.id.to_string()).collect();
    format!("{} {nodes} {}", finding.word(), waiters.join(" "))
}
