//! How long a server process has been known, by the clocks of its clients (rule I-24, ADR 2).
//!
//! A server computes its uptime from its wall clock. If that was set forward after the start, as on a machine
//! that boots with a wrong clock, a process of a few seconds seems hours old. So the first client that meets
//! a young process leaves a note, with the time at which it must have started by the client's own clock. No
//! client takes the process for older than that.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value, cmd};

use super::connection::{Connection, ConnectionError, text};
use super::process::Process;

/// An older process needs no note: every lock that it can have lost has expired.
const NOTABLE: Duration = Duration::from_secs(60 * 60);

/// Returns the key of the note, next to that of a promotion.
pub(super) fn key(gate: &str) -> String {
    format!("{}start", gate.strip_suffix("reign").unwrap_or(gate))
}

/// Returns the request for the note.
pub(super) fn request(gate: &str) -> Cmd {
    cmd("GET").arg(key(gate)).clone()
}

/// Returns how long this process has been known at `wall`, our time. A note of another process is ignored, as
/// is one from the future: one of the two clocks is wrong.
pub(super) fn known(note: Option<Value>, run_id: &str, wall: Duration) -> Option<Duration> {
    let note = text(note?)?;
    let (process, millis) = note.rsplit_once(' ')?;
    let started = Duration::from_millis(millis.parse().ok().filter(|_| process == run_id)?);
    wall.checked_sub(started)
}

/// Records when a young process must have started, if no client has before. Nothing depends on whether that
/// works: a full server or a user without permission leaves no note.
pub(super) async fn note(
    connection: &mut Connection,
    gate: &str,
    process: &Process,
    wall: Duration,
) -> Result<(), ConnectionError> {
    if process.uptime >= NOTABLE {
        return Ok(());
    }
    let started = wall.saturating_sub(process.uptime).as_millis();
    let mut command = Pipeline::with_capacity(1);
    command.cmd("SET").arg(key(gate)).arg(format!("{} {started}", process.run_id));
    connection.exchange(&command).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age_of(note: &str) -> Option<Duration> {
        known(Some(Value::BulkString(note.into())), "abc", Duration::from_secs(1000))
    }

    #[test]
    fn i24_a_note_counts_for_its_process_and_from_the_past() {
        assert_eq!(age_of("abc 990000"), Some(Duration::from_secs(10)));
        assert_eq!(age_of("abc 1000000"), Some(Duration::ZERO));
        for other in ["abd 990000", "abc 1000001", "abc", "abc -5", "abc 99999999999999999999999", " ", ""] {
            assert_eq!(age_of(other), None, "{other}");
        }
        assert_eq!(known(Some(Value::Nil), "abc", Duration::MAX), None);
        assert_eq!(known(None, "abc", Duration::MAX), None);
    }

    #[test]
    fn the_note_has_the_slot_of_that_of_a_promotion() {
        assert_eq!(key("jobs:{23848}:quorlock:gate:reign"), "jobs:{23848}:quorlock:gate:start");
    }
}
