//! Reads what the nodes store, without the library.

use quorlock_history::{Stamp, What};

use crate::environment::{Environment, node_name};
use crate::record::stamp;

/// Inspects every node that has no fault and records what it stores. Returns the number of lock keys.
pub(crate) async fn inspect(environment: &Environment) -> usize {
    let mut keys = 0;
    for number in environment.sound_nodes() {
        let at = stamp();
        let Ok(seen) = environment.masters.inspect(number, &node_name(number)).await else { continue };
        // A fault began meanwhile: the reads may be partly before and partly after it.
        if !environment.sound_nodes().contains(&number) {
            continue;
        }
        keys += seen.iter().filter(|what| matches!(what, What::Key { .. })).count();
        for what in seen {
            record(environment, at, what);
        }
    }
    keys
}

fn record(environment: &Environment, at: Stamp, what: What) {
    environment.recorder.record_at(at, what);
}
