//! The background thread of the blocking API, and waiting for it.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};

use crate::error::ConfigError;
use crate::reason::Reason;
use crate::runtime::clock::Clock;

/// A handle to the one background thread of the program, for callers on threads of their own.
#[derive(Clone)]
pub(super) struct Background {
    thread: Handle,
    clock: Arc<dyn Clock>,
}

impl Background {
    /// The background of what `coordinator` makes. The first call starts the thread.
    pub(super) fn beside(coordinator: &crate::Coordinator) -> Result<Background, ConfigError> {
        static THREAD: OnceLock<Result<Handle, Reason>> = OnceLock::new();
        match THREAD.get_or_init(|| start().map_err(Reason::from)) {
            Ok(thread) => {
                Ok(Background { thread: thread.clone(), clock: coordinator.shared.nodes.clock.clone() })
            }
            Err(source) => Err(ConfigError::NoBackground { source: source.clone() }),
        }
    }

    /// Runs `work` on this thread. What it starts runs in the background: connections, timers, and tasks that outlive
    /// it.
    ///
    /// # Panics
    ///
    /// In an async context, as Tokio's `Handle::block_on`: waiting would stall the executor.
    #[track_caller]
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.thread.block_on(work)
    }

    /// As [`run`](Background::run), for at most `longest`: `None` if `work` has not ended by then.
    #[track_caller]
    pub(super) fn run_within<T>(&self, longest: Duration, work: impl Future<Output = T>) -> Option<T> {
        self.run(async {
            tokio::select! {
                biased;
                output = work => Some(output),
                () = self.clock.sleep_until(self.clock.now() + longest) => None,
            }
        })
    }

    /// Calls `listener` with the output of `work`, on a thread where it may block.
    pub(super) fn call_after<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        listener: impl FnOnce(T) + Send + 'static,
    ) {
        let thread = self.thread.clone();
        self.thread.spawn(async move {
            let output = work.await;
            thread.spawn_blocking(move || listener(output));
        });
    }
}

/// The runtime runs on its one thread until the process ends.
fn start() -> std::io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().thread_name("quorlock listener").build()?;
    let handle = runtime.handle().clone();
    thread::Builder::new().name("quorlock".to_owned()).spawn(move || runtime.block_on(pending::<()>()))?;
    Ok(handle)
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Background")
    }
}
