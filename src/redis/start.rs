//! How long a server process has been known, by its own clock and those of its clients (rules I-24 and I-51, ADR 2).
//!
//! A server computes its uptime from its wall clock. If that was set forward after the start, as on a machine
//! that boots with a wrong clock, a process of a few seconds seems hours old. So the first client that meets
//! a young process leaves a note, with the time at which it must have started by the client's own clock. No
//! client takes the process for older than that. A client that notices that the process has lost its data since replaces
//! the note: its history begins anew.
//!
//! The clocks of two clients may differ by more than a lock lives, and nothing else limits the age of a history that
//! has begun anew. So the note has the time by the server's clock as well, by which its age is the same for all
//! clients, and the clock counts that says less. No note is replaced by one that says that the history began earlier.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value, cmd};

use super::connection::{Connection, ConnectionError, text};
use super::scripts;

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
    /// When its history began, by its own wall clock.
    pub(super) began: Duration,
    /// The same by the wall clock of that client.
    by_client: Duration,
    /// Whether the server's clock was set back to before its start: its uptime is too short then, also once it is none
    /// that is impossible.
    pub(super) set_back: bool,
    /// Whether it has begun anew, because that client has seen that data were lost.
    pub(super) is_anew: bool,
}

/// What the wall clocks say.
#[derive(Clone, Copy, Debug)]
pub(super) struct WallClocks {
    /// The server's, a moment ago, if this user may read it.
    pub(super) server: Option<Duration>,
    pub(super) ours: Duration,
}

/// What is to be noted of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ToNote {
    /// How old its history is.
    pub(super) age: Duration,
    pub(super) set_back: bool,
    pub(super) is_anew: bool,
}

/// Returns what a client has noted of this process. A note of another process is ignored.
pub(super) fn noted(note: Option<Value>, run_id: &str) -> Option<Note> {
    let note = text(note?)?;
    let mut words = note.split(' ');
    words.next().filter(|process| *process == run_id)?;
    let mut time = || words.next()?.parse().ok().map(Duration::from_millis);
    let (began, by_client) = (time()?, time()?);
    let mut note = Note { began, by_client, set_back: false, is_anew: false };
    for word in words {
        match word {
            SET_BACK => note.set_back = true,
            ANEW => note.is_anew = true,
            _ => return None,
        }
    }
    Some(note)
}

impl Note {
    /// Returns how old the history is, by the clock that says less. The other client's and ours do not count where the
    /// note is from the future, as one of the two is wrong then, unless they may just differ a little; nor does the
    /// server's.
    pub(super) fn age(&self, WallClocks { server, ours }: WallClocks) -> Option<Duration> {
        let is_past = self.by_client <= ours.saturating_add(APART);
        let by_ours = is_past.then(|| ours.saturating_sub(self.by_client));
        match server.filter(|server| *server >= self.began) {
            Some(server) => Some(server.saturating_sub(self.began).min(by_ours.unwrap_or(Duration::MAX))),
            // Nothing else limits this one.
            None if self.is_anew => Some(Duration::ZERO),
            None => by_ours,
        }
    }

    /// Whether the history stays new until the note is replaced, as the server's clock was set back since.
    pub(super) fn stays_new(&self, WallClocks { server, .. }: WallClocks) -> bool {
        self.is_anew && server.is_some_and(|server| server < self.began)
    }
}

/// Records of what age the history of a process is, if that is young. Nothing depends on whether that works: a full server
/// or a user without permission leaves no note. Returns what is noted then, which may be by another client.
pub(super) async fn leave_note(
    connection: &mut Connection,
    gate: &str,
    run_id: &str,
    note: ToNote,
    ours: Duration,
) -> Result<Option<Note>, ConnectionError> {
    if note.age >= NOTABLE {
        return Ok(None);
    }
    let mut command = Pipeline::with_capacity(1);
    command.cmd("EVAL");
    for word in note.words(gate, run_id, ours) {
        command.arg(word);
    }
    let left = connection.exchange(&command).await?.into_iter().next();
    Ok(noted(left, run_id))
}

