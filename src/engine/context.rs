//! What all locks of a coordinator share.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::offer_inbox::Offers;
use super::options::{AcquireRequest, Fencing, Options};
use super::queue::WaitQueues;
use super::throttle::Renewals;
use super::wait::Wait;
use crate::error::ConfigError;
use crate::node::lists::NodeLists;
use crate::node::{Capability, Request, SharedRequest};
use crate::quorum::members::Nodes;
use crate::quorum::round::{Expect, Round};
use crate::runtime::clock::Sleep;
use crate::runtime::entropy::Entropy;
use crate::runtime::tasks::Tasks;
use crate::runtime::timer::Until;
use crate::telemetry::Meters;
use quorlock_protocol::machine::Deployment as _;
use quorlock_protocol::{
    Claim, Drift, FenceHint, FencingToken, LeaseTiming, LoggedHold, Mode, Moment, Token,
};

/// What all locks of a coordinator share.
#[derive(Clone, Debug)]
pub(crate) struct EngineContext {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) drift: Drift,
    pub(crate) ttl: Duration,
    pub(crate) least_ttl: Duration,
    pub(crate) max_ttl: Duration,
    /// How many holds of each lock the nodes keep in its log; 0 if none are logged.
    pub(crate) logged: usize,
    /// The lists of nodes of other clients.
    pub(crate) lists: Arc<NodeLists>,
    /// The longest that the first acquisition waits for connections.
    pub(crate) introduction: Duration,
    pub(crate) key_prefix: Arc<str>,
    pub(crate) label: Arc<str>,
    /// The defaults of a lock.
    pub(crate) options: Arc<Options>,
    pub(crate) host: String,
    /// The process id, and the text that identifies this process and the default label to others.
    /// Nearly all tokens use it, so it is made once.
    pub(crate) context: (u32, Arc<str>),
    /// That of the nodes: unique, unlike an address, which may be reused.
    pub(crate) number: u64,
    pub(crate) tasks: Tasks,
    pub(crate) closing: CancellationToken,
    pub(crate) queues: Arc<WaitQueues>,
    /// The wait queues of readers.
    pub(crate) readers: Arc<WaitQueues>,
    /// Offers between processes; `None` in a context with wait queues of its own.
    pub(crate) offers: Option<Arc<Offers>>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) meters: Meters,
}

