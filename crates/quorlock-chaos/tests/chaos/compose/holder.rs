//! A client that holds the lock `job`, in its container.

use std::process::ExitStatus;

use quorlock_servers::within;
use quorlock_testkit::{find_eventually, patience};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr};

use super::Outcome;
use super::project::Project;

/// A running `quorlock run`, whose command ends when its stdin does.
pub(crate) struct Holder {
    process: Child,
    events: Lines<BufReader<ChildStderr>>,
}

impl Holder {
    /// Returns once it holds the lock.
    pub(crate) async fn start(project: &Project) -> Outcome<Holder> {
        let mut process = project.start(&["quorlock", "run", "--json", "job", "--", "cat"])?;
        let events = BufReader::new(process.stderr.take().ok_or("a stderr")?).lines();
        let mut holder = Holder { process, events };
        let acquired = holder.event().await?;
        assert_eq!(acquired["event"], "acquired", "{acquired}");
        Ok(holder)
    }

    /// Returns the next event that is no warning about a node.
    async fn event(&mut self) -> Outcome<Value> {
        loop {
            let line = within("the next event of the holder", patience(), self.events.next_line())
                .await?
                .ok_or("no event: it has ended")?;
            let event: Value = serde_json::from_str(&line)?;
            if event["event"] != "warning" {
                return Ok(event);
            }
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Gives the lock back.
    pub(crate) async fn end(mut self) -> Outcome {
        drop(self.process.stdin.take());
        let status = self.exit().await?;
        assert_eq!(status.code(), Some(0), "the lock was not lost");
        Ok(())
    }

    /// Waits until the job was stopped, and checks that its lock was valid until then.
    pub(crate) async fn loses(&mut self) -> Outcome {
        let lost = self.event().await?;
        self.is_stopped_in_time(lost).await
    }

    /// Like [`loses`](Holder::loses), where a quorum may have forgotten the lock: if a renewal finds that out before
    /// the validity ends, the job is killed immediately.
    pub(crate) async fn loses_or_is_forgotten(&mut self) -> Outcome {
        let lost = self.event().await?;
        if lost["reason"] != "forgotten_by_nodes" {
            return self.is_stopped_in_time(lost).await;
        }
        assert_eq!([&lost["event"], &lost["signal"]], ["lost", "SIGKILL"], "{lost}");
        assert_eq!(self.exit().await?.code(), Some(76), "the lock was lost");
        Ok(())
    }

    async fn is_stopped_in_time(&mut self, lost: Value) -> Outcome {
        assert_eq!([&lost["event"], &lost["signal"]], ["lost", "SIGTERM"], "{lost}");
        assert!(lost["remaining_ms"].as_u64().is_some_and(|left| left > 0), "stopped too late: {lost}");
        assert_eq!(self.exit().await?.code(), Some(76), "the lock was lost");
        Ok(())
    }

    async fn exit(&mut self) -> Outcome<ExitStatus> {
        let exited =
            find_eventually("the holder to exit", patience(), async || self.process.try_wait().transpose());
        Ok(exited.await??)
    }
}
