//! Follows what the nodes store under a key, without polling.

use std::sync::Arc;
use std::time::Duration;

use super::context::EngineContext;
use super::queue::WaitQueues;
use crate::node::{Expiry, Holding, Request};
use crate::quorum::round::{Expect, Round};
use quorlock_protocol::machine::NodeSet;
use quorlock_protocol::votes::{VoteOutcome, VoteReport};
use quorlock_protocol::{Backoff, EXPIRY_JITTER, HEARTBEAT, Moment, fraction};

/// Asks the nodes for the holder of a key when they hint at a change that may matter, when the key expires, and every
/// second or two, because hints may get lost. At most a hundred times a second.
#[derive(Debug)]
pub(crate) struct KeyWatch {
    engine: Arc<EngineContext>,
    key: Arc<str>,
    ttl: Duration,
    /// Its own queues, since other tasks may wait for the key.
    queues: Arc<WaitQueues>,
    /// The round in flight, kept when its caller gives up.
    asking: Option<Arc<Round>>,
    pause: Pause,
    /// Pauses while too few nodes answer: nothing notifies of their return.
    outage: Backoff,
}

/// When to ask next.
#[derive(Clone, Copy, Debug)]
struct Pause {
    /// Never before that.
    least: Moment,
    /// At this time, or as soon as this many nodes have hinted at a change…
    until: Moment,
    wanted: usize,
    /// …among these.
    among: NodeSet,
}

/// The shortest time between two rounds: faster changes are returned as one.
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// The first pause after too few nodes have answered.
const OUTAGE_PAUSE: Duration = Duration::from_millis(100);

impl KeyWatch {
    pub(crate) fn new(engine: &Arc<EngineContext>, key: &Arc<str>) -> KeyWatch {
        let now = engine.now();
        KeyWatch {
            key: key.clone(),
            ttl: engine.ttl,
            queues: engine.queues.observe(key),
            asking: None,
            pause: Pause { least: now, until: now, wanted: 0, among: NodeSet::default() },
            outage: Backoff::new(OUTAGE_PAUSE, HEARTBEAT),
            engine: engine.clone(),
        }
    }

    /// Waits until there may be news, the first time not at all, and asks the nodes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect; call again.
    pub(crate) async fn report(&mut self) -> VoteReport {
        self.wait_for_news().await;
        self.ask().await
    }

    /// Waits until enough nodes report that no client holds the lock.
    pub(crate) async fn freed(&mut self) {
        while !Count::of(&self.report().await).is_free() {}
    }

    /// Waits for the end of the pause, or for enough hints.
    async fn wait_for_news(&self) {
        if self.asking.is_some() {
            return;
        }
        let Pause { least, until, wanted, among } = self.pause;
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
            Round::start(&self.engine.nodes, Expect::AnyAnswer, self.ttl, request)
        });
        round.settled().await;
        let report = round.report();
        self.asking = None;
        self.pause = self.pause(&report);
        report
    }

    /// When to ask next, and after hints of which nodes.
    ///
    /// A holder is lost once enough nodes have changed to break its quorum; a new one cannot have a quorum before as
    /// many nodes as that takes have changed.
    fn pause(&mut self, report: &VoteReport) -> Pause {
        let (now, entropy) = (self.engine.now(), &self.engine.entropy);
        let count = Count::of(report);
        let heartbeat = HEARTBEAT / 2 + fraction(HEARTBEAT, entropy.next_u64());
        let least = now + LEAST_PAUSE;
        if count.is_unknown() {
            let until = now + self.outage.next(entropy.next_u64());
            return Pause { least, until, wanted: usize::MAX, among: NodeSet::default() };
        }
        self.outage = Backoff::new(OUTAGE_PAUSE, HEARTBEAT);
        let (wanted, end) = if count.leads() {
            let wanted = count.held - count.needed + 1;
            let end = count
                .ends
                .get(wanted - 1)
                .map(|end| *end + Duration::from_millis(1) + fraction(EXPIRY_JITTER, entropy.next_u64()));
            (wanted, end.unwrap_or(heartbeat))
        } else {
            (count.needed - count.held, heartbeat)
        };
        Pause { least, until: now + end.min(heartbeat), wanted, among: count.answered }
    }
}

/// The nodes' votes for the token that most of them store.
pub(crate) struct Count {
    needed: usize,
    /// Nodes that store it.
    held: usize,
    /// Nodes that may store it: they have not answered.
    silent: usize,
    /// Nodes that have answered.
    answered: NodeSet,
    /// When its keys expire, soonest first.
    ends: Vec<Duration>,
}

impl Count {
    pub(crate) fn of(report: &VoteReport) -> Count {
        let holder = report.holder();
        let mut count = Count {
            needed: report.quorum().needed(),
            held: 0,
            silent: 0,
            answered: NodeSet::default(),
            ends: Vec::new(),
        };
        for (index, vote) in report.votes().iter().enumerate() {
            match &vote.outcome {
                VoteOutcome::Held(Holding { token, expiry: Expiry::In(end), .. }) => {
                    count.answered.insert(index);
                    if holder.as_ref().is_some_and(|holder| holder.token == *token) {
                        count.held += 1;
                        count.ends.push(*end);
                    }
                }
                VoteOutcome::Free
                | VoteOutcome::Granted
                | VoteOutcome::NotYourTurn
                | VoteOutcome::FenceAhead
                | VoteOutcome::Restored => {
                    count.answered.insert(index);
                }
                // Data under this name says nothing about the holder.
                VoteOutcome::Held(_)
                | VoteOutcome::Quarantined { .. }
                | VoteOutcome::Duplicate { .. }
                | VoteOutcome::Pending
                | VoteOutcome::Failed(_)
                | VoteOutcome::Skipped
                | _ => count.silent += 1,
            }
        }
        count.ends.sort_unstable();
        count
    }

    /// Whether a quorum stores the same token.
    pub(crate) fn leads(&self) -> bool {
        self.held >= self.needed
    }

    /// Whether the nodes that have not answered could make a holder.
    pub(crate) fn is_unknown(&self) -> bool {
        !self.leads() && self.held + self.silent >= self.needed
    }

    /// Whether enough nodes report that no client holds the lock.
    pub(crate) fn is_free(&self) -> bool {
        !self.leads() && !self.is_unknown()
    }
}
