//! What all locks of a coordinator share, and the engine works with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::keeper::Renewals;
use super::offer::Offers;
use super::options::{AcquireRequest, Fencing, Options};
use super::queue::Lines;
use crate::error::ConfigError;
use crate::quorum::members::Nodes;
use crate::runtime::clock::Sleep;
use crate::runtime::entropy::Entropy;
use crate::runtime::tasks::Tasks;
use crate::runtime::timer::Until;
use crate::telemetry::Meters;
use quorlock_protocol::{Drift, FenceHint, FencingToken, Mode, Moment, Token};

/// What all locks of a coordinator share.
#[derive(Clone, Debug)]
pub(crate) struct EngineContext {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) drift: Drift,
    pub(crate) ttl: Duration,
    pub(crate) least_ttl: Duration,
    pub(crate) max_ttl: Duration,
    /// The longest that the first use waits for connections.
    pub(crate) introduction: Duration,
    pub(crate) key_prefix: Arc<str>,
    pub(crate) label: Arc<str>,
    /// Of a lock for which nothing else is set.
    pub(crate) options: Arc<Options>,
    pub(crate) host: String,
    /// What others read of a holder in the process of this number, with the usual label: made once, since
    /// nearly all have it.
    pub(crate) context: (u32, Arc<str>),
    /// What is unique to it: an address may be used again.
    pub(crate) number: u64,
    pub(crate) tasks: Tasks,
    pub(crate) closing: CancellationToken,
    pub(crate) lines: Arc<Lines>,
    /// Those who want to share a lock have lines of their own.
    pub(crate) readers: Arc<Lines>,
    /// Offers between processes; `None` for those who stand in lines of their own.
    pub(crate) offers: Option<Arc<Offers>>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) meters: Meters,
}

impl EngineContext {
    pub(crate) fn next_number() -> u64 {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        NUMBERS.fetch_add(1, Ordering::Relaxed)
    }

    /// The same over other nodes, with lines of its own that hear the same hints.
    pub(crate) fn over(&self, nodes: Nodes) -> Arc<EngineContext> {
        Arc::new(EngineContext { nodes: Arc::new(nodes), ..self.branch() })
    }

    /// The same, with lines of its own that hear the same hints.
    pub(crate) fn aside(&self) -> Arc<EngineContext> {
        Arc::new(self.branch())
    }

    fn branch(&self) -> EngineContext {
        let number = EngineContext::next_number();
        let (lines, readers) = (self.lines.branch(), self.readers.branch());
        EngineContext { number, lines, readers, offers: None, ..self.clone() }
    }

    /// Those who wait in this mode.
    pub(crate) fn lines_of(&self, mode: Mode) -> &Arc<Lines> {
        match mode {
            Mode::Exclusive => &self.lines,
            Mode::Shared => &self.readers,
        }
    }

    /// The key of the resource of that name. Where that is the same, it is kept once.
    pub(crate) fn key(&self, name: &Arc<str>) -> Arc<str> {
        if self.key_prefix.is_empty() { name.clone() } else { format!("{}{name}", self.key_prefix).into() }
    }

    pub(crate) fn now(&self) -> Moment {
        self.nodes.clock.now()
    }

    pub(crate) fn sleep_until(&self, moment: Moment) -> Sleep {
        self.nodes.clock.sleep_until(moment)
    }

    /// The same for what several runtimes may drive: a timer of its own would belong to one of them.
    pub(crate) fn rest_until(&self, moment: Moment) -> Until {
        self.nodes.timers.until(Some(moment))
    }

    /// How the nodes are to draw the number of a new attempt; `None` where fencing is off.
    pub(crate) fn fence_hint(&self, plan: &AcquireRequest, seen: Option<FencingToken>) -> Option<FenceHint> {
        match plan.fencing {
            Fencing::On => Some(FenceHint::at(self.nodes.clock.wall(), seen, self.clock_bound())),
            Fencing::Off => None,
        }
    }

    /// How they are to draw the number of an offer (rule O-10): as its `token` says, which is from what the waiter's
    /// calendar showed when it asked, and above what was `seen`.
    pub(crate) fn fence_hint_of(&self, token: &Token, seen: Option<FencingToken>) -> FenceHint {
        let own = token.number().map(|number| Duration::from_micros(number.get() - 1));
        FenceHint::at(own.unwrap_or_else(|| self.nodes.clock.wall()), seen, self.clock_bound())
    }

    /// Whether so many renewals are on their way that others have to wait.
    pub(crate) fn are_many_renewing(&self) -> bool {
        self.renewals.are_many(|| self.nodes.quorum_round_trip())
    }

    /// Whether a program had the lock at `key` a moment ago that does not stand in its queue.
    pub(crate) fn has_met_others(&self, key: &str) -> bool {
        self.offers.as_ref().is_some_and(|offers| offers.has_met_others(key, self.now()))
    }

    /// As long as wall clocks differ by no more than this, fencing tokens keep their order even
    /// when nodes lose their data.
    pub(crate) fn clock_bound(&self) -> Duration {
        self.max_ttl / 2
    }

    /// A TTL that leaves something to hold and that restarted nodes wait for.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), ConfigError> {
        if ttl < self.least_ttl {
            Err(ConfigError::TtlTooShort { ttl, least: self.least_ttl })
        } else if ttl > self.max_ttl {
            Err(ConfigError::TtlTooLong { ttl, max_ttl: self.max_ttl })
        } else {
            match self.nodes.least_ttl() {
                Some((least, node)) if ttl < least => {
                    Err(ConfigError::TtlTooShortForNode { ttl, least, node })
                }
                _ => Ok(()),
            }
        }
    }

    /// What others read of a holder with this label.
    pub(crate) fn context(&self, label: &Arc<str>) -> Arc<str> {
        let (process, usual) = &self.context;
        // After a fork the coordinator may be in another one.
        let is_usual = Arc::ptr_eq(label, &self.label) && *process == std::process::id();
        if is_usual { usual.clone() } else { context(&self.host, label).into() }
    }

    /// Before the first round: waits for the connections, so that a cold start is not taken for
    /// an outage. Ends when a quorum is there, or when every node has been contacted or has failed to be,
    /// or when the time for connecting is up. The others are asked as soon as they are there. Later
    /// rounds wait for nobody.
    pub(crate) async fn introduced(&self) {
        if !self.nodes.introduced.load(Ordering::Acquire) {
            Box::pin(self.introduce()).await;
        }
    }

    async fn introduce(&self) {
        let mut contacts: FuturesUnordered<_> = self.nodes.iter().map(|node| node.ready()).collect();
        let end = self.now() + self.introduction;
        let mut connected = 0;
        while connected < self.nodes.quorum.needed() {
            tokio::select! {
                biased;
                contact = contacts.next() => match contact {
                    Some(Ok(())) => connected += 1,
                    Some(Err(_)) => {}
                    None => break,
                },
                () = self.rest_until(end) => break,
            }
        }
        self.nodes.introduced.store(true, Ordering::Release);
    }
}

/// `host:pid`, and a label.
pub(crate) fn context(host: &str, label: &str) -> String {
    let mut context = format!("{host}:{}", std::process::id());
    if !label.is_empty() {
        context.push(' ');
        context.push_str(label);
    }
    context
}
