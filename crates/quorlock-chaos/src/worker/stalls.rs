//! Notices when this process could not run, because somebody stopped it or the machine was too busy.

use std::thread;
use std::time::Duration;

use quorlock_history::What;

use crate::record::{Recorder, stamp};

/// How often it looks.
const EVERY: Duration = Duration::from_millis(20);
/// What is longer than that goes into the record: whoever cannot run cannot be told of a loss.
const WORTH_NOTING: Duration = Duration::from_millis(100);

/// Watches from a thread of its own: a runtime that is blocked by its own tasks is no excuse.
pub(super) fn watch(name: &str, recorder: Recorder) {
    let fault = format!("{name} could not run");
    let client: quorlock_history::Client = name.into();
    // It ends with the process.
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
                recorder.record_at(before, began);
                recorder.record_at(after, What::FaultHealed { fault });
            }
        }
    }));
}
