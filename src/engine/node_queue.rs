//! This process's place in the queue that a node keeps for a lock.
//!
//! Processes that wait for one lock queue on one node, its *home*: the preferred node of the key,
//! which is the same for all clients, or the next one that answers. When the lock is released, the
//! node notifies the first waiter only. That waiter has a turn, in which it asks all nodes for their
//! votes as any client does. A grant so takes the same number of requests however many processes
//! wait.
//!
//! ```text
//!                 ask (Enqueue)                    response: queued, `ahead` waiters before
//!  not queued ────────────────────► home ───────────────────────────────► queued
//!      ▲                              │                                      │  heartbeat:
//!      │ end: leave the queues        │ response: not queued                 │  ask again
//!      │                              ▼                                      │
//!      └───────────────────────── our turn ◄──── the node notifies us ───────┘
//!                                     │
//!  no answer: skip the node, ask      └──► ask all nodes for the lock (`contender`)
//!  the next; none left: try later
//! ```
//!
//! # Events
//!
//! | event | effect |
//! |---|---|
//! | the node queues us | `Places` has the node. The response says how many are ahead and, to the first two, who holds the lock. |
//! | the node says that it is our turn, by a response or a notification | It has removed us from its queue: see `Places::note_turns`. |
//! | a heartbeat is due (`next`; the pauses are `QueueHeartbeat`'s in the protocol crate) | Asks for the place again. It keeps the place alive, and repairs what a lost message or a dead waiter has left. |
//! | the node does not answer | The next node is the home. Other waiters of this process skip the silent node for a second. |
//! | the preferred node answers again | The waiter returns to it, so that all are in one queue. Each heartbeat looks for it, and awaits no answer: a node that hangs delays no waiter. |
//! | no node answers | The contender asks for the lock, and for a place again a second later (W-6, Q-2). |
//! | no node has a queue, or one has refused for good | `closed`: the contender waits for hints. |
//! | the lock is acquired, or the wait ends | `end` returns the nodes to be notified, so that the next waiter gets the turn. |
//!
//! The node orders waiters by how long they have waited, which each request says (`elapsed`). So a
//! waiter that lost its place, with the node or the connection, gets it back by asking again (W-2).
//! Each request also carries the terms on which the waiter accepts an offer: see `offer`.
//!
//! # Is the node right?
//!
//! [`Places::doubt`] says when to compare the home with one other node, by an inspection that changes nothing there.
//!
//! # Invariants
//!
//! - A place is no vote: it stores no token and draws no number (W-1).
//! - A node is among the `Places` from before it is asked until it is known to have removed the waiter.
//!   Every node that may have the waiter in its queue, or has given it an unused turn, is notified
//!   when the wait ends (W-5).
//! - A waiter that has seen the lock held does not ask for votes because one node says that it is
//!   free: it asks another node for the holder first (W-4). Nor does it wait for long because one node says so.
//! - The name of a wait is random and new for each wait (I-42), and the same in all queues of a
//!   caller of several locks (Q-4). It is drawn when a node is first asked in that name: nearly every lock is free.
//!
//! # Cancel safety
//!
//! A dropped `ask` may have queued the waiter: the node is among the `Places` already, so that
//! `NodeQueue::end` leaves it. The contender calls `end` when its own future is dropped.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::attempt::Attempt;
use super::context::EngineContext;
use super::offer;
use super::options::AcquireRequest;
use crate::node::{Capability, Queued, Request, Vote};
use crate::quorum::round::{Expect, Round};
use crate::runtime::entropy::Entropy;
use quorlock_protocol::machine::NodeSet;
use quorlock_protocol::machine::wait::{Doubt, OfferStep, Place, Places};
use quorlock_protocol::votes::{NodeVote, VoteOutcome, VoteReport};
use quorlock_protocol::{Keys, Moment, QUEUE_PATIENCE, WaiterId, preferred_node, turn};

/// How long other waiters of this process skip a node that did not answer: each would wait for it
/// as long. Then it is asked again, as it is by a waiter that has gone on to the next node.
const SKIPPED_FOR: Duration = Duration::from_secs(1);
/// One wait of this process for a lock, in the queue of one node.
pub(crate) struct NodeQueue {
    accepts: Accepts,
    name: OnceLock<WaiterId>,
    entropy: Arc<dyn Entropy>,
    pub(super) places: Places,
    /// The last look at the preferred node while it is skipped, and when that began.
    look_at_preferred: Option<(Moment, Arc<Round>)>,
    /// No node keeps a queue that this process may use …
    pub(super) closed: bool,
    /// … permanently.
    refused: bool,
    /// The requests that an offer may answer.
    pub(super) offers: offer::Requests,
    /// How long an offer is valid, if this wait accepts any.
    offer_life: Option<Duration>,
    /// The round trip time to the node asked last.
    pub(super) round_trip: Duration,
}

