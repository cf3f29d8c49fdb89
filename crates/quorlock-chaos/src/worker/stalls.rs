//! Detects when this process could not run, because it was stopped or the machine was too busy.

use std::thread;
use std::time::Duration;

use quorlock_history::What;

use crate::record::{Recorder, stamp};

/// The check interval.
const EVERY: Duration = Duration::from_millis(20);
/// Longer stalls are recorded: a process that cannot run cannot be notified of a loss.
const WORTH_NOTING: Duration = Duration::from_millis(100);

/// Starts the detection on a thread of its own, so that a runtime blocked by its tasks does not count as a
/// stall.
pub(super) fn watch(name: &str, recorder: Recorder) {
    let fault = format!("{name} could not run");
    let client: quorlock_history::Client = name.into();
    // The thread ends with the process.
    drop(thread::spawn(move || {
        loop {
            let before = stamp();
            #[expect(
                clippy::disallowed_methods,
                reason = "this thread has no runtime, and time is what it measures"
            )]
            thread::sleep(EVERY);
            let after = stamp();
            if after.since(before) > EVERY + WORTH_NOTING {
                let (fault, clients) = (quorlock_history::Fault::from(fault.as_str()), vec![client.clone()]);
                let began = What::FaultBegan { fault: fault.clone(), nodes: Vec::new(), clients };
                // A worker that is killed in between must not leave a stall that never ends.
                recorder.record_all([(before, began), (after, What::FaultHealed { fault })]);
            }
        }
    }));
}
