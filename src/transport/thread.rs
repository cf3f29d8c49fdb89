//! Runs blocking work on its own thread.

use std::{io, thread};

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
