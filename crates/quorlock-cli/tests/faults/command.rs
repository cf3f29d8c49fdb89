//! The command under the lock: records that it runs.

use std::time::Duration;

use crate::record::{Entry, append, now};

/// The file to write to, how long to run, the runner, and the part that it plays in its command.
pub(crate) const RECORD: &str = "QUORLOCK_FAULTS_RECORD";
pub(crate) const LASTS: &str = "QUORLOCK_FAULTS_LASTS_MS";
pub(crate) const RUNNER: &str = "QUORLOCK_FAULTS_RUNNER";
pub(crate) const PART: &str = "QUORLOCK_FAULTS_PART";
/// How often it records that it runs.
pub(crate) const EVERY: Duration = Duration::from_millis(5);

pub(crate) fn is_asked_for() -> bool {
    std::env::var_os(RECORD).is_some()
}

pub(crate) fn run() {
    let variable = |name: &str| std::env::var(name).expect("a command of quorlock run has it");
    let path = variable(RECORD);
    let lasts = Duration::from_millis(variable(LASTS).parse().unwrap());
    let end = now() + lasts;
    loop {
        let at = now();
        append(
            &path,
            &Entry {
                at,
                lock: variable("QUORLOCK_RESOURCE"),
                fence: variable("QUORLOCK_FENCE").parse().unwrap(),
                runner: variable(RUNNER).parse().unwrap(),
                pid: std::process::id(),
                part: variable(PART).parse().unwrap(),
            },
        );
        if at >= end {
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "this is the work, which takes time")]
        std::thread::sleep(EVERY);
    }
}
