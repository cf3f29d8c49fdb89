//! The place of this process in the queue that a node keeps for a lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::attempt::Attempt;
use super::context::EngineContext;
use super::offer::Questions;
use super::options::AcquireRequest;
use crate::node::{Capability, Expiry, Holding, Queued, Request, Vote};
use crate::quorum::node_set::NodeSet;
use crate::quorum::round::{Expect, Round};
use crate::quorum::vote_report::{NodeVote, VoteOutcome, VoteReport};
use crate::runtime::entropy::Entropy;
use quorlock_protocol::{
    EXPIRY_JITTER, Keys, Moment, QUEUE_PATIENCE, QueueHeartbeat, Token, WaiterId, fraction, offer_heartbeat,
    preferred_node, turn,
};

/// For how long a node that has not answered is passed over by those of this process who wait next: each of them
/// would wait for it as long. Then it is asked again.
const PASSED_FOR: Duration = Duration::from_secs(1);
/// How long the node may name the same holder until another one is asked.
const LOOKS: Duration = Duration::from_secs(2);

/// Where this process waits for a lock, in the queue of one node: of the one that all ask first who contend for it,
/// or else of the next that answers (ADR 25). A place there is a hint of when to ask, and no more (rule W-1).
pub(crate) struct NodeQueue {
    /// What it is called there: another name for each wait, drawn by the process that waits (rule I-42).
    pub(super) waiter: WaiterId,
    /// The nodes in whose queues it may stand.
    standing: NodeSet,
    /// Those that have told us that it is our turn.
    turns: NodeSet,
    /// How many nodes to pass over, from the preferred one on: those that did not answer.
    passed: usize,
    /// No node keeps a queue that this process may use…
    pub(super) closed: bool,
    /// …for good.
    refused: bool,
    heartbeat: QueueHeartbeat,
    /// What an offer may answer.
    questions: Questions,
    /// For how long an offer lives, where one is accepted.
    offer_life: Option<Duration>,
    /// How far the node is that was asked last.
    pub(super) round_trip: Duration,
    /// Whether the lock was held, when others were asked or this process came into the queue.
    pub(super) waits: bool,
    /// What the key held when the node was asked last, where this process was the first.
    holder: Option<Token>,
    /// When another node was asked last whether it says the same, or the first time that this one said it.
    looked: Option<Moment>,
    /// How many were before it.
    ahead: Option<u32>,
    /// How far from that node the last one was that was asked whether it holds that, too.
    looks: usize,
}

/// What a node says of a place in its queue.
pub(super) struct Place {
    pub(super) home: usize,
    /// `None` where it is our turn.
    pub(super) queued: Option<Queued>,
    pub(super) report: VoteReport,
    /// How long a turn takes.
    pub(super) turn: Duration,
}

impl Place {
    /// How many processes wait before this one.
    pub(super) fn ahead(&self) -> u32 {
        self.queued.as_ref().map_or(0, |queued| queued.ahead)
    }

    /// Whether we are one of the first two, who are told of every change of the lock.
    pub(super) fn is_near(&self) -> bool {
        self.queued.as_ref().is_some_and(|queued| queued.ahead < 2)
    }

    /// Whether we are the first behind somebody who holds the lock.
    pub(super) fn is_first_behind_holder(&self) -> bool {
        self.queued.as_ref().is_some_and(|queued| queued.ahead == 0 && queued.holding.is_some())
    }
}

impl NodeQueue {
    pub(super) fn new(entropy: &dyn Entropy) -> NodeQueue {
        NodeQueue {
            waiter: WaiterId::new(entropy.next_u64()),
            standing: NodeSet::default(),
            turns: NodeSet::default(),
            passed: 0,
            closed: false,
            refused: false,
            heartbeat: QueueHeartbeat::default(),
            questions: Questions::default(),
            offer_life: None,
            round_trip: Duration::ZERO,
            waits: false,
            holder: None,
            looked: None,
            ahead: None,
            looks: 0,
        }
    }