/// What a waiter accepts when its turn comes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepts {
    Offers,
    /// The lock must be free for a moment: for readers and callers of several locks (rule W-9).
    OpenReleases,
}

impl NodeQueue {
    pub(super) fn new(accepts: Accepts, entropy: &Arc<dyn Entropy>) -> NodeQueue {
        NodeQueue {
            accepts,
            name: OnceLock::new(),
            entropy: entropy.clone(),
            places: Places::default(),
            look_at_preferred: None,
            closed: false,
            refused: false,
            offers: offer::Requests::default(),
            offer_life: None,
            round_trip: Duration::ZERO,
        }
    }

    /// A place of the wait with this name in one more queue.
    pub(super) fn named(accepts: Accepts, waiter: WaiterId, entropy: &Arc<dyn Entropy>) -> NodeQueue {
        NodeQueue { name: waiter.into(), ..NodeQueue::new(accepts, entropy) }
    }

    /// The name of this wait.
    pub(super) fn waiter(&self) -> WaiterId {
        *self.name.get_or_init(|| WaiterId::new(self.entropy.next_u64()))
    }

    /// The name of this wait, if it has one: otherwise no node knows of it.
    pub(super) fn known_as(&self) -> Option<WaiterId> {
        self.name.get().copied()
    }

    /// Asks for a place, or confirms that it is still wanted. Skips `outliers`, which disagree with
    /// the other nodes. Returns `None` if no node has a queue.
    pub(super) async fn ask(
        &mut self,
        engine: &Arc<EngineContext>,
        key: &Arc<str>,
        acquisition: &Arc<AcquireRequest>,
        outliers: NodeSet,
    ) -> Option<Place> {
        let nodes = engine.nodes.quorum.nodes();
        self.return_home(engine, key, acquisition, outliers);
        for _ in 0..nodes {
            let home = self.home(engine, key);
            // Another waiter of this process got no answer from it.
            let is_silent = engine.nodes.is_skipped(home) && !self.places.is_queued_at(home);
            if engine.nodes.can(home, Capability::Queue) && !outliers.contains(home) && !is_silent {
                let round_trip = engine.nodes.round_trip(home).unwrap_or_default();
                self.round_trip = round_trip.smoothed();
                let turn = turn(self.round_trip);
                let terms = match self.accepts {
                    Accepts::Offers => offer::ask(&mut self.offers, engine, acquisition, (home, round_trip)),
                    Accepts::OpenReleases => None,
                };
                self.offer_life = terms.as_ref().map(|terms| terms.life);
                let request = Request::Enqueue {
                    key: key.clone(),
                    waiter: self.waiter(),
                    elapsed: engine.now().since(acquisition.since),
                    patience: QUEUE_PATIENCE,
                    turn,
                    terms,
                    context: engine.context(&acquisition.label),
                    others_seen: engine.saw_outsider(key),
                };
                self.places.enter(home);
                let round =
                    Round::start_at(&engine.nodes, Expect::AnyAnswer, acquisition.ttl, home, request.into());
                if round.refuses(home).await {
                    let queued = if let Some(Vote::Queued(queued)) = round.vote_of(home) {
                        Some(*queued)
                    } else {
                        self.places.note_turns(NodeSet::of(home));
                        None
                    };
                    return Some(Place { home, queued, report: round.report(), turn });
                }
                let failed = |vote: &NodeVote| matches!(&vote.outcome, VoteOutcome::Failed(error) if error.is_permanent());
                engine.nodes.skip_for(home, SKIPPED_FOR);
                self.refused |= round.report().votes().get(home).is_some_and(failed);
            }
            self.places.skip();
        }
        // A node that was silent for a moment is asked again.
        let has_queue = |node| engine.nodes.can(node, Capability::Queue) && !outliers.contains(node);
        self.closed = self.refused || !(0..nodes).any(has_queue);
        None
    }

    /// Returns to the preferred node if it has answered the last look, and otherwise looks again whether it answers, without
    /// waiting for that.
    fn return_home(
        &mut self,
        engine: &Arc<EngineContext>,
        key: &Arc<str>,
        acquisition: &AcquireRequest,
        outliers: NodeSet,
    ) {
        let (now, home) = (engine.now(), preferred_node(key, engine.nodes.quorum.nodes()));
        let has_queue = engine.nodes.can(home, Capability::Queue) && !outliers.contains(home);
        if !self.places.is_elsewhere() || self.refused || !has_queue {
            return;
        }
        match &self.look_at_preferred {
            Some((_, round)) if round.all_voted() => {
                self.places.return_home();
                self.look_at_preferred = None;
            }
            Some((began, _)) if now.since(*began) < SKIPPED_FOR => {}
            Some(_) | None => {
                let look = |node| (node == home).then(|| Request::inspect(key.clone()));
                let round = Round::start(&engine.nodes, Expect::AnyAnswer, acquisition.ttl, look);
                self.look_at_preferred = Some((now, round));
            }
        }
    }

