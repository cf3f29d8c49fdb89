//! How long a server process has been known, by the clocks of its clients (rules I-24 and I-51, ADR 2).
//!
//! A server computes its uptime from its wall clock. If that was set forward after the start, as on a machine
//! that boots with a wrong clock, a process of a few seconds seems hours old. So the first client that meets
//! a young process leaves a note, with the time at which it must have started by the client's own clock. No
//! client takes the process for older than that. A client that notices that the process has lost its data since replaces
//! the note: its history begins anew.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value, cmd};

use super::connection::{Connection, ConnectionError, text};

/// An older history needs no note: every lock that it can have lost has expired.
const NOTABLE: Duration = Duration::from_secs(60 * 60);

/// What follows in the note of a process whose uptime is not to be believed.
const SET_BACK: &str = "set-back";

/// What follows in the note of a history that has begun anew.
const ANEW: &str = "anew";

/// By how much the clocks of two clients may differ: a history that another client has just noted is of age zero.
const APART: Duration = Duration::from_secs(5);

/// Returns the key of the note, next to that of a promotion.
pub(super) fn key(gate: &str) -> String {
    format!("{}start", gate.strip_suffix("reign").unwrap_or(gate))
}

/// Returns the request for the note.
pub(super) fn request(gate: &str) -> Cmd {
    cmd("GET").arg(key(gate)).clone()
}

/// What a client has noted of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Note {
    /// When its history began, by the wall clock of that client.
    pub(super) began: Duration,
    /// Whether the server's clock was set back to before its start: its uptime is too short then, also once it is none
    /// that is impossible.
    pub(super) set_back: bool,
    /// Whether it has begun anew, because that client has seen that data were lost.
    pub(super) is_anew: bool,
}

/// Returns what a client has noted of this process. A note of another process is ignored.
pub(super) fn noted(note: Option<Value>, run_id: &str) -> Option<Note> {
    let note = text(note?)?;
    let mut words = note.split(' ');
    let (process, millis) = (words.next()?, words.next()?);
    let began = millis.parse().ok().filter(|_| process == run_id).map(Duration::from_millis)?;
    let mut note = Note { began, set_back: false, is_anew: false };
    for word in words {
        match word {
            SET_BACK => note.set_back = true,
            ANEW => note.is_anew = true,
            _ => return None,
        }
    }
    Some(note)
}

/// Returns how long that is ago at `wall`, our time. A note from the future is ignored, as one of the two clocks is wrong,
/// unless they may just differ a little.
pub(super) fn known(began: Duration, wall: Duration) -> Option<Duration> {
    (began <= wall.saturating_add(APART)).then(|| wall.saturating_sub(began))
}

/// Records of what age the history of a process is, if that is young. Nothing depends on whether that works: a full server
/// or a user without permission leaves no note. Returns when it began, if it was recorded.
pub(super) async fn leave_note(
    connection: &mut Connection,
    gate: &str,
    run_id: &str,
    note: Note,
    wall: Duration,
) -> Result<Option<Duration>, ConnectionError> {
    if wall.saturating_sub(note.began) >= NOTABLE {
        return Ok(None);
    }
    let millis = note.began.as_millis();
    let mut text = format!("{run_id} {millis}");
    for (holds, word) in [(note.set_back, SET_BACK), (note.is_anew, ANEW)] {
        if holds {
            text.extend([" ", word]);
        }
    }
    let mut command = Pipeline::with_capacity(1);
    command.cmd("SET").arg(key(gate)).arg(text);
    connection.exchange(&command).await?;
    Ok(u64::try_from(millis).ok().map(Duration::from_millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age_of(note: &str) -> Option<Duration> {
        known(noted(Some(Value::BulkString(note.into())), "abc")?.began, Duration::from_secs(1000))
    }

    #[test]
    fn i24_a_note_counts_for_its_process_and_from_the_past() {
        assert_eq!(age_of("abc 990000"), Some(Duration::from_secs(10)));
        assert_eq!(age_of("abc 1000000"), Some(Duration::ZERO));
        assert_eq!(age_of("abc 1005000"), Some(Duration::ZERO), "a clock that is a little behind");
        for other in ["abd 990000", "abc 1005001", "abc", "abc -5", "abc 99999999999999999999999", " ", ""] {
            assert_eq!(age_of(other), None, "{other}");
        }
        assert_eq!(noted(Some(Value::Nil), "abc"), None);
        assert_eq!(noted(None, "abc"), None);
        let marks = |note: &str| {
            let noted = noted(Some(Value::BulkString(note.into())), "abc");
            noted.map(|note| (note.set_back, note.is_anew))
        };
        assert_eq!((marks("abc 7"), marks("abc 7 set-back")), (Some((false, false)), Some((true, false))));
        assert_eq!(
            (marks("abc 7 anew"), marks("abc 7 set-back anew")),
            (Some((false, true)), Some((true, true)))
        );
        assert_eq!((marks("abc 7 else"), marks("abc 7 set-back x")), (None, None));
    }

    #[test]
    fn the_note_has_the_slot_of_that_of_a_promotion() {
        assert_eq!(key("jobs:{23848}:quorlock:gate:reign"), "jobs:{23848}:quorlock:gate:start");
    }
}
