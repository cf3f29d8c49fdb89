//! Looks at what stands at the nodes, behind the library's back.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quorlock_history::{Stamp, What};
use quorlock_testkit::{Resp, ask};

use crate::record::stamp;
use crate::stage::{Stage, node_name};

/// Keys that belong to a lock and are none begin so.
const SIBLINGS: &str = "quorlock:";
const COUNTERS: (&str, &str) = ("quorlock:fence:{", "}:counter");

/// Looks at every node that no fault is at work on, and records what stands there. Says how many
/// locks' keys there are.
pub(crate) async fn look(stage: &Stage) -> usize {
    let mut keys = 0;
    for number in stage.sound_nodes() {
        let at = stamp();
        let Ok(seen) = look_at(stage.masters.address(number), &node_name(number)).await else { continue };
        // A fault that has begun meanwhile: what was seen may be neither before nor after it.
        if !stage.sound_nodes().contains(&number) {
            continue;
        }
        keys += seen.iter().filter(|what| matches!(what, What::Key { .. })).count();
        for what in seen {
            record(stage, at, what);
        }
    }
    keys
}

fn record(stage: &Stage, at: Stamp, what: What) {
    stage.recorder.record_at(at, what);
}

async fn look_at(address: SocketAddr, node: &str) -> io::Result<Vec<What>> {
    let mut seen = Vec::new();
    let Resp::List(keys) = ask(address, &["KEYS", "*"]).await? else { return Ok(seen) };
    for key in keys {
        let key = key.to_string();
        if key.starts_with(SIBLINGS) {
            seen.extend(counter(address, node, &key).await?);
            continue;
        }
        let Resp::Text(value) = ask(address, &["GET", &key]).await? else { continue };
        let value = String::from_utf8_lossy(&value);
        let Resp::Number(millis) = ask(address, &["PTTL", &key]).await? else { continue };
        let remaining = match u64::try_from(millis) {
            Ok(millis) => Duration::from_millis(millis),
            Err(_) if millis == -1 => Duration::MAX,
            // It has just ended.
            Err(_) => continue,
        };
        // The value ends with the label, which is the attempt's name.
        let attempt = value.rsplit(' ').next().unwrap_or_default();
        seen.push(What::Key { node: node.into(), resource: key.into(), attempt: attempt.into(), remaining });
    }
    Ok(seen)
}

async fn counter(address: SocketAddr, node: &str, key: &str) -> io::Result<Option<What>> {
    let Some(resource) = key.strip_prefix(COUNTERS.0).and_then(|rest| rest.strip_suffix(COUNTERS.1)) else {
        return Ok(None);
    };
    let value = ask(address, &["GET", key]).await?.to_string();
    let counter = |value| What::Counter { node: node.into(), resource: resource.into(), value };
    Ok(value.parse().ok().map(counter))
}
