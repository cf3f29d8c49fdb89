//! Turns a panic into exit code 125 and one line on stderr. Rust's default is code 101, which is in none of our
//! tables, and several lines.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::thread::{self, ThreadId};

use quorlock::{protocol::printable, runtime::Mutex};
use serde_json::json;

use crate::report::{is_json, json_line};
use crate::{exit, stderr};

/// The message of the last panic of the main thread.
static LAST: Mutex<String> = Mutex::new(String::new());

/// Runs `work` and returns its exit code, or [`exit::INTERNAL`] if it panics.
pub(crate) fn contained(work: impl FnOnce() -> u8) -> u8 {
    let here = thread::current().id();
    panic::set_hook(Box::new(move |info| take_note(info, here)));
    // After a panic only stderr is used.
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let message = LAST.lock().clone();
        let message = format!("{message}; this is a bug in quorlock, please report it");
        stderr::say(if is_json() {
            json_line(&json!({ "event": "error", "message": message, "exit_code": exit::INTERNAL }))
        } else {
            format!("quorlock: {}\n", printable(&message))
        });
        exit::INTERNAL
    })
}

/// A panic of `ours`, the main thread, may still be caught, as that of a connection's task is; it is printed if
/// it was not. Panics of other threads are logged immediately.
fn take_note(info: &PanicHookInfo<'_>, ours: ThreadId) {
    let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
    let payload = info.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let reason = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or_default().replace('\n', " ");
    let message = format!("panicked{place}: {reason}");
    // If RUST_BACKTRACE asks for it.
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        stderr::say(format!("{trace}\n"));
    }
    if thread::current().id() == ours {
        tracing::debug!("{message}");
        *LAST.lock() = message;
    } else {
        tracing::error!("{message}");
    }
}

#[cfg(test)]
mod tests {
    use std::process::{self, Command};

    use super::*;
    use crate::report::{self, Report};

    /// Run by the next test in a process of its own, since the panic hook is global.
    #[test]
    #[ignore = "ends its process"]
    fn ends() {
        report::choose(Report::to(std::env::var_os("JSON").is_some(), false));
        let code = contained(|| {
            drop(caught());
            unreachable!("of two\nlines")
        });
        stderr::finish();
        process::exit(code.into());
    }

    /// As tokio catches those of tasks.
    fn caught() -> thread::Result<()> {
        panic::catch_unwind(|| panic!("contained"))
    }

    fn ended(json: bool) -> (Option<i32>, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "panic::tests::ends", "--ignored", "--nocapture"])
            .env_remove("RUST_BACKTRACE");
        if json {
            command.env("JSON", "");
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    #[test]
    fn a_panic_is_125_and_one_line() {
        let (code, message) = ended(false);
        assert_eq!(code, Some(125), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(
            message.starts_with("quorlock: panicked at ") && message.contains("of two lines; this is"),
            "{message}"
        );
        let (code, message) = ended(true);
        let event: serde_json::Value = serde_json::from_str(&message).expect("one line of JSON");
        assert_eq!((code, event["exit_code"].as_u64()), (Some(125), Some(125)), "{message}");
    }
}
