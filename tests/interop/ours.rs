//! A process of ours that holds a lock and can be killed.

use std::process::{Child, Command, Stdio};

use quorlock::Wait;

use crate::meeting::{NAME, SHORT, client};
use quorlock_testkit::patience;

/// The addresses of the nodes. The same program is started again as a holder; without this variable the
/// holder's test does nothing.
const NODES: &str = "QUORLOCK_TEST_HOLDER_NODES";
const PREFIX: &str = "QUORLOCK_TEST_HOLDER_PREFIX";

/// Killed with its handle.
pub(crate) struct Holder(Child);

impl Holder {
    pub(crate) fn start(urls: &[String], prefix: &str) -> Holder {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ours::holder", "--nocapture"])
            .env(NODES, urls.join(","))
            .env(PREFIX, prefix)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Holder(process.unwrap())
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The role of the process: it holds the lock and renews it, until it is killed or stdin ends.
#[tokio::test(flavor = "multi_thread")]
async fn holder() {
    let (Ok(nodes), Ok(prefix)) = (std::env::var(NODES), std::env::var(PREFIX)) else { return };
    let urls: Vec<String> = nodes.split(',').map(str::to_owned).collect();
    let ours = client(&urls, |builder| builder.key_prefix(prefix));
    let _lease = ours.lock(NAME).ttl(SHORT).wait(Wait::UpTo(patience())).acquire().await.unwrap();
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await.unwrap().unwrap();
}
