//! Reads what the nodes store, without the library.

use quorlock_history::What;

use crate::environment::{Environment, node_name};
use crate::record::stamp;

/// What an inspection has found.
#[derive(Default)]
pub(crate) struct Inspected {
    /// The number of lock keys.
    pub(crate) keys: usize,
    /// A message for each node that has no fault and could not be read.
    pub(crate) failed: Vec<String>,
}

/// Inspects every node that has no fault and records what it stores.
pub(crate) async fn inspect(environment: &Environment) -> Inspected {
    let mut inspected = Inspected::default();
    for number in environment.sound_nodes() {
        let at = stamp();
        let name = node_name(number);
        let seen = environment.masters.inspect(number, &name).await;
        // A fault began meanwhile: the reads may be partly before and partly after it.
        if !environment.sound_nodes().contains(&number) {
            continue;
        }
        let seen = seen.unwrap_or_else(|error| {
            inspected.failed.push(format!("{name} could not be searched for keys: {error}"));
            Vec::new()
        });
        inspected.keys += seen.iter().filter(|what| matches!(what, What::Key { .. })).count();
        for what in seen {
            environment.recorder.record_at(at, what);
        }
    }
    inspected
}
