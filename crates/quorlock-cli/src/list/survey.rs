//! Asks the nodes for the names of locks, and for each lock of a name.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{Stream, iter};
use quorlock::{Coordinator, node::ListedKeys};

use super::entry::Seen;
use crate::report::{self, Report, progress};
use crate::runtime::{now, sleep_until};
use crate::status::look_at;

/// The names of locks at all nodes.
pub(crate) struct Survey {
    pub(crate) names: BTreeSet<Arc<str>>,
    /// The nodes that could not be listed to the end, and why.
    failed: Vec<(Arc<str>, String)>,
    nodes: usize,
}

/// Lists the names that begin with `prefix`, and shows how many there are so far.
pub(crate) async fn names(
    coordinator: &Coordinator,
    prefix: &str,
    which: ListedKeys,
    report: Report,
) -> Survey {
    let nodes = coordinator.health().now().len();
    let mut survey = Survey { names: BTreeSet::new(), failed: Vec::new(), nodes };
    let mut pages = coordinator.list(prefix, which);
    let mut show_at = now() + SHOW_AFTER;
    let mut shown = false;
    while let Some(page) = pages.next_page().await {
        match page.names {
            Ok(names) => survey.names.extend(names),
            Err(error) => survey.failed.push((page.node, error.to_string())),
        }
        if report.may_show_progress() && now() >= show_at {
            progress(&format!("listing: {} locks so far", survey.names.len()));
            (shown, show_at) = (true, now() + SHOW_AFTER);
        }
    }
    if shown {
        progress("");
    }
    survey
}

/// Most listings take less.
const SHOW_AFTER: Duration = Duration::from_millis(500);

impl Survey {
    /// Whether every lock that a majority holds is listed: the nodes that were listed intersect every majority.
    pub(crate) fn is_complete(&self) -> bool {
        self.failed.len() <= self.nodes / 2 && self.failed.len() < self.nodes
    }

    /// Says how many nodes could be listed, if those are too few.
    pub(crate) fn gap(&self) -> Option<String> {
        let listed = self.nodes.saturating_sub(self.failed.len());
        let needed = (self.nodes - self.nodes / 2).max(1);
        (!self.is_complete())
            .then(|| format!("{listed} of {} nodes could be listed, {needed} needed", self.nodes))
    }

    /// Says which nodes could not be listed, and whether locks may be missing.
    pub(crate) fn warn(&self) {
        for (node, why) in &self.failed {
            report::warn(&format!("{node} could not be listed: {why}"));
        }
        if !self.is_complete() {
            report::warn("too many nodes could not be listed: held locks may be missing");
        }
    }
}

/// Looks at the locks of these names, at a bounded rate, and returns those that are held, or may be, in the same order.
pub(crate) fn entries(
    coordinator: &Coordinator,
    names: impl Iterator<Item = Arc<str>>,
) -> impl Stream<Item = Seen> {
    let began = now();
    iter(names.enumerate())
        .map(move |(number, name)| async move {
            let turn = EACH.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
            sleep_until(began + turn).await;
            // A name that cannot work belongs to other data.
            look_at(coordinator, name.to_string()).await.ok().and_then(Seen::of)
        })
        .buffered(AT_A_TIME)
        .filter_map(async |entry| entry)
}

/// One lock in this time: two scripts for each node, of 10 to 25 us each.
const EACH: Duration = Duration::from_millis(1);
/// At 100 ms to a node this still makes 1,000 in a second.
const AT_A_TIME: usize = 128;