    /// Whether to try to acquire the lock: in our turn, or if the node may be wrong, of which another node is asked.
    pub(super) async fn is_worth_trying(
        &mut self,
        engine: &Arc<EngineContext>,
        keys: &Keys,
        acquisition: &AcquireRequest,
        place: &Place,
    ) -> bool {
        let queued = place.queued.as_ref();
        match self.places.doubt(queued, engine.now()) {
            Doubt::Try => true,
            Doubt::Wait => false,
            Doubt::AskAnother => {
                let (other, round) = self.inspect_other_node(engine, keys, acquisition, place);
                let vote = if round.refuses(other).await { round.vote_of(other) } else { None };
                self.places.resolve(queued, vote.as_ref(), engine.now())
            }
        }
    }

    /// Looks at the lock on the node asked last, which changes nothing there. Returns `None` if it does not answer.
    pub(super) async fn look(
        &self,
        engine: &EngineContext,
        key: &Arc<str>,
        acquisition: &AcquireRequest,
    ) -> Option<Vote> {
        let home = self.home(engine, key);
        let round = inspect(engine, key, acquisition, home);
        if round.refuses(home).await { round.vote_of(home) } else { None }
    }

    /// The node to ask for a place, unless it is skipped.
    pub(super) fn home(&self, engine: &EngineContext, key: &Arc<str>) -> usize {
        let nodes = engine.nodes.quorum.nodes();
        self.places.home(preferred_node(key, nodes), nodes)
    }

    /// Asks another node about the lock, for the listener of a waiter.
    pub(super) async fn report_other_node(
        &mut self,
        engine: &Arc<EngineContext>,
        keys: &Keys,
        acquisition: &AcquireRequest,
        place: &Place,
    ) -> VoteReport {
        let (other_node, round) = self.inspect_other_node(engine, keys, acquisition, place);
        round.refuses(other_node).await;
        round.report()
    }

    fn inspect_other_node(
        &mut self,
        engine: &Arc<EngineContext>,
        keys: &Keys,
        acquisition: &AcquireRequest,
        place: &Place,
    ) -> (usize, Arc<Round>) {
        let other_node = self.places.other_node(place.home, engine.nodes.quorum.nodes());
        (other_node, inspect(engine, keys.first(), acquisition, other_node))
    }

    /// When to ask again.
    pub(super) fn next(&mut self, place: &Place, engine: &EngineContext, is_subscribed: bool) -> Moment {
        let (queued, random) = (place.queued.as_ref(), engine.entropy.next_u64());
        let pause = self.places.asks_again_after(queued, place.turn, self.offer_life, is_subscribed, random);
        engine.now() + pause
    }

    /// Decides what to do about the offers so far. The nodes of one that is taken up need no notice that
    /// we left, unless they were asked again.
    pub(super) fn next_offer(
        &mut self,
        engine: &Arc<EngineContext>,
        acquisition: &Arc<AcquireRequest>,
    ) -> OfferStep<Attempt> {
        let step = offer::next(&mut self.offers, engine, acquisition, self.round_trip);
        if let OfferStep::Take { request: attempt, is_latest } = &step {
            debug_assert!(
                attempt.granted().len() >= engine.nodes.quorum.needed(),
                "fewer nodes than a quorum have offered the lock"
            );
            if *is_latest {
                self.places.leave(attempt.granted());
            }
        }
        step
    }

    /// Gives back an offer whose message was lost, if the node with the queue holds the lock for this waiter.
    pub(super) fn give_back_unheard(
        &mut self,
        engine: &Arc<EngineContext>,
        acquisition: &Arc<AcquireRequest>,
        place: &Place,
    ) {
        if let Some(Queued { holding: Some(holding), .. }) = &place.queued {
            let at_home = (place.home, &holding.token);
            offer::give_back_unheard(&mut self.offers, engine, acquisition, at_home);
        }
    }

    /// Ends the wait of one waiter. Returns the nodes to notify: those that may have it in their
    /// queue and, unless it `has` the lock, those that notified it of its turn.
    pub(super) fn end(&mut self, has: bool) -> NodeSet {
        debug_assert!(!self.offers.has_offers(), "a wait ends with an offer that was not given back");
        let nodes = self.places.end(has);
        debug_assert!(nodes.is_empty() || self.known_as().is_some(), "a node knows a wait without a name");
        self.name = OnceLock::new();
        self.look_at_preferred = None;
        self.closed &= self.refused;
        self.offers = offer::Requests::default();
        (self.offer_life, self.round_trip) = (None, Duration::ZERO);
        nodes
    }
}

/// Asks one node who holds the lock.
fn inspect(engine: &EngineContext, key: &Arc<str>, acquisition: &AcquireRequest, node: usize) -> Arc<Round> {
    let request = Request::inspect(key.clone());
    Round::start_at(&engine.nodes, Expect::AnyAnswer, acquisition.ttl, node, request.into())
}
