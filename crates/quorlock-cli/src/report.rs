//! Reports on stderr, in words or as JSON.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;
use std::time::Duration;

use quorlock::protocol::{printable, printable_json};
use quorlock::{FencingToken, LossReason, duration, node::Expiry, votes::VoteReport};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::stderr::say;
use crate::wanted::LeaseWatch;
use crate::width;

/// The form of reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// Sentences.
    Words,
    /// Sentences, for errors only.
    Errors,
    /// One JSON object per line.
    Json,
}

static CHOSEN: OnceLock<Report> = OnceLock::new();

/// Chooses the form, before the first report.
pub(crate) fn choose(report: Report) {
    // Chosen once.
    let _ = CHOSEN.set(report);
}

/// Whether reports are JSON.
pub(crate) fn is_json() -> bool {
    CHOSEN.get() == Some(&Report::Json)
}

/// Prints a warning, unless errors only were asked for.
pub(crate) fn warn(sentence: &str) {
    match CHOSEN.get().copied().unwrap_or(Report::Words) {
        Report::Words => say(format!("quorlock: warning: {}\n", printable(sentence))),
        Report::Errors => {}
        Report::Json => say(warning(sentence)),
    }
}

/// Returns a warning as a JSON line.
pub(crate) fn warning(sentence: &str) -> String {
    json_line(&json!({ "event": "warning", "message": sentence }))
}

/// Prints a notice, also with `--quiet`. It may have several lines, so what it quotes must be [`printable`].
pub(crate) fn notice(text: &str) {
    say(if is_json() {
        json_line(&json!({ "event": "notice", "message": text }))
    } else {
        format!("quorlock: {text}\n")
    });
}

/// Returns JSON as a line of output. All JSON goes through here.
pub(crate) fn json_line(value: &Value) -> String {
    printable_json(&value.to_string()) + "\n"
}

/// Returns a row of a table. All rows go through here.
pub(crate) fn row<const CELLS: usize>(cells: [String; CELLS]) -> [String; CELLS] {
    cells.map(|cell| printable(&cell).to_string())
}

impl Report {
    /// Returns the form for these options.
    pub(crate) fn to(json: bool, quiet: bool) -> Report {
        match (json, quiet) {
            (true, _) => Report::Json,
            (false, true) => Report::Errors,
            (false, false) => Report::Words,
        }
    }

    pub(crate) fn acquired(self, lease: &LeaseWatch, waited: Duration) {
        self.event(&json!({
            "event": "acquired",
            "resource": lease.resource().as_str(),
            "token": lease.token().short(),
            "fencing_token": lease.fencing_token().map(FencingToken::get),
            "waited_ms": millis(waited),
            "remaining_ms": millis(lease.remaining()),
        }));
    }

    /// Reports that the command gets SIGTERM because the lock is about to expire, and SIGKILL after the `grace`;
    /// without grace, SIGKILL immediately.
    pub(crate) fn losing(self, lease: &LeaseWatch, reason: Reason, grace: Option<Duration>) {
        let (resource, left) = (lease.resource(), lease.remaining());
        let signal = if grace.is_some() { "SIGTERM" } else { "SIGKILL" };
        self.lost(resource.as_str(), &lease.token().short(), (reason, Some(signal)), left);
        let after =
            grace.map_or_else(String::new, |grace| format!(" now, SIGKILL in {}", duration::format(grace)));
        self.words(&format!(
            "stopping the command: the lock of `{resource}` {reason}; {left} left; {signal}{after}",
            left = duration::format(left)
        ));
    }

    /// Reports that the lock was lost, to a command that gets this `signal`, or has ended.
    pub(crate) fn lost(
        self,
        resource: &str,
        token: &str,
        (reason, signal): (Reason, Option<&str>),
        left: Duration,
    ) {
        self.event(&json!({
            "event": "lost",
            "resource": resource,
            "token": token,
            "reason": reason.word(),
            "signal": signal,
            "remaining_ms": millis(left),
        }));
    }

    pub(crate) fn released(self, resource: &str, token: &str, held: Duration) {
        self.event(&json!({
            "event": "released",
            "resource": resource,
            "token": token,
            "held_ms": millis(held),
        }));
    }

    /// The lock stays taken for so much longer, as far as a quorum says.
    pub(crate) fn retained(self, resource: &str, token: &str, held: Duration, left: Option<Duration>) {
        self.event(&json!({
            "event": "retained",
            "resource": resource,
            "token": token,
            "held_ms": millis(held),
            "confirmed": left.is_some(),
            "remaining_ms": left.map(millis),
        }));
    }

