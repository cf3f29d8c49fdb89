//! The note of the largest `max_ttl`, which each server keeps for its clients (rule I-37).
//!
//! A client reads it, and leaves its own there if that is larger, at the handshake. The server remembers that
//! the connection has read it, and pushes when another client changes it, it expires or is deleted. The client
//! then does the same again. Clients that agree write nothing, so none of this repeats itself.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value, cmd};
use tracing::warn;

use super::connection::value;
use super::promotion::answer;
use super::resp::encode::CommandWriter;
use super::scripts;
use super::settings::{Notices, Settings};
use crate::doctor::Finding;
use crate::doctor::rules::max_ttl_differs;
use crate::node::MaxTtlNotes;
use crate::node::max_ttls::millis;
use quorlock_protocol::max_ttl_note;

/// How long a server remembers the `max_ttl` of a client that has gone: longer than most programs run, but
/// not forever, since it may have been a mistake. Connected clients leave it again when it expires.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);

/// The note of one server.
#[derive(Clone)]
pub(crate) struct MaxTtlNote {
    key: Arc<str>,
    all: MaxTtlNotes,
    notices: Notices,
}

impl MaxTtlNote {
    /// Returns the note, unless the restart guard is off or no client compares.
    pub(super) fn of(settings: &Settings) -> Option<MaxTtlNote> {
        let (gate, all) = settings.gate.as_ref().zip(settings.max_ttls.clone())?;
        Some(MaxTtlNote { key: max_ttl_note(gate).into(), all, notices: settings.notices })
    }

    /// Returns its key.
    pub(super) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// Returns the request for the note in the handshake.
    pub(super) fn request(&self) -> Cmd {
        let mut script = cmd("EVAL");
        script.arg(scripts::MAX_TTL.text()).arg(1).arg(&*self.key);
        script.arg(millis(self.all.ours())).arg(millis(REMEMBERED));
        script
    }

    /// Appends the same request to those of the session.
    pub(super) fn ask(&self, outbox: &mut Vec<u8>) {
        let mut command = CommandWriter::begin(outbox);
        command.word("EVAL").word(scripts::MAX_TTL.text()).number(1).word(&*self.key);
        command.number(millis(self.all.ours())).number(millis(REMEMBERED));
        command.end();
    }

    /// Compares the largest `max_ttl` in the note with ours, and logs a new difference.
    pub(super) fn hear(&self, node: &str, theirs: Duration) {
        if self.notices == Notices::SentElsewhere {
            return;
        }
        if let Some(theirs) = self.all.hear(theirs) {
            let Finding { check, evidence, cure, .. } = max_ttl_differs(self.all.ours(), theirs);
            warn!(%node, finding = %check, cure, "{evidence}");
        }
    }
}

/// Returns the `max_ttl` in a reply. `None` if the server may not say, or had none.
pub(super) fn max_ttl_answer(noted: &Value) -> Option<Duration> {
    answer(noted).filter(|theirs| !theirs.is_zero())
}

/// Like [`max_ttl_answer`], of a reply as it was received.
pub(super) fn max_ttl_in(reply: &[u8]) -> Option<Duration> {
    value(reply).ok().as_ref().and_then(max_ttl_answer)
}
