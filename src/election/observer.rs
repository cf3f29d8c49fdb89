//! Follows the leader of an election, without campaigning.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::context::EngineContext;
use crate::engine::queue::WaitQueues;
use crate::lock::Lock;
use crate::node::{Expiry, Holding, Request};
use crate::quorum::node_set::NodeSet;
use crate::quorum::round::{Expect, Round};
use crate::quorum::vote_report::{VoteOutcome, VoteReport};
use quorlock_protocol::{Backoff, EXPIRY_JITTER, FencingToken, HEARTBEAT, Moment, Token, fraction};

/// Follows the leader of an [election](crate::Election), as stored on the nodes.
///
/// It does not poll: the nodes notify it of changes, and it asks them for the leader. Where they do not notify, it
/// asks when the leader's keys expire, and every second or two, because hints may get lost. It asks at most a
/// hundred times a second.
#[derive(Debug)]
pub struct Observer {
    shared: Arc<EngineContext>,
    key: Arc<str>,
    ttl: Duration,
    /// Its own queues, since other tasks may wait for the key.
    queues: Arc<WaitQueues>,
    /// The round in flight, kept when its caller gives up.
    asking: Option<Arc<Round>>,
    pause: Pause,
    /// What was returned last.
    last: Option<Known>,
    /// Pauses while too few nodes answer: nothing notifies of their return.
    outage: Backoff,
}

/// The leader, as far as the nodes agree.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::exhaustive_enums, reason = "complete: there is a leader, there is none, or it is unknown")]
pub enum Observed {
    /// A quorum of nodes stores this leader.
    Leader(Leader),
    /// Too many nodes store no leader, or different ones, for anyone to have a quorum. A leader whose keys were lost
    /// may still lead until its validity ends.
    NoLeader,
    /// Too few nodes answer. The report says why.
    Unknown(Box<VoteReport>),
}

/// The leader of an election.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Leader {
    /// The value that it announced; empty where another program holds the lock.
    pub value: String,
    /// Its token, which is shown as host, process and value.
    pub token: Token,
    /// Its fencing token, once a quorum of nodes reports one. A leader that is just being elected may still get a
    /// larger one, and is then returned again.
    pub fencing_token: Option<FencingToken>,
    /// For how much longer its keys are stored if they are not renewed.
    pub remaining: Duration,
}

/// What makes two observations differ: a renewal does not.
#[derive(Clone, PartialEq, Debug)]
enum Known {
    Leader(Token, Option<FencingToken>),
    NoLeader,
    Unknown,
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

impl Observer {
    pub(crate) fn new(lock: &Lock) -> Observer {
        let (shared, key) = lock.parts();
        let queues = shared.queues.branch();
        queues.watch(key);
        let now = shared.now();
        Observer {
            key: key.clone(),
            ttl: shared.ttl,
            queues,
            asking: None,
            pause: Pause { least: now, until: now, wanted: 0, among: NodeSet::default() },
            last: None,
            outage: Backoff::new(OUTAGE_PAUSE, HEARTBEAT),
            shared: shared.clone(),
        }
    }

    /// Waits until the leader is another than last time, none, or unknown, and returns it. The first call returns the
    /// current leader immediately.
    ///
    /// It returns the latest, not each: a leader that comes and goes between two rounds is not seen, and the gap
    /// between two leaders may not be.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect; call again.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub async fn changed(&mut self) -> Observed {
        loop {
            self.rest().await;
            let observed = self.ask().await;
            let known = observed.known();
            if self.last.as_ref() != Some(&known) {
                self.last = Some(known);
                return observed;
            }
        }
    }

    /// Waits until enough nodes say that nobody holds the lock.
    pub(crate) async fn freed(&mut self) {
        loop {
            self.rest().await;
            if is_free(&self.report().await) {
                return;
            }
        }
    }

    /// Waits for the end of the pause, or for enough hints.
    async fn rest(&self) {
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
            () = self.shared.sleep_until(until) => {}
        }
        if self.shared.now() < least {
            self.shared.sleep_until(least).await;
        }
    }

    async fn ask(&mut self) -> Observed {
        Observed::of(self.report().await)
    }

    async fn report(&mut self) -> VoteReport {
        self.shared.introduced().await;
        let round = self.asking.get_or_insert_with(|| {
            self.queues.clear_hints(&self.key);
            let request = |_| Some(Request::Inspect { key: self.key.clone() });
            Round::start(&self.shared.nodes, Expect::AnyAnswer, self.ttl, request)
        });
        round.settled().await;
        let report = round.report();
        self.asking = None;
        self.pause = self.pause(&report);
        report
    }

    /// When to ask next, and after hints of which nodes.
    ///
    /// A leader is lost once enough nodes have changed to break its quorum; a new one cannot have a quorum before as
    /// many nodes as that takes have changed.
    fn pause(&mut self, report: &VoteReport) -> Pause {
        let (now, entropy) = (self.shared.now(), &self.shared.entropy);
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

/// Whether enough nodes say that nobody holds the lock.
pub(crate) fn is_free(report: &VoteReport) -> bool {
    let count = Count::of(report);
    !count.leads() && !count.is_unknown()
}

impl Observed {
    pub(crate) fn of(report: VoteReport) -> Observed {
        let count = Count::of(&report);
        match report.holder() {
            // Readers of a shared lock of that name do not lead.
            Some(holder) if count.leads() && !holder.token.is_marker() => Observed::Leader(Leader {
                value: value_of(&holder.token),
                token: holder.token,
                fencing_token: holder.fencing_token,
                remaining: holder.remaining,
            }),
            _ if count.is_unknown() => Observed::Unknown(Box::new(report)),
            _ => Observed::NoLeader,
        }
    }

    fn known(&self) -> Known {
        match self {
            Observed::Leader(leader) => Known::Leader(leader.token.clone(), leader.fencing_token),
            Observed::NoLeader => Known::NoLeader,
            Observed::Unknown(_) => Known::Unknown,
        }
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Observed::Leader(leader) => write!(f, "led by {}", leader.token),
            Observed::NoLeader => f.write_str("no leader"),
            Observed::Unknown(report) => write!(f, "the leader is unknown: {report}"),
        }
    }
}

/// What follows the `host:pid` of a token.
fn value_of(token: &Token) -> String {
    let context = token.context().unwrap_or_default();
    context.split_once(' ').map(|(_, value)| value.to_owned()).unwrap_or_default()
}

/// The nodes' votes for the candidate that has the most of them.
struct Count {
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
    fn of(report: &VoteReport) -> Count {
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
                // Data under the name of the election says nothing about the leader.
                VoteOutcome::Held(_)
                | VoteOutcome::Quarantined { .. }
                | VoteOutcome::Duplicate { .. }
                | VoteOutcome::Pending
                | VoteOutcome::Failed(_)
                | VoteOutcome::Skipped => count.silent += 1,
            }
        }
        count.ends.sort_unstable();
        count
    }

    fn leads(&self) -> bool {
        self.held >= self.needed
    }

    /// Whether the nodes that have not answered could make a leader.
    fn is_unknown(&self) -> bool {
        !self.leads() && self.held + self.silent >= self.needed
    }
}