    /// Reports a release that no quorum has confirmed.
    pub(crate) fn unconfirmed(self, resource: &str, token: &str, held: Duration, report: &VoteReport) {
        self.event(&unconfirmed(resource, token, held, report));
        if self == Report::Errors {
            // Otherwise the library's warning says so.
            self.words(&not_confirmed(resource, report));
        }
    }

    /// Prints a sentence, unless reports are JSON.
    pub(crate) fn words(self, sentence: &str) {
        if self != Report::Json {
            say(format!("quorlock: {}\n", printable(sentence)));
        }
    }

    /// Whether to show a progress line on the terminal.
    pub(crate) fn may_show_progress(self) -> bool {
        self == Report::Words && io::stderr().is_terminal()
    }

    fn event(self, event: &Value) {
        if self == Report::Json {
            say(json_line(event));
        }
    }
}

/// Why a command is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason {
    /// No quorum renewed the lock.
    NotRenewed,
    /// `--max-hold` is over.
    MaxHold,
    /// The lock was lost before it expired.
    Lost(LossReason),
}

impl Reason {
    /// Returns its word in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Reason::NotRenewed | Reason::Lost(LossReason::Expired) => "not_renewed",
            Reason::MaxHold | Reason::Lost(LossReason::MaxHold) => "max_hold",
            Reason::Lost(LossReason::QuorumLost) => "forgotten_by_nodes",
            Reason::Lost(LossReason::Released | LossReason::Closed | _) => "ended",
        }
    }

    /// Returns its label in metrics, which is the library's.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Reason::NotRenewed | Reason::Lost(LossReason::Expired) => "expired",
            Reason::MaxHold | Reason::Lost(LossReason::MaxHold) => "max_hold",
            Reason::Lost(LossReason::QuorumLost) => "quorum_lost",
            Reason::Lost(LossReason::Released | LossReason::Closed | _) => "closed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotRenewed => f.write_str("was not renewed"),
            Reason::MaxHold => f.write_str("has been held for as long as --max-hold allows"),
            Reason::Lost(reason) => write!(f, "is over: {reason}"),
        }
    }
}

/// Returns the JSON event of a release that no quorum has confirmed.
pub(crate) fn unconfirmed(resource: &str, token: &str, held: Duration, report: &VoteReport) -> Value {
    json!({
        "event": "unconfirmed",
        "resource": resource,
        "token": token,
        "held_ms": millis(held),
        "message": not_confirmed(resource, report),
    })
}

/// Returns the sentence for it.
pub(crate) fn not_confirmed(resource: &str, report: &VoteReport) -> String {
    format!(
        "the release of `{}` was not confirmed, so it may stay locked until its TTL ends: {report}",
        printable(resource)
    )
}

/// Replaces the progress line on the terminal; an empty `line` clears it.
pub(crate) fn progress(line: &str) {
    const TO_START_AND_CLEAR: &str = "\r\x1b[K";
    // A longer line would wrap, and could not be cleared.
    let width = width::of(io::stderr()).unwrap_or(80).saturating_sub(1);
    let cut: String = printable(line).to_string().chars().take(width).collect();
    say(format!("{TO_START_AND_CLEAR}{cut}"));
}

/// Returns a failure as a JSON line.
pub(crate) fn failure(failure: &Failure) -> String {
    let mut event = json!({
        "event": failure.event(),
        "message": failure.full(),
        "exit_code": failure.code(),
    });
    if let Failure::Held { error, .. } = failure
        && let Some(holder) = error.report().and_then(quorlock::votes::VoteReport::holder)
        && let Some(fields) = event.as_object_mut()
    {
        fields.insert("holder".to_owned(), json!(holder.token.to_string()));
        fields.insert("retained".to_owned(), json!(holder.token.is_retained()));
        fields.insert("remaining_ms".to_owned(), left_in_millis(holder.remaining));
        // The one of several locks that is held.
        fields.extend(holder.key.map(|key| ("key".to_owned(), json!(&*key))));
    }
    json_line(&event)
}

/// Returns whole milliseconds, for JSON.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time that a key is still stored in whole milliseconds, for JSON; `null` if it never expires.
pub(crate) fn left_in_millis(remaining: Expiry) -> Value {
    match remaining {
        Expiry::In(remaining) => json!(millis(remaining)),
        Expiry::Never => Value::Null,
    }
}
