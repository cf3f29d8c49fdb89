//! Detects when this machine was starved: a timer that is late here is late elsewhere.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::record::now;

/// Reads the clock all the time.
pub(crate) struct Starvation {
    gaps: Arc<Mutex<Vec<Gap>>>,
}

/// A time without a reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

const EVERY: Duration = Duration::from_millis(2);
/// Half of what `quorlock run` sets aside for being late.
const LONG: Duration = Duration::from_millis(25);

impl Starvation {
    pub(crate) fn watch() -> Starvation {
        let gaps = Arc::new(Mutex::new(Vec::new()));
        // On two processors one can starve while the other does not.
        for _ in 0..thread::available_parallelism().map_or(2, std::num::NonZero::get) {
            let gaps = Arc::downgrade(&gaps);
            thread::spawn(move || {
                let mut last = now();
                while let Some(gaps) = gaps.upgrade() {
                    #[expect(clippy::disallowed_methods, reason = "a thread that sees when it is late")]
                    thread::sleep(EVERY);
                    let present = now();
                    if present.saturating_sub(last) >= LONG {
                        gaps.lock().unwrap().push(Gap { from: last, to: present });
                    }
                    last = present;
                }
            });
        }
        Starvation { gaps }
    }

    pub(crate) fn gaps(&self) -> Vec<Gap> {
        self.gaps.lock().unwrap().clone()
    }
}
