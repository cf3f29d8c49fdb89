//! The lists of nodes of the clients, which each server keeps for them (rule I-49).

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tracing::warn;

use super::connection::value;
use super::resp::encode::CommandWriter;
use super::scripts;
use super::settings::{Membership, Notices, Settings};
use crate::doctor::Finding;
use crate::doctor::rules::lists_differ;
use crate::node::facts::NodeList;
use crate::node::lists::NodeLists;
use quorlock_protocol::{Moment, lists_note};

/// How often a client records its list, at most: with the first requests after this time.
pub(super) const EVERY: Duration = Duration::from_secs(30);
/// How soon it looks again whether there is one to record: all nodes share it, and requests must not wait for it.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// How long a server keeps a list: longer than the pause between two runs of most jobs.
const KEPT: Duration = Duration::from_secs(3600);

/// The lists on one server.
pub(crate) struct NodeListsNote {
    key: String,
    pub(super) all: Arc<NodeLists>,
}

impl NodeListsNote {
    /// Returns the note, unless the restart guard is off, no client compares, or the server is a part of its node.
    pub(super) fn of(settings: &Settings) -> Option<NodeListsNote> {
        let (gate, all) = settings.gate.as_ref().zip(settings.lists.clone())?;
        let compares = settings.membership == Membership::Alone && settings.notices == Notices::Logged;
        compares.then(|| NodeListsNote { key: lists_note(gate), all })
    }

    /// Appends the request that records our list and reads the others, if there is one to record. Returns whether it
    /// did.
    pub(super) fn ask(&self, outbox: &mut Vec<u8>, now: Moment) -> bool {
        let Some(ours) = self.all.ours(now) else { return false };
        let mut command = CommandWriter::begin(outbox);
        command.word("EVAL").word(scripts::NODE_LISTS.text()).number(1).word(&self.key).word(&*ours);
        command.number(u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX));
        command.end();
        true
    }

    /// Compares the lists in the reply with ours, and logs a new difference.
    pub(super) fn hear(&self, node: &str, reply: &[u8], now: Moment) {
        let lists = value(reply).map(lists_in).unwrap_or_default();
        let differing = self.all.hear(lists.into_iter().map(|list| (list.nodes, list.recorded)), now);
        if let Some((ours, theirs)) = differing {
            let Finding { check, evidence, cure, .. } = lists_differ(&ours, self.all.quorum(), &theirs, None);
            warn!(%node, finding = %check, cure, "{evidence}");
        }
    }
}

/// Returns the words of the request that only reads the lists.
pub(super) fn reading(gate: &str) -> [String; 6] {
    let script = scripts::NODE_LISTS.text().to_owned();
    ["EVAL".into(), script, "1".into(), lists_note(gate), String::new(), "0".into()]
}

/// Returns the lists in a reply. Those of the future are left out: the clock of the server was set back.
pub(super) fn lists_in(reply: Value) -> Vec<NodeList> {
    let Value::Array(words) = reply else { return Vec::new() };
    let pairs = words.chunks_exact(2).filter_map(|pair| {
        let [Value::BulkString(nodes), Value::Int(ago)] = pair else { return None };
        let nodes = std::str::from_utf8(nodes).ok()?;
        Some(NodeList::new(nodes, Duration::from_millis(u64::try_from(*ago).ok()?)))
    });
    pairs.collect()
}
