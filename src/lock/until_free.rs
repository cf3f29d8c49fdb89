//! Waits until a lock is free, without acquiring it.

use std::time::Duration;

use super::{Lock, Single};
use crate::engine::key_watch::KeyWatch;
use crate::engine::wait::Wait;
use crate::error::AcquireError;
use quorlock_protocol::machine::wait::Count;

impl<F> Lock<Single, F> {
    /// As [`until_free`](Lock::until_free), for this long; without a wait it asks once.
    pub(super) async fn until_free_within(&self, wait: Wait) -> Result<(), AcquireError> {
        let resource = self.check()?;
        let since = self.engine.now();
        let limit = match wait {
            Wait::UpTo(longest) => Some(longest),
            Wait::Never => Some(Duration::ZERO),
            Wait::Forever => None,
        };
        let deadline = self.engine.nodes.timers.until(limit.map(|limit| since + limit));
        let mut watch = KeyWatch::new(&self.engine, self.keys.first());
        let report = tokio::select! {
            biased;
            () = self.engine.closing.cancelled() => return Err(AcquireError::Closed),
            freed = watch.freed() => match freed {
                Ok(()) => return Ok(()),
                Err(report) => report,
            },
            // What was seen last may be old, or nothing.
            () = deadline => self.inspect().await?,
        };
        let count = Count::of(&report);
        if count.is_free() {
            return Ok(());
        }
        let (waited, report) = (self.engine.now().since(since), Box::new(report));
        Err(if count.is_misconfigured() {
            AcquireError::Misconfigured { resource, report }
        } else if report.is_taken() {
            AcquireError::Contended { resource, report, waited }
        } else {
            AcquireError::Unavailable { resource, report, waited }
        })
    }
}
