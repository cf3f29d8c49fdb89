//! Runs blocking work on its own thread.

use std::sync::{Arc, Weak};
use std::{io, thread};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use quorlock_protocol::node::Reason;
use tokio::sync::oneshot;

/// Runs `work`, which blocks and cannot be cancelled, on its own thread. A blocking thread of the
/// runtime would delay the runtime's shutdown, and with it the program's exit, until a lookup on an
/// unresponsive name server times out after ten seconds or more.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, done) = oneshot::channel();
    thread::Builder::new().name("quorlock dial".to_owned()).spawn(move || drop(sender.send(work())))?;
    done.await.map_err(|_| io::Error::other("what was to do it has panicked"))?
}

/// Blocking work that several callers wait for: while it hangs, none of them begins it again, on yet another thread.
#[derive(Debug)]
pub(crate) struct SharedWork<T> {
    /// Ended with the work.
    under_way: Weak<()>,
    outcome: Outcome<T>,
}

/// What the work returns, for one of its callers.
pub(crate) type Outcome<T> = Shared<BoxFuture<'static, Result<T, Reason>>>;

impl<T: Clone + Send + Sync + 'static> SharedWork<T> {
    /// The work begins when its outcome is first polled, and needs no runtime: that of the first caller may end before.
    pub(crate) fn new(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> SharedWork<T> {
        let token = Arc::new(());
        let under_way = Arc::downgrade(&token);
        let work = async move {
            let done = on_thread(move || {
                let done = work();
                drop(token);
                done
            });
            done.await.map_err(Reason::from)
        };
        SharedWork { under_way, outcome: work.boxed().shared() }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.upgrade().is_some()
    }

    /// Returns the outcome for one of the callers.
    pub(crate) fn outcome(&self) -> Outcome<T> {
        self.outcome.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    /// As of a program that reads the password.
    #[tokio::test]
    async fn a_panic_is_named_as_one() {
        let error = on_thread(|| -> io::Result<()> { panic!("the vault is closed") }).await.unwrap_err();
        assert_eq!(error.to_string(), "what was to do it has panicked");
    }

    #[test]
    fn a_runtime_shuts_down_during_a_lookup() {
        let (never, name_server) = channel::<()>();
        let (ended, end) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let lookup = on_thread(move || name_server.recv().map_err(io::Error::other));
                assert!(lookup.now_or_never().is_none(), "it is answered");
            });
            drop(runtime);
            ended.send(()).unwrap();
        });
        end.recv_timeout(Duration::from_secs(20)).expect("the runtime waits for the lookup");
        drop(never);
    }
}
