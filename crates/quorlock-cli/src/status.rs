//! `quorlock status`: who holds a lock, node by node.

use std::io::{self, Write as _};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use quorlock::{Ballot, Expiry, FencingToken, Holder, Paper, Said};
use serde_json::{Value, json};

use crate::args::{DeploymentArgs, StatusArgs};
use crate::config::Settings;
use crate::exit;
use crate::failure::Failure;
use crate::report::{length, millis};
use crate::runtime::block_on;

/// Asks all nodes and prints what they say.
pub(crate) fn status(args: &StatusArgs, deployment: DeploymentArgs) -> Result<u8, Failure> {
    let settings = Settings::load(deployment)?;
    let ballot = block_on(async {
        let coordinator = settings.coordinator()?;
        let ballot = coordinator.lock(&args.resource).inspect().await;
        ballot.map_err(|error| Failure::of_acquiring(error, exit::HELD))
    })?;
    let finding = Finding::of(&ballot);
    let text = if args.json {
        format!("{}\n", in_json(&args.resource, &ballot, &finding))
    } else {
        format!("{}\n\n`{}` {}\n", table(&ballot).trim_fmt(), args.resource, finding.in_words(&ballot))
    };
    io::stdout().write_all(text.as_bytes()).map_err(Failure::to_write)?;
    Ok(match finding {
        Finding::Held(_) | Finding::Free => exit::SUCCESS,
        Finding::Unclear(_) => exit::NO_QUORUM,
    })
}

/// What the answers add up to.
enum Finding {
    /// Somebody has a quorum.
    Held(Holder),
    /// Nobody has one, whatever the silent nodes would say.
    Free,
    /// The silent nodes decide.
    Unclear(Option<Holder>),
}

impl Finding {
    fn of(ballot: &Ballot) -> Finding {
        let needed = ballot.quorum().needed();
        let answered = ballot.papers().iter().filter(|paper| is_answer(&paper.said)).count();
        let silent = ballot.quorum().nodes() - answered;
        match ballot.holder() {
            Some(holder) if holder.nodes >= needed => Finding::Held(holder),
            holder if answered < needed => Finding::Unclear(holder),
            Some(holder) if holder.nodes + silent >= needed => Finding::Unclear(Some(holder)),
            Some(_) | None => Finding::Free,
        }
    }

    fn in_words(&self, ballot: &Ballot) -> String {
        let quorum = ballot.quorum();
        let answered = ballot.papers().iter().filter(|paper| is_answer(&paper.said)).count();
        match self {
            Finding::Held(holder @ Holder { fence, nodes, remaining, .. }) => format!(
                "is held by {} at {nodes} of {} nodes for up to {} more{}",
                holder.describe(),
                quorum.nodes(),
                length(*remaining),
                fence.map_or_else(String::new, |fence| format!(", with fencing token {fence}"))
            ),
            Finding::Free => match ballot.holder() {
                None => "is free".to_owned(),
                Some(holder @ Holder { nodes, .. }) => format!(
                    "is free: {} stands at {nodes} of {} nodes, fewer than the {} needed; it is being \
                     acquired, or its rest is about to end",
                    holder.describe(),
                    quorum.nodes(),
                    quorum.needed()
                ),
            },
            Finding::Unclear(holder) => {
                let seen = holder.as_ref().map_or_else(String::new, |holder| {
                    format!("; {} holds it at {} of them at least", holder.describe(), holder.nodes)
                });
                format!(
                    "may be free or held, there is no quorum: {answered} of {} nodes answered, {} needed{seen}",
                    quorum.nodes(),
                    quorum.needed(),
                )
            }
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Finding::Held(_) => "held",
            Finding::Free => "free",
            Finding::Unclear(_) => "unknown",
        }
    }
}

/// Whether a node has said who holds its key.
fn is_answer(said: &Said) -> bool {
    match said {
        Said::Held(_) | Said::Free | Said::Granted | Said::Restored => true,
        Said::Quarantined { .. } | Said::Duplicate { .. } | Said::Failed(_) | Said::Skipped | _ => false,
    }
}

fn table(ballot: &Ballot) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["node", "state", "holder", "remaining", "fence", "round trip"]);
    for paper in ballot.papers() {
        let (state, holder, remaining) = if let Said::Held(holding) = &paper.said {
            let (state, remaining) = match holding.expiry {
                Expiry::In(remaining) => ("held", length(remaining)),
                Expiry::Never => ("data, no lock", "for ever".to_owned()),
            };
            (state.to_owned(), holding.describe(), remaining)
        } else {
            (paper.said.to_string(), String::new(), String::new())
        };
        let fence = paper.fence.map(|fence| fence.to_string()).unwrap_or_default();
        table.add_row([paper.node.to_string(), state, holder, remaining, fence, round_trip(paper)]);
    }
    for column in [3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn round_trip(paper: &Paper) -> String {
    if is_answer(&paper.said) { format!("{} µs", paper.took.as_micros()) } else { String::new() }
}

fn in_json(resource: &str, ballot: &Ballot, finding: &Finding) -> Value {
    let holder = ballot.holder();
    let holder = holder.map(|holder| {
        json!({
            "context": holder.token.to_string(),
            "readers": holder.readers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "token": holder.token.short(),
            "fence": holder.fence.map(FencingToken::get),
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
            "state": "held",
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
        if let Some(fence) = paper.fence {
            node.insert("fence".to_owned(), json!(fence.get()));
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