impl ToNote {
    /// Returns the script that leaves the note at `ours`, our time, and its arguments.
    pub(super) fn words(&self, gate: &str, run_id: &str, ours: Duration) -> [String; 7] {
        let mut words = String::new();
        for (holds, word) in [(self.set_back, SET_BACK), (self.is_anew, ANEW)] {
            if holds {
                words.extend([" ", word]);
            }
        }
        let script = scripts::START.text().to_owned();
        let times = [self.age, ours.saturating_sub(self.age)].map(|time| time.as_millis().to_string());
        let [age, began] = times;
        [script, "1".into(), key(gate), run_id.into(), age, began, words]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(note: &str) -> Option<Note> {
        noted(Some(Value::BulkString(note.into())), "abc")
    }

    /// The age of a note at 1000 s by our clock, and at `server` seconds by the server's.
    fn age_of(text: &str, server: Option<u64>) -> Option<Duration> {
        note(text)?
            .age(WallClocks { server: server.map(Duration::from_secs), ours: Duration::from_secs(1000) })
    }

    #[test]
    fn i24_a_note_counts_for_its_process_and_from_the_past() {
        assert_eq!(age_of("abc 7 990000", None), Some(Duration::from_secs(10)));
        assert_eq!(age_of("abc 7 1000000", None), Some(Duration::ZERO));
        assert_eq!(age_of("abc 7 1005000", None), Some(Duration::ZERO), "a clock that is a little behind");
        for other in [
            "abd 7 990000",
            "abc 7 1005001",
            "abc 990000",
            "abc",
            "abc 7 -5",
            "abc 7 99999999999999999999999",
            " ",
            "",
        ] {
            assert_eq!(age_of(other, None), None, "{other}");
        }
        assert_eq!(noted(Some(Value::Nil), "abc"), None);
        assert_eq!(noted(None, "abc"), None);
        let marks = |text: &str| note(text).map(|note| (note.set_back, note.is_anew));
        assert_eq!(
            (marks("abc 7 7"), marks("abc 7 7 set-back")),
            (Some((false, false)), Some((true, false)))
        );
        assert_eq!(
            (marks("abc 7 7 anew"), marks("abc 7 7 set-back anew")),
            (Some((false, true)), Some((true, true)))
        );
        assert_eq!((marks("abc 7 7 else"), marks("abc 7 7 set-back x")), (None, None));
    }

    #[test]
    fn i51_a_note_ages_by_the_clock_that_says_less() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (text, server, age) in [
            ("abc 500000 970000 anew", 520, 20),
            // The client that has left it is ahead of us, or we are ahead of it.
            ("abc 500000 1012000 anew", 520, 20),
            ("abc 500000 900000 anew", 520, 20),
            // The server's clock was set forward since, or back.
            ("abc 500000 970000 anew", 5000, 30),
            ("abc 500000 970000 anew", 400, 0),
            ("abc 500000 970000", 520, 20),
            ("abc 500000 970000", 400, 30),
        ] {
            assert_eq!(age_of(text, Some(server)), seconds(age), "{text} at {server}");
        }
        assert_eq!(age_of("abc 500000 900000 anew", None), seconds(0), "only the server's clock would count");
        let stays_new = |text: &str, server: Option<u64>| {
            let server = server.map(Duration::from_secs);
            note(text).unwrap().stays_new(WallClocks { server, ours: Duration::ZERO })
        };
        assert!(stays_new("abc 500000 970000 anew", Some(499)) && !stays_new("abc 500000 970000", Some(499)));
        assert!([Some(500), None].iter().all(|server| !stays_new("abc 500000 970000 anew", *server)));
    }

    #[test]
    fn the_note_has_the_slot_of_that_of_a_promotion() {
        assert_eq!(key("jobs:{23848}:quorlock:gate:reign"), "jobs:{23848}:quorlock:gate:start");
    }
}