    /// Asks for a place, or says that it is still wanted. `None` where no node has one. Not of the `strays`, which
    /// hold something else than the others.
    pub(super) async fn ask(
        &mut self,
        shared: &Arc<EngineContext>,
        keys: &Keys,
        plan: &Arc<AcquireRequest>,
        strays: NodeSet,
    ) -> Option<Place> {
        let nodes = shared.nodes.quorum.nodes();
        for _ in 0..nodes {
            let home = (preferred_node(keys.first(), nodes) + self.passed) % nodes;
            // Another wait of this process has waited for it in vain, if not this one.
            let is_silent = shared.nodes.is_passed_over(home) && !self.standing.contains(home);
            if shared.nodes.can(home, Capability::Queue) && !strays.contains(home) && !is_silent {
                let round_trip = shared.nodes.round_trip(home).unwrap_or_default();
                let turn = turn(round_trip);
                let terms = self.questions.ask(shared, plan, (home, round_trip));
                self.round_trip = round_trip;
                self.offer_life = terms.as_ref().map(|terms| terms.life);
                let request = Request::Enqueue {
                    key: keys.first().clone(),
                    waiter: self.waiter,
                    elapsed: shared.now().since(plan.since),
                    patience: QUEUE_PATIENCE,
                    turn,
                    terms,
                    context: shared.context(&plan.label),
                    others_seen: shared.has_met_others(keys.first()),
                };
                self.standing.insert(home);
                let round =
                    Round::start_at(&shared.nodes, Expect::AnyAnswer, plan.ttl, home, &request.into());
                if round.refuses(home).await {
                    let queued = if let Some(Ok(Vote::Queued(queued))) = round.answer_of(home).await {
                        Some(*queued)
                    } else {
                        self.told(NodeSet::of(home));
                        None
                    };
                    return Some(Place { home, queued, report: round.report(), turn });
                }
                let failed = |vote: &NodeVote| matches!(&vote.outcome, VoteOutcome::Failed(error) if error.is_permanent());
                shared.nodes.pass_over(home, PASSED_FOR);
                self.refused |= round.report().votes().get(home).is_some_and(failed);
            }
            self.passed += 1;
        }
        self.closed = true;
        None
    }

    /// These nodes have told us that it is our turn, and have taken us out of their queues. Where the lock is not
    /// acquired in that turn, the next is told by them.
    pub(super) fn told(&mut self, nodes: NodeSet) {
        self.standing = self.standing.intersection(nodes.complement());
        self.turns.add(nodes);
    }

    /// Whether to try to acquire the lock, by what the node has said: when it is our turn, and where it may be alone
    /// with what it says. It may have restarted, and not know the lock that others hold; or it keeps what is left of
    /// an attempt, when the others have let go. So another is asked, which changes nothing there (rule W-4).
    pub(super) async fn is_worth_trying(
        &mut self,
        shared: &Arc<EngineContext>,
        keys: &Keys,
        plan: &AcquireRequest,
        place: &Place,
    ) -> bool {
        let Some(queued) = &place.queued else {
            return !self.waits
                || !matches!(self.look_aside(shared, keys, plan, place).await, Some(Vote::Held(_)));
        };
        self.waits = true;
        match queued {
            Queued { ahead: 0, holding: Some(holding), .. } => {
                let same = self.holder.replace(holding.token.clone()).as_ref() == Some(&holding.token);
                // Every other second.
                let now = shared.now();
                let is_due = same && self.looked.is_some_and(|looked| now.since(looked) >= LOOKS);
                if is_due || !same {
                    self.looked = Some(now);
                }
                is_due
                    && match self.look_aside(shared, keys, plan, place).await {
                        Some(Vote::Held(other)) => other.token != holding.token,
                        Some(_) => true,
                        None => false,
                    }
            }
            _ => false,
        }
    }

    /// What one of the other nodes says of the lock, each time another one; `None` where it says nothing.
    async fn look_aside(
        &mut self,
        shared: &Arc<EngineContext>,
        keys: &Keys,
        plan: &AcquireRequest,
        place: &Place,
    ) -> Option<Vote> {
        let (aside, round) = self.inspect_aside(shared, keys, plan, place);
        if round.refuses(aside).await { round.answer_of(aside).await?.ok() } else { None }
    }

    /// The same, for people.
    pub(super) async fn report_aside(
        &mut self,
        shared: &Arc<EngineContext>,
        keys: &Keys,
        plan: &AcquireRequest,
        place: &Place,
    ) -> VoteReport {
        let (aside, round) = self.inspect_aside(shared, keys, plan, place);
        round.refuses(aside).await;
        round.report()
    }

