//! How long a promoted server has been master (rule I-17, ADR 2).
//!
//! Its uptime does not show that, and nothing else in its report does. So the first client that meets it as a
//! master leaves a note, with the time by the server's own clock. The note names the process and its
//! replication history, which changes with each promotion: a replicated copy of its master's note, or the
//! note of an earlier promotion, is ignored.

use std::time::Duration;

use redis::{Pipeline, Value};

use super::connection::{Connection, text};
use super::error::{Peer, SentCommand, failed, refused, unconnected, unexpected};
use super::info::Info;
use super::process::Process;
use super::scripts;
use crate::node::{NodeError, NodeErrorKind};

/// Returns how long the promoted server process has been known as master. Records it, if no client has
/// before.
pub(super) async fn master_since(
    connection: &mut Connection,
    gate: &str,
    process: &Process,
    history: &str,
    user: &str,
) -> Result<Duration, NodeError> {
    let mut pipeline = Pipeline::with_capacity(2);
    for words in [&request(gate, &process.run_id, history)[..], &["INFO".into(), "replication".into()]] {
        let mut words = words.iter();
        pipeline.cmd(words.next().map_or("", String::as_str));
        for word in words {
            pipeline.arg(word);
        }
    }
    let mut answers = connection.exchange(&pipeline).await.map_err(unconnected)?.into_iter();
    let noted = answers.next().ok_or_else(silence)?;
    if let Value::ServerError(error) = &noted {
        return Err(refused(error, SentCommand { command: "EVAL", key: gate, user, peer: Peer::Server }));
    }
    // The process must still be a master with the same history: otherwise the note may be one that was
    // replicated from another master.
    let info = answers.next().and_then(text).ok_or_else(silence)?;
    let info = Info::of(&info);
    if info.field("role") != Some("master") || info.field("master_replid") != Some(history) {
        return Err(failed(NodeErrorKind::Busy, "it was promoted or made a replica during the handshake"));
    }
    answer(&noted).ok_or_else(silence)
}

/// Returns the command that reads and writes the note.
pub(super) fn request(gate: &str, run_id: &str, history: &str) -> [String; 5] {
    let script = scripts::GATE.text().to_owned();
    ["EVAL".into(), script, "1".into(), gate.into(), format!("{run_id}:{history}")]
}

/// Returns the time in the reply.
pub(super) fn answer(noted: &Value) -> Option<Duration> {
    let Value::Int(millis) = noted else { return None };
    u64::try_from(*millis).ok().map(Duration::from_millis)
}

fn silence() -> NodeError {
    unexpected("unexpected reply about its promotion")
}
