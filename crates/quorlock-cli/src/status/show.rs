//! How the answers are shown.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use quorlock::{Ballot, Expiry, FencingToken, Paper, Said, Token};
use serde_json::{Value, json};

use super::finding::{Finding, is_answer};
use crate::report::{length, millis};

/// A table for people, a line for each node, in lines of at most `width` if that is given.
pub(super) fn table(ballot: &Ballot, width: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "node",
        "state",
        "holder",
        "remaining",
        "fencing token",
        "round trip",
    ]);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    for paper in ballot.papers() {
        let (state, holder, remaining) = if let Said::Held(holding) = &paper.said {
            let (state, remaining) = match holding.expiry {
                Expiry::In(remaining) => (held(&holding.token), length(remaining)),
                Expiry::Never => ("data, no lock", "for ever".to_owned()),
            };
            (state.to_owned(), holding.describe(), remaining)
        } else {
            (paper.said.to_string(), String::new(), String::new())
        };
        let fencing_token = paper.fencing_token.map(|number| number.to_string()).unwrap_or_default();
        table.add_row([paper.node.to_string(), state, holder, remaining, fencing_token, round_trip(paper)]);
    }
    for column in [3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Whether by a process, or for the rest of a slot.
fn held(token: &Token) -> &'static str {
    if token.is_retained() { "retained" } else { "held" }
}

fn round_trip(paper: &Paper) -> String {
    if is_answer(&paper.said) { format!("{} µs", paper.took.as_micros()) } else { String::new() }
}

/// All of it, for programs.
pub(super) fn in_json(resource: &str, ballot: &Ballot, finding: &Finding) -> Value {
    let holder = ballot.holder();
    let holder = holder.map(|holder| {
        json!({
            "context": holder.token.to_string(),
            "readers": holder.readers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "token": holder.token.short(),
            "fencing_token": holder.fencing_token.map(FencingToken::get),
            "nodes": holder.nodes,
            "remaining_ms": millis(holder.remaining),
        })
    });
    json!({
        "resource": resource,
        "state": finding.word(),
        "quorum": ballot.quorum().needed(),
        "holder": holder,
        "nodes": ballot.papers().iter().map(node_in_json).collect::<Vec<_>>(),
    })
}

fn node_in_json(paper: &Paper) -> Value {
    let mut node = json!({ "node": &*paper.node });
    let said = if let Said::Held(holding) = &paper.said {
        let remaining = match holding.expiry {
            Expiry::In(remaining) => Some(millis(remaining)),
            Expiry::Never => None,
        };
        json!({
            "state": held(&holding.token),
            "holder": holding.describe(),
            "token": holding.token.short(),
            "remaining_ms": remaining,
        })
    } else if is_answer(&paper.said) {
        json!({ "state": "free" })
    } else {
        json!({ "state": "unknown", "error": paper.said.to_string() })
    };
    if let (Some(node), Value::Object(said)) = (node.as_object_mut(), said) {
        node.extend(said);
        if let Some(fencing_token) = paper.fencing_token {
            node.insert("fencing_token".to_owned(), json!(fencing_token.get()));
        }
        if is_answer(&paper.said) {
            node.insert(
                "round_trip_us".to_owned(),
                json!(u64::try_from(paper.took.as_micros()).unwrap_or(u64::MAX)),
            );
        }
    }
    node
}

/// What has to differ for a change to be worth a word: neither the time that remains, nor how fast
/// the nodes are.
pub(super) fn gist(ballot: &Ballot, finding: &Finding) -> String {
    let node = |paper: &Paper| {
        if let Said::Held(holding) = &paper.said {
            format!("{:?} {:?}", holding.token, holding.readers)
        } else if is_answer(&paper.said) {
            "free".to_owned()
        } else {
            "unknown".to_owned()
        }
    };
    format!("{} {}", finding.word(), ballot.papers().iter().map(node).collect::<Vec<_>>().join(" "))
}