    fn inspect_aside(
        &mut self,
        shared: &Arc<EngineContext>,
        keys: &Keys,
        plan: &AcquireRequest,
        place: &Place,
    ) -> (usize, Arc<Round>) {
        let nodes = shared.nodes.quorum.nodes();
        self.looks = self.looks % nodes.saturating_sub(1).max(1) + 1;
        let aside = (place.home + self.looks) % nodes;
        let request = Request::Inspect { key: keys.first().clone() };
        (aside, Round::start_at(&shared.nodes, Expect::AnyAnswer, plan.ttl, aside, &request.into()))
    }

    /// Whether others come before than the last time.
    pub(super) fn has_moved(&mut self, place: &Place) -> bool {
        self.ahead.replace(place.ahead()) != Some(place.ahead())
    }

    /// When to ask again.
    pub(super) fn next(&mut self, place: &Place, shared: &EngineContext, is_told: bool) -> Moment {
        let now = shared.now();
        let random = shared.entropy.next_u64();
        let expiry = match &place.queued {
            Some(Queued { ahead: 0, holding: Some(Holding { expiry: Expiry::In(left), .. }), .. }) => {
                left.saturating_add(Duration::from_millis(1) + fraction(EXPIRY_JITTER, random))
            }
            _ => Duration::MAX,
        };
        // An offer counts from the last request.
        let offers = match (&place.queued, self.offer_life) {
            (Some(Queued { ahead: 0 | 1, holding: Some(holding), .. }), Some(life))
                if holding.token.is_ours() =>
            {
                let longest = offer_heartbeat(life);
                longest * 3 / 4 + fraction(longest / 4, random)
            }
            _ => Duration::MAX,
        };
        now + expiry.min(offers).min(match &place.queued {
            Some(queued) if is_told => {
                // Of the others it is not known.
                let free = queued.holding.is_none() && queued.ahead < 2;
                self.heartbeat.next(queued.ahead, free, place.turn, random)
            }
            Some(queued) => self.heartbeat.untold(queued.ahead, random),
            // The node knows less than another one, until it has been told.
            None => self.heartbeat.forgotten(random),
        })
    }

    /// Waits until a node has offered the lock, in answer to what was asked by now.
    pub(super) fn offered(&self, bell: Arc<Notify>) -> impl Future<Output = ()> + use<> {
        self.questions.voted(bell)
    }

    /// Whether a node has offered the lock.
    pub(super) fn has_offers(&self) -> bool {
        self.questions.has_votes()
    }

    /// Whether to ask again, because an offer is about to come.
    pub(super) fn is_soon_first(&self) -> bool {
        self.questions.turned_stale()
    }

    /// Until when to wait for more offers, which come within the time of a turn from the first.
    pub(super) fn offers_until(&mut self, now: Moment) -> Moment {
        self.questions.wait_until(now, turn(self.round_trip))
    }

    /// The attempt that a quorum has offered the lock. Those that have are not to be told that we wait no longer, unless
    /// they were asked once more.
    pub(super) fn take_offered(
        &mut self,
        shared: &Arc<EngineContext>,
        plan: &Arc<AcquireRequest>,
    ) -> Option<Attempt> {
        let (attempt, is_last) = self.questions.take_offered(shared, plan)?;
        if is_last {
            self.standing = self.standing.intersection(attempt.granted().complement());
        }
        Some(attempt)
    }

    /// Gives back what was offered by too few, or too late.
    pub(super) fn give_back(&mut self, shared: &Arc<EngineContext>, plan: &Arc<AcquireRequest>) {
        self.questions.give_back(shared, plan);
    }

    /// Ends for one waiter, and returns the nodes that are to know: those in whose queues it may stand, and those
    /// that have left the lock to it where it `has` not got it.
    pub(super) fn end(&mut self, has: bool, entropy: &dyn Entropy) -> NodeSet {
        let NodeQueue { standing, turns, closed, refused, .. } =
            std::mem::replace(self, NodeQueue::new(entropy));
        self.closed = closed && refused;
        self.refused = refused;
        if has { standing } else { standing.union(turns) }
    }
}
