//! Follows what the nodes store under a key, without polling.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use super::context::EngineContext;
use super::queue::WaitQueues;
use crate::node::Request;
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::machine::wait::{Count, Look, Watch};
use quorlock_protocol::votes::VoteReport;

/// Asks the nodes for the holder of a key when there may be news, which [`Watch`] decides.
#[derive(Debug)]
pub(crate) struct KeyWatch {
    engine: Arc<EngineContext>,
    key: Arc<str>,
    ttl: Duration,
    /// Its own queues, since other tasks may wait for the key.
    queues: Arc<WaitQueues>,
    /// The round in flight, kept when its caller gives up.
    asking: Option<Arc<Round>>,
    watch: Watch,
}

impl KeyWatch {
    pub(crate) fn new(engine: &Arc<EngineContext>, key: &Arc<str>) -> KeyWatch {
        KeyWatch {
            key: key.clone(),
            ttl: engine.ttl,
            queues: engine.queues.observe(key),
            asking: None,
            watch: Watch::new(engine.now()),
            engine: engine.clone(),
        }
    }

    /// Waits until there may be news, the first time not at all, and asks the nodes. Asks nothing once the coordinator is
    /// closed, and does not end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect; call again.
    pub(crate) async fn report(&mut self) -> VoteReport {
        let closing = self.engine.closing.clone();
        let looked = closing.run_until_cancelled(async {
            self.wait_for_news().await;
            self.ask().await
        });
        match looked.await {
            Some(report) => report,
            None => pending().await,
        }
    }

    /// Waits until enough nodes report that no client holds the lock. Fails when that cannot come, since too many of them
    /// are misconfigured.
    pub(crate) async fn freed(&mut self) -> Result<(), VoteReport> {
        loop {
            let report = self.report().await;
            let count = Count::of(&report);
            if count.is_free() {
                return Ok(());
            }
            if count.is_misconfigured() {
                return Err(report);
            }
        }
    }

    /// Waits for the end of the pause, or for enough hints.
    async fn wait_for_news(&self) {
        if self.asking.is_some() {
            return;
        }
        let Look { least, until, wanted, among } = self.watch.next();
        // Before the first look, so that no hint is missed in between.
        let bell = self.queues.bell(&self.key).unwrap_or_default();
        let enough = async {
            while self.queues.hints(&self.key).changed(among) < wanted {
                bell.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = enough => {}
            () = self.engine.sleep_until(until) => {}
        }
        if self.engine.now() < least {
            self.engine.sleep_until(least).await;
        }
    }

    async fn ask(&mut self) -> VoteReport {
        self.engine.introduced().await;
        let round = self.asking.get_or_insert_with(|| {
            self.queues.clear_hints(&self.key);
            let request = |_| Some(Request::inspect(self.key.clone()));
            Round::start(&self.engine.nodes, Expect::Holder, self.ttl, request)
        });
        round.settled().await;
        let report = round.report();
        self.asking = None;
        self.watch.seen(&report, || self.engine.entropy.next_u64(), self.engine.now());
        report
    }
}