impl EngineContext {
    pub(crate) fn next_number() -> u64 {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        NUMBERS.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the same context over other nodes. It has its own wait queues, which receive the same hints about these
    /// keys. Readers are in none of them.
    pub(crate) fn over(&self, nodes: Nodes, keys: impl Iterator<Item = Arc<str>>) -> Arc<EngineContext> {
        let number = EngineContext::next_number();
        Arc::new(EngineContext { nodes: Arc::new(nodes), number, ..self.branch(keys) })
    }

    /// Returns the same context with its own wait queues, which are named by several keys, and receive no hints.
    pub(crate) fn aside(&self) -> Arc<EngineContext> {
        Arc::new(self.branch(iter::empty()))
    }

    fn branch(&self, keys: impl Iterator<Item = Arc<str>>) -> EngineContext {
        EngineContext { queues: self.queues.branch(keys), offers: None, ..self.clone() }
    }

    /// The wait queues of this mode.
    pub(crate) fn queues_of(&self, mode: Mode) -> &Arc<WaitQueues> {
        match mode {
            Mode::Exclusive => &self.queues,
            Mode::Shared => &self.readers,
        }
    }

    /// The key of a resource. Shares the string if both are equal.
    pub(crate) fn key(&self, name: &Arc<str>) -> Arc<str> {
        if self.key_prefix.is_empty() { name.clone() } else { format!("{}{name}", self.key_prefix).into() }
    }

    pub(crate) fn now(&self) -> Moment {
        self.nodes.clock.now()
    }

    pub(crate) fn sleep_until(&self, moment: Moment) -> Sleep {
        self.nodes.clock.sleep_until(moment)
    }

    /// Like `sleep_until`, for a future that several runtimes may drive: a Tokio timer belongs to
    /// one of them.
    pub(crate) fn wait_until(&self, moment: Moment) -> Until {
        self.nodes.timers.until(Some(moment))
    }

    /// How the nodes draw the fencing token of a new attempt; `None` if fencing is off.
    pub(crate) fn fence_hint(
        &self,
        acquisition: &AcquireRequest,
        seen: Option<FencingToken>,
    ) -> Option<FenceHint> {
        match acquisition.fencing {
            Fencing::On => Some(FenceHint::at(self.nodes.clock.wall(), seen, self.clock_bound())),
            Fencing::Off => None,
        }
    }

    /// How the nodes draw the fencing token of an offer (rule O-10): from the waiter's wall clock
    /// when it asked, which is in its `token`, and above `seen`.
    pub(crate) fn fence_hint_of(&self, token: &Token, seen: Option<FencingToken>) -> FenceHint {
        let own = token.number().map(|number| Duration::from_micros(number.get().saturating_sub(1)));
        FenceHint::at(own.unwrap_or_else(|| self.nodes.clock.wall()), seen, self.clock_bound())
    }

    /// Whether the renewals in flight have reached the limit, so that others must wait.
    pub(crate) fn are_many_renewing(&self) -> bool {
        self.renewals.are_many(|| self.nodes.quorum_round_trip())
    }

    /// Asks nodes what no caller waits for. Closing the coordinator does: a process that ends then leaves no trace of a
    /// waiter on the nodes.
    pub(crate) fn ask_in_background<Q: Into<SharedRequest>>(
        &self,
        ttl: Duration,
        request: impl Fn(usize) -> Option<Q>,
    ) {
        let round = Round::start(&self.nodes, Expect::AnyAnswer, ttl, request);
        if let Ok(runtime) = Handle::try_current() {
            self.tasks.spawn(async move { round.settled().await }, &runtime);
        }
    }

    /// Adds a hold that has ended to the logs of its locks, at all nodes that keep one. No caller waits for that, and
    /// nothing depends on it.
    pub(crate) fn log_hold(&self, claim: &Claim, ttl: Duration, hold: LoggedHold) {
        let (hold, most) = (Arc::new(hold), self.logged);
        for key in claim.keys() {
            let request = Request::LogHold { key: key.clone(), hold: hold.clone(), most };
            let request = SharedRequest::from(request);
            self.ask_in_background(ttl, |node| {
                self.nodes.can(node, Capability::Log).then(|| request.clone())
            });
        }
    }

    /// Whether a client outside the queue of `key` had the lock a moment ago.
    pub(crate) fn saw_outsider(&self, key: &str) -> bool {
        self.offers.as_ref().is_some_and(|offers| offers.saw_outsider(key, self.now()))
    }

    /// The largest difference between wall clocks at which fencing tokens keep their order even if
    /// nodes lose their data.
    pub(crate) fn clock_bound(&self) -> Duration {
        self.max_ttl / 2
    }

    /// When leases with this TTL are renewed on these nodes.
    pub(crate) fn timing(&self, ttl: Duration) -> LeaseTiming {
        LeaseTiming::new(ttl, self.drift, self.nodes.grant_age(ttl))
    }

    /// Checks that a TTL leaves time to hold the lock and to renew it, and that restarted nodes wait for it.
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
                _ => self.check_room(ttl),
            }
        }
    }

    /// Refuses a TTL with which too little is left after a renewal for two more.
    fn check_room(&self, ttl: Duration) -> Result<(), ConfigError> {
        let timing = self.timing(ttl);
        match self.nodes.oldest_grant(ttl) {
            Some((_, node)) if !timing.has_room() => Err(ConfigError::NoRoomToRenew {
                ttl,
                proven: timing.proven(),
                drift: timing.drift_allowance(),
                node: node.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// The text that identifies a holder with this label to others.
    pub(crate) fn context(&self, label: &Arc<str>) -> Arc<str> {
        let (process, usual) = &self.context;
        // After a fork the process id differs.
        let is_usual = Arc::ptr_eq(label, &self.label) && *process == std::process::id();
        if is_usual { usual.clone() } else { context(&self.host, label).into() }
    }

    /// Waits for connections before the first round, so that a cold start is not taken for an
    /// outage. Returns when a quorum is connected, when every node has connected or failed, or
    /// after the connect timeout. Nodes that connect later are asked as soon as they are connected.
    /// Later rounds do not wait.
    pub(crate) async fn introduced(&self) {
        self.introduced_for(Wait::Never).await;
    }

    /// The same for a caller that waits for so long.
    pub(crate) async fn introduced_for(&self, wait: Wait) {
        if !self.nodes.introduced.load(Ordering::Acquire) {
            let longest = match wait {
                Wait::Never => LEAST_INTRODUCTION,
                Wait::UpTo(wait) => wait.max(LEAST_INTRODUCTION),
                Wait::Forever => Duration::MAX,
            };
            Box::pin(self.introduce(self.introduction.min(longest))).await;
        }
    }

    async fn introduce(&self, longest: Duration) {
        // Where no node can connect, the answers of all would be that.
        drop(Handle::current());
        let mut contacts: FuturesUnordered<_> = self.nodes.iter().map(|node| node.ready()).collect();
        let began = self.now();
        let (_given_up, end) = (IntroductionGuard(self, began + LEAST_INTRODUCTION), began + longest);
        let mut connected = 0;
        while connected < self.nodes.quorum.needed() {
            tokio::select! {
                biased;
                contact = contacts.next() => match contact {
                    Some(Ok(())) => connected += 1,
                    Some(Err(_)) => {}
                    None => break,
                },
                () = self.wait_until(end) => break,
            }
        }
        self.nodes.introduced.store(true, Ordering::Release);
    }
}

/// A caller that has given up after the least time was introduced: the question why must not wait again.
struct IntroductionGuard<'a>(&'a EngineContext, Moment);

impl Drop for IntroductionGuard<'_> {
    fn drop(&mut self) {
        let IntroductionGuard(engine, least) = self;
        if engine.now() >= *least {
            engine.nodes.introduced.store(true, Ordering::Release);
        }
    }
}

/// For the first connections, however short a caller waits: one member of a cluster may hang for three seconds before the
/// next is asked.
const LEAST_INTRODUCTION: Duration = Duration::from_secs(4);

/// Returns `host:pid`, followed by the label.
pub(crate) fn context(host: &str, label: &str) -> String {
    let mut context = format!("{host}:{}", std::process::id());
    if !label.is_empty() {
        context.push(' ');
        context.push_str(label);
    }
    context
}
