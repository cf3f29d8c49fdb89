//! Since when a server that was promoted is the master that it is (rule I-17, ADR 13).
//!
//! Its uptime does not tell, and nothing else that it says of itself does. So the first client that
//! meets it as a master leaves a note there, with the time on the server's own clock. The note names
//! the process and its replication history, which changes with each promotion: the copy that a
//! replica has of its master's note, or the note of an earlier reign, counts for nothing.

use std::time::Duration;

use redis::{Pipeline, Value};

use super::connection::{Connection, text};
use super::error::{Peer, SentCommand, failed, refused, unconnected, unexpected};
use super::process::Process;
use super::scripts;
use crate::node::max_ttls::millis;
use crate::node::{NodeError, NodeErrorKind};
use quorlock_protocol::max_ttl_note;

/// For how long the process at the other end, which was promoted, has been known as a master. Notes
/// it, if nobody has before.
pub(super) async fn reign(
    line: &mut Connection,
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
    let mut answers = line.exchange(&pipeline).await.map_err(unconnected)?.into_iter();
    let noted = answers.next().ok_or_else(silence)?;
    if let Value::ServerError(error) = &noted {
        return Err(refused(error, SentCommand { command: "EVAL", key: gate, user, peer: Peer::Server }));
    }
    // What it was a moment ago, it must still be: else the note may be one that came with the data of
    // another master.
    let info = answers.next().and_then(text).ok_or_else(silence)?;
    if super::info::field(&info, "role") != Some("master")
        || super::info::field(&info, "master_replid") != Some(history)
    {
        return Err(failed(
            NodeErrorKind::Busy,
            "it was promoted or made a replica while it introduced itself",
        ));
    }
    answer(&noted).ok_or_else(silence)
}

/// The words that ask, and note.
pub(super) fn request(gate: &str, run_id: &str, history: &str) -> [String; 5] {
    let script = scripts::GATE.text().to_owned();
    ["EVAL".into(), script, "1".into(), gate.into(), format!("{run_id}:{history}")]
}

/// The time in the answer.
pub(super) fn answer(noted: &Value) -> Option<Duration> {
    let Value::Int(millis) = noted else { return None };
    u64::try_from(*millis).ok().map(Duration::from_millis)
}

/// For how long a node remembers the `max_ttl` of a client, from its last connection on: longer than most
/// programs run, and not for ever, since it may have been a mistake.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);

/// The words that ask which `max_ttl` other clients have, and note ours.
pub(super) fn max_ttl_request(gate: &str, ours: Duration) -> [String; 6] {
    let (script, note) = (scripts::MAX_TTL.text().to_owned(), max_ttl_note(gate));
    ["EVAL".into(), script, "1".into(), note, millis(ours).to_string(), millis(REMEMBERED).to_string()]
}

/// The `max_ttl` in the answer to that. A node that must not say, or knows of none, tells nothing.
pub(super) fn max_ttl_answer(noted: &Value) -> Option<Duration> {
    answer(noted).filter(|theirs| !theirs.is_zero())
}

fn silence() -> NodeError {
    unexpected("unexpected answer to the request since when it is a master")
}
