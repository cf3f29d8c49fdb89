//! How the answers are shown.

use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table};
use quorlock::{Ballot, Expiry, FencingToken, Paper, Said, Token, duration};
use serde_json::{Value, json};

use super::finding::{Finding, is_answer};
use crate::report::millis;
use crate::width::wrapped;

/// A table for people, a line for each node, in lines of at most `width` if that is given. Why a node is
/// silent stands below: a sentence would make the table too wide.
pub(super) fn table(ballot: &Ballot, quarantines: &[Duration], width: Option<usize>) -> String {
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
        let width = u16::try_from(width).unwrap_or(u16::MAX);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    let mut silent: Vec<(String, Vec<&str>)> = Vec::new();
    for (paper, quarantine) in ballot.papers().iter().zip(quarantines) {
        let name = paper.node.strip_prefix("redis://").unwrap_or(&paper.node);
        let (state, holder, remaining) = if let Said::Held(holding) = &paper.said {
            let (state, remaining) = match holding.expiry {
                Expiry::In(remaining) => (held(&holding.token), duration::format(remaining)),
                Expiry::Never => ("data, no lock", "for ever".to_owned()),
            };
            (state.to_owned(), holding.describe(), remaining)
        } else if is_answer(&paper.said) && !quarantine.is_zero() {
            (format!("free, no vote for {}", duration::format(*quarantine)), String::new(), String::new())
        } else if is_answer(&paper.said) {
            (paper.said.to_string(), String::new(), String::new())
        } else {
            let why = paper.said.to_string();
            match silent.iter_mut().find(|(known, _)| *known == why) {
                Some((_, nodes)) => nodes.push(name),
                None => silent.push((why, vec![name])),
            }
            ("unknown".to_owned(), String::new(), String::new())
        };
        let fencing_token = paper.fencing_token.map(|number| number.to_string()).unwrap_or_default();
        table.add_row([name.to_owned(), state, holder, remaining, fencing_token, round_trip(paper)]);
    }
    for column in [3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if let Some(width) = width {
        keep_whole(&mut table, width);
    }
    let mut shown = table.trim_fmt();
    for (why, nodes) in silent {
        let line = format!("{}: {why}", nodes.join(", "));
        shown.push('\n');
        shown.push_str(&width.map_or_else(|| line.clone(), |width| wrapped(&line, width).join("\n")));
    }
    shown
}

/// Has only words wrapped, those of state and holder, as long as the rest leaves room for them: an address
/// or a number that is broken cannot be copied.
fn keep_whole(table: &mut Table, width: usize) {
    const LEAST_FOR_WORDS: usize = 16;
    const BETWEEN: usize = 2;
    let widths = table.column_max_content_widths();
    let whole = [0, 3, 4, 5];
    let taken: usize =
        whole.iter().filter_map(|column| widths.get(*column)).map(|width| usize::from(*width)).sum();
    if taken + BETWEEN * widths.len() + LEAST_FOR_WORDS > width {
        return;
    }
    for column in whole {
        if let Some(column) = table.column_mut(column) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

/// Whether by a process, or for the rest of a slot.
fn held(token: &Token) -> &'static str {
    if token.is_retained() { "retained" } else { "held" }
}

fn round_trip(paper: &Paper) -> String {
    if is_answer(&paper.said) { duration::format(paper.took) } else { String::new() }
}

/// All of it, for programs.
pub(super) fn in_json(resource: &str, ballot: &Ballot, quarantines: &[Duration], finding: &Finding) -> Value {
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
    let nodes = ballot.papers().iter().zip(quarantines).map(|(paper, left)| node_in_json(paper, *left));
    json!({
        "resource": resource,
        "state": finding.word(),
        "quorum": ballot.quorum().needed(),
        "holder": holder,
        "locked_no_sooner_than_ms": match finding {
            Finding::NotYet(left) => millis(*left),
            Finding::Held(_) | Finding::Free | Finding::Unclear(_) => 0,
        },
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

fn node_in_json(paper: &Paper, quarantine: Duration) -> Value {
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
        if !quarantine.is_zero() {
            node.insert("no_vote_for_ms".to_owned(), json!(millis(quarantine)));
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
    let not_yet = if matches!(finding, Finding::NotYet(_)) { " later" } else { "" };
    format!("{}{not_yet} {}", finding.word(), ballot.papers().iter().map(node).collect::<Vec<_>>().join(" "))
}
