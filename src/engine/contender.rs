//! Contends for a lock on behalf of all waiters in this process.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, trace};

use super::attempt::{AskOrder, Attempt, Preference};
use super::context::EngineContext;
use super::node_queue::{NodeQueue, Place};
use super::options::{AcquireRequest, News};
use super::subscription::Ears;
use super::wait::{Wait, Waiting, tell};
use crate::error::AcquireError;
use crate::node::{Expiry, Holding, Request, SharedRequest};
use crate::quorum::node_set::NodeSet;
use crate::quorum::round::{Expect, Round};
use crate::quorum::vote_report::{Holder, NodeVote, VoteOutcome, VoteReport};
use quorlock_protocol::{
    Backoff, COURTESY, FencingToken, INTENT_AGE, INTENT_PATIENCE, Keys, Mode, Moment, Refusal, Token,
    Verdict, fraction, least_left, preferred_node,
};

/// One process's attempts to acquire one key. Lives on from waiter to waiter, and keeps what was
/// learnt about the contention.
pub(crate) struct Contest {
    shared: Arc<EngineContext>,
    keys: Keys,
    order: AskOrder,
    preference: Preference,
    /// The token that a node held which was the only one to refuse, last time.
    refused_by: Option<Token>,
    /// The largest fencing token seen; zero if it is only known that others want the lock.
    seen: Option<FencingToken>,
    /// The number of rounds for the current waiter.
    pub(crate) rounds: usize,
    /// The pauses after split votes, and where nodes do not send hints.
    pauses: Backoff,
    mode: Mode,
    /// Keeps new readers out while this writer waits.
    intent: Option<Intent>,
    /// Our place in the queue of a node.
    queue: NodeQueue,
    /// The last known holder.
    holder: Option<Holder>,
}

/// A writer's announcement on the nodes while it waits for readers.
struct Intent {
    /// The key that the readers share.
    key: Arc<str>,
    /// When it was last sent.
    said: Moment,
}

/// The upper bound of the first pause after a split vote: a few round trips in one datacenter, to
/// desynchronize the contenders.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause. No hint announces the end of a split.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How often a `Wait::Never` call retries after a vote in which no client had a quorum. The retries
/// take 150 ms at most in one datacenter, and one of the contenders then has the lock.
const SPLITS: usize = 5;
/// The outcome of waiting in a queue.
enum Chance {
    /// It is our turn to ask all nodes, until this moment.
    Turn(Moment),
    /// The previous holder has offered the lock.
    Offer(Box<Attempt>),
    /// No node has a queue.
    NoQueue,
}

/// What to do next in a queue.
enum Next {
    /// Ask all nodes for the lock.
    Try,
    /// Ask for the place in the queue again.
    AskAgain,
    /// Accept the offer.
    Offered(Box<Attempt>),
}

/// How long to wait before asking again.
struct Pause {
    until: Moment,
    /// How many nodes must hint at a change to end the pause early …
    wanted: usize,
    /// … which nodes count …
    among: NodeSet,
    /// … and for which keys, if there are several.
    in_the_way: Vec<Arc<str>>,
}

impl Contest {
    pub(crate) fn new(shared: &Arc<EngineContext>, keys: &Keys, mode: Mode) -> Contest {
        let contended = shared.lines.others_want(keys.line(), || shared.now());
        Contest {
            shared: shared.clone(),
            keys: keys.clone(),
            order: AskOrder::AllAtOnce,
            preference: Preference::default(),
            refused_by: None,
            seen: contended.then_some(FencingToken::ZERO),
            rounds: 0,
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            mode,
            intent: None,
            queue: NodeQueue::new(&*shared.entropy),
            holder: None,
        }
    }

    /// Whether it ever lost to another client, so that there is something to remember.
    pub(crate) fn met_others(&self) -> bool {
        self.seen.is_some()
    }

    /// Contends until `plan` has the lock or has failed.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the attempt is withdrawn, and so is every trace of a waiter.
    pub(crate) async fn win(&mut self, plan: &Arc<AcquireRequest>) -> Result<Attempt, AcquireError> {
        self.rounds = 0;
        let ears = Ears::open(self.shared.lines_of(self.mode), &self.keys);
        let mut bid = Bid { contest: self, plan, won: false };
        let outcome = bid.contest.contend(plan, &ears).await;
        bid.won = outcome.is_ok();
        outcome
    }

    async fn contend(&mut self, plan: &Arc<AcquireRequest>, ears: &Ears) -> Result<Attempt, AcquireError> {
        let mut splits = 0;
        // When our turn ends.
        let mut turn: Option<Moment> = None;
        loop {
            if self.shared.closing.is_cancelled() {
                return Err(AcquireError::Closed);
            }
            let is_over = |turn: Moment| turn <= self.shared.now();
            let mut offered = None;
            if self.queue.has_offers() {
                // An offer may also arrive during our turn.
                offered = self.take_offer(ears, plan).await?;
            } else if self.may_queue(plan) && self.met_others() && turn.is_none_or(is_over) {
                turn = match self.turn(plan, ears).await? {
                    Chance::Turn(until) => Some(until),
                    Chance::Offer(attempt) => {
                        offered = Some(*attempt);
                        None
                    }
                    Chance::NoQueue => None,
                };
            }
            if plan.wait == Wait::Never || self.may_queue(plan) {
                // A call that asks once needs the verdict of all nodes, not one node's refusal; and
                // in our turn there is no competition.
                self.order = AskOrder::AllAtOnce;
            }
            let mut attempt = offered.unwrap_or_else(|| {
                ears.ask_anew();
                Attempt::start(&self.shared, plan, self.order, self.seen)
            });
            let asked = attempt.sent();
            let verdict = attempt.verdict().await;
            let now = self.shared.now();
            self.rounds += attempt.rounds();
            if verdict == Verdict::Won && attempt.in_time(now) {
                self.pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
                if let Some(offers) = &self.shared.offers {
                    offers.acquired(self.keys.first(), self.queue.waiter, attempt.token());
                }
                if self.met_others() {
                    self.seen = self.seen.max(attempt.largest_number());
                    self.learn(&attempt.report());
                    self.order = AskOrder::PreferredFirst(self.preference);
                }
                return Ok(attempt);
            }
            let report = attempt.report();
            // Even if no node has reported a number: others want the lock.
            self.seen = self.seen.max(attempt.largest_number()).max(Some(FencingToken::ZERO));
            if verdict == Verdict::Contended {
                self.shared.lines.meet_others(self.keys.line(), now);
            }
            self.learn(&report);
            self.queue.waits |= verdict == Verdict::Contended && report.holder().is_some();
            drop(attempt);
            trace!(keys = %self.keys, %verdict, votes = %report, "not acquired");
            let asks_once = plan.wait == Wait::Never;
            if asks_once && splits < SPLITS && report.is_split() {
                if splits == 0 {
                    // Longer than the others' votes are in flight, or all would collide again.
                    let first = FIRST_PAUSE.max(now.since(asked));
                    self.pauses = Backoff::new(first, LONGEST_PAUSE.max(first * 4));
                }
                splits += 1;
            } else if let Some(error) = last_word(plan, verdict, &report, now) {
                return Err(error);
            }
            let mut pause = self.pause(verdict, &report, ears, now);
            if !asks_once {
                self.intend(plan, &report, now);
                self.tell(plan, News { verdict, report: Box::new(report) }, None, now);
            }
            self.order = AskOrder::PreferredFirst(self.preference);
            if self.may_queue(plan) && verdict == Verdict::Contended {
                // The other nodes may have released a moment after the one that hinted. If not, we
                // queue.
                let Some(turn) = turn else { continue };
                pause.until = pause.until.min(turn);
            }
            tokio::select! {
                biased;
                () = self.shared.closing.cancelled() => return Err(AcquireError::Closed),
                () = self.rest(pause, ears) => {}
            }
        }
    }

    /// Whether waiters use the queue of a node. Readers do not, since they do not wait for each
    /// other; nor do callers that want several locks, each of which has its own queue.
    fn may_queue(&self, plan: &AcquireRequest) -> bool {
        let alone = self.mode == Mode::Exclusive && !self.keys.are_several();
        alone && plan.wait != Wait::Never && !self.queue.closed
    }

    /// Waits until the lock is offered, it is our turn, or there is another reason to try.
    async fn turn(&mut self, plan: &Arc<AcquireRequest>, ears: &Ears) -> Result<Chance, AcquireError> {
        // Earlier notifications belong to another turn.
        ears.turns(self.queue.waiter);
        loop {
            ears.ask_anew();
            let offered = self.queue.offered(ears.bell());
            let asked = tokio::select! {
                biased;
                () = self.shared.closing.cancelled() => return Err(AcquireError::Closed),
                () = offered => None,
                asked = self.queue.ask(&self.shared, &self.keys, plan, self.preference.strays) => asked,
            };
            if self.queue.has_offers() {
                match self.take_offer(ears, plan).await? {
                    Some(attempt) => return Ok(Chance::Offer(Box::new(attempt))),
                    None => continue,
                }
            }
            self.rounds += 1;
            let Some(place) = asked else { return Ok(Chance::NoQueue) };
            let now = self.shared.now();
            if self.queue.has_moved(&place) {
                let node = self.shared.nodes.name(place.home);
                debug!(keys = %self.keys, processes_before = place.ahead(), %node, "waiting in the queue");
            }
            self.look_for_others(&place.report);
            self.intend(plan, &place.report, now);
            // The node tells a waiter far from the front nothing about the holder.
            let is_unknown = place.ahead() > 1 && plan.on_wait.is_some();
            let report = Box::new(if is_unknown {
                self.queue.report_aside(&self.shared, &self.keys, plan, &place).await
            } else {
                place.report.clone()
            });
            self.tell(plan, News { verdict: Verdict::Contended, report }, Some(place.ahead()), now);
            let told_before = ears.turns(self.queue.waiter);
            let go = self.queue.is_worth_trying(&self.shared, &self.keys, plan, &place).await;
            let is_turn = (go || told_before.len() > 0) && !self.queue.has_offers();
            let next = if is_turn { Next::Try } else { self.rest_in_queue(&place, ears, plan).await? };
            match next {
                Next::Try => return Ok(Chance::Turn(self.shared.now() + place.turn)),
                Next::Offered(attempt) => return Ok(Chance::Offer(attempt)),
                Next::AskAgain => {}
            }
        }
    }

    /// Waits in the queue, and returns what to do next.
    async fn rest_in_queue(
        &mut self,
        place: &Place,
        ears: &Ears,
        plan: &Arc<AcquireRequest>,
    ) -> Result<Next, AcquireError> {
        let home = NodeSet::of(place.home);
        let is_told = ears.heard(&[]).hearing(home) > 0;
        let mut until = self.queue.next(place, &self.shared, is_told);
        // Created before the first check, so that no hint is missed.
        let bell = ears.bell();
        loop {
            if self.queue.has_offers() {
                let attempt = self.take_offer(ears, plan).await?;
                return Ok(attempt.map_or(Next::AskAgain, |attempt| Next::Offered(Box::new(attempt))));
            }
            let told = ears.turns(self.queue.waiter);
            if told.len() > 0 {
                self.queue.told(told);
                return Ok(Next::Try);
            }
            if self.queue.is_soon_first() {
                return Ok(Next::AskAgain);
            }
            let heard = ears.heard(&[]);
            let (changed, deaf) = (heard.changed(home) > 0, is_told && heard.hearing(home) == 0);
            let changed_elsewhere = heard.changed(home.complement()) >= self.shared.nodes.quorum.needed();
            if (changed || changed_elsewhere) && place.is_first_behind_holder() {
                return Ok(Next::AskAgain);
            }
            if place.queued.is_none() && heard.changed(home.complement()) > 0 {
                // It is our turn; the node that said otherwise may have lagged.
                return Ok(Next::Try);
            }
            if deaf || (changed && place.is_near()) {
                // The waiter before us has its turn now.
                ears.ask_anew();
                until = until.min(self.shared.now() + place.turn);
            }
            tokio::select! {
                biased;
                () = self.shared.closing.cancelled() => return Err(AcquireError::Closed),
                () = bell.notified() => {}
                () = self.shared.rest_until(until) => return Ok(Next::AskAgain),
            }
        }
    }

    /// Waits for the offers of the other nodes after the first one. Hints that arrive with the
    /// offers report the same change. Returns `None` if the offers are too few or too late; they
    /// are then given back.
    async fn take_offer(
        &mut self,
        ears: &Ears,
        plan: &Arc<AcquireRequest>,
    ) -> Result<Option<Attempt>, AcquireError> {
        let bell = ears.bell();
        loop {
            let now = self.shared.now();
            let until = self.queue.offers_until(now);
            if let Some(attempt) = self.queue.take_offered(&self.shared, plan) {
                let left = attempt.deadline().since(now);
                if left >= least_left(attempt.ttl(), self.queue.round_trip) {
                    return Ok(Some(attempt));
                }
            } else if now < until {
                tokio::select! {
                    biased;
                    () = self.shared.closing.cancelled() => return Err(AcquireError::Closed),
                    () = bell.notified() => {}
                    () = self.shared.rest_until(until) => {}
                }
                continue;
            }
            // The next waiter gets it.
            self.queue.give_back(&self.shared, plan);
            return Ok(None);
        }
    }

    /// If readers hold the lock, asks all nodes to admit no new readers (rule S-5): with the
    /// preferred node alone, readers would find a quorum among the others. Done only while readers
    /// hold the lock, or writers that wait for each other would keep readers out forever.
    fn intend(&mut self, plan: &AcquireRequest, report: &VoteReport, now: Moment) {
        let by_readers = |vote: &NodeVote| {
            let VoteOutcome::Held(holding) = &vote.outcome else { return None };
            let key = holding.key.as_ref().unwrap_or(self.keys.first());
            holding.token.is_marker().then(|| key.clone())
        };
        let shared_key = report.votes().iter().find_map(by_readers);
        let Some(key) = shared_key.filter(|_| self.mode == Mode::Exclusive) else { return };
        if self.intent.as_ref().is_some_and(|intent| intent.key != key) {
            self.desist(plan);
        }
        if self.intent.as_ref().is_some_and(|intent| now.since(intent.said) < INTENT_AGE) {
            return;
        }
        self.intent = Some(Intent { key: key.clone(), said: now });
        let (waiter, patience) = (self.queue.waiter, INTENT_PATIENCE);
        let request = |_| Some(Request::Intend { key: key.clone(), waiter, patience });
        drop(Round::start(&self.shared.nodes, Expect::AnyAnswer, plan.ttl, request));
    }

    /// Withdraws the writer's announcement: it has the lock or has given up.
    fn desist(&mut self, plan: &AcquireRequest) {
        if let Some(Intent { key, .. }) = self.intent.take() {
            let waiter = self.queue.waiter;
            let request = |_| Some(Request::Desist { key: key.clone(), waiter });
            drop(Round::start(&self.shared.nodes, Expect::AnyAnswer, plan.ttl, request));
        }
    }

    /// Pauses so that clients which wanted the lock while this process had it go first.
    pub(crate) async fn give_way(&mut self) {
        self.order = AskOrder::PreferredFirst(self.preference);
        self.seen = self.seen.max(Some(FencingToken::ZERO));
        let pause = COURTESY + fraction(COURTESY, self.shared.entropy.half());
        self.shared.rest_until(self.shared.now() + pause).await;
    }

    /// Learns which node to ask first next time.
    ///
    /// If one node alone refuses twice, for the same holder, its key may be stale: the next node is
    /// asked instead. If all nodes were asked, and one client has a quorum, the nodes that hold
    /// another token are known.
    fn learn(&mut self, report: &VoteReport) {
        self.look_for_others(report);
        if let Some(contested) = report.holder().and_then(|holder| holder.key) {
            // All contenders for this key meet there, including those that want several keys.
            self.preference.home = Some(preferred_node(&contested, report.quorum().nodes()));
        }
        let mut refusing = Vec::new();
        let mut silent = NodeSet::default();
        for (node, vote) in report.votes().iter().enumerate() {
            match &vote.outcome {
                VoteOutcome::Held(holding) => refusing.push((node, &holding.token)),
                VoteOutcome::Pending | VoteOutcome::Failed(_) => silent.insert(node),
                VoteOutcome::Granted
                | VoteOutcome::Restored
                | VoteOutcome::Behind
                | VoteOutcome::Ahead
                | VoteOutcome::Free
                | VoteOutcome::Quarantined { .. }
                | VoteOutcome::Duplicate { .. }
                | VoteOutcome::Skipped => {}
            }
        }
        if let ([(_, token)], AskOrder::PreferredFirst(_), 0) = (&*refusing, self.order, report.granted()) {
            if self.refused_by.as_ref() == Some(*token) {
                self.preference.passed += 1;
            }
            self.refused_by = Some((*token).clone());
            return;
        }
        self.refused_by = None;
        self.preference.passed = 0;
        let needed = report.quorum().needed();
        let holder = report.holder().filter(|holder| holder.nodes >= needed);
        if holder.is_some() || report.granted() >= needed {
            let holder = holder.map(|holder| holder.token);
            let strays = refusing.iter().filter(|(_, token)| holder.as_ref() != Some(*token));
            // For silent nodes, keep what was known.
            let known = self.preference.strays.intersection(silent);
            self.preference.strays = known.union(strays.map(|(node, _)| *node).collect());
        }
    }

    /// Records a holder that is not in the queue: the lock must then be free for a moment between
    /// holders (rule O-9).
    fn look_for_others(&self, report: &VoteReport) {
        let by_others =
            |vote: &NodeVote| matches!(&vote.outcome, VoteOutcome::Held(holding) if !holding.token.is_ours());
        if let Some(offers) = &self.shared.offers
            && report.votes().iter().any(by_others)
        {
            offers.meet_others(self.keys.first(), self.shared.now());
        }
    }

    /// Reports the holder to the waiters of this process, and how many processes wait before it, if
    /// a node has said so.
    fn tell(&mut self, plan: &AcquireRequest, news: News, processes: Option<u32>, now: Moment) {
        if let Some(holder) = news.report.holder() {
            self.holder = Some(holder);
        }
        let holder = self.holder.clone();
        if let Some(on_wait) = &plan.on_wait {
            let waited = now.since(plan.since);
            tell(&**on_wait, &Waiting { holder: holder.clone(), ahead: 0, processes, waited });
        }
        self.shared.lines_of(self.mode).tell(self.keys.line(), Some(news), || (holder, processes), now);
    }

    /// Decides how long to wait and for which nodes, by the [rule](Refusal::rest) and the votes.
    fn pause(&mut self, verdict: Verdict, report: &VoteReport, ears: &Ears, now: Moment) -> Pause {
        let entropy = &self.shared.entropy;
        let needed = report.quorum().needed();
        let (mut refusing, mut granted) = (NodeSet::default(), NodeSet::default());
        let mut behind = 0;
        let mut ends: Vec<Duration> = Vec::new();
        let mut in_the_way: Vec<Arc<str>> = Vec::new();
        for (index, vote) in report.votes().iter().enumerate() {
            match &vote.outcome {
                VoteOutcome::Held(Holding { expiry: Expiry::In(remaining), key, .. }) => {
                    refusing.insert(index);
                    ends.push(*remaining);
                    in_the_way.extend(key.clone().filter(|key| !in_the_way.contains(key)));
                }
                VoteOutcome::Behind => {
                    refusing.insert(index);
                    behind += 1;
                }
                VoteOutcome::Granted => granted.insert(index),
                VoteOutcome::Held(_)
                | VoteOutcome::Ahead
                | VoteOutcome::Restored
                | VoteOutcome::Free
                | VoteOutcome::Quarantined { .. }
                | VoteOutcome::Duplicate { .. }
                | VoteOutcome::Pending
                | VoteOutcome::Failed(_)
                | VoteOutcome::Skipped => {}
            }
        }
        let mut refusal = Refusal::new(report.granted(), needed);
        refusal.held = report.holder().map_or(0, |holder| holder.nodes) + behind >= needed;
        refusal.by_one =
            matches!(self.order, AskOrder::PreferredFirst(_)) && refusing.len() == 1 && report.granted() == 0;
        // A node that granted reports our own withdrawal as a change: Redis 6.0 notifies the
        // writer, too.
        let among = if refusal.by_one { refusing } else { granted.complement() };
        let rest = if verdict == Verdict::Contended {
            let hearing = ears.heard(&in_the_way).hearing(among);
            refusal.rest(hearing, &mut ends, || entropy.half())
        } else {
            None
        };
        let (pause, wanted) = match rest {
            Some(rest) => (rest, refusal.hints_wanted()),
            None => (self.pauses.next(entropy.half()), usize::MAX),
        };
        Pause { until: now + pause, wanted, among, in_the_way }
    }

    /// Waits for the end of the pause, for enough hints, or for an offer.
    async fn rest(&self, pause: Pause, ears: &Ears) {
        // Created before the first check, so that no hint is missed.
        let bell = ears.bell();
        let enough = async {
            while ears.heard(&pause.in_the_way).changed(pause.among) < pause.wanted
                && !self.queue.has_offers()
            {
                bell.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = enough => {}
            () = self.shared.rest_until(pause.until) => {}
        }
    }
}

/// A caller that contends, until that is decided or the future is dropped.
struct Bid<'a> {
    contest: &'a mut Contest,
    plan: &'a Arc<AcquireRequest>,
    won: bool,
}

impl Drop for Bid<'_> {
    fn drop(&mut self) {
        self.contest.desist(self.plan);
        // A waiter that has the lock or has given up must not hold up the others.
        let (key, waiter) = (self.contest.keys.first().clone(), self.contest.queue.waiter);
        let shared = self.contest.shared.clone();
        self.contest.queue.give_back(&shared, self.plan);
        let queues = self.contest.queue.end(self.won, &*self.contest.shared.entropy);
        if queues.len() > 0 {
            let leave = SharedRequest::from(Request::LeaveQueue { key, waiter });
            let request = |node| queues.contains(node).then(|| leave.clone());
            drop(Round::start(&self.contest.shared.nodes, Expect::AnyAnswer, self.plan.ttl, request));
        }
    }
}

/// Returns the error for a caller that does not wait, or for which waiting is pointless.
fn last_word(
    plan: &AcquireRequest,
    verdict: Verdict,
    report: &VoteReport,
    now: Moment,
) -> Option<AcquireError> {
    if report.misconfigured() {
        let (resource, report) = (plan.resource.clone(), Box::new(report.clone()));
        return Some(AcquireError::Misconfigured { resource, report });
    }
    let in_vain = match plan.wait {
        Wait::Never => true,
        // Quarantines end at a known time. Better to fail now than after the wait.
        Wait::UpTo(longest) => !report.may_carry_within((plan.since + longest).since(now)),
        Wait::Forever => false,
    };
    let news = || News { verdict, report: Box::new(report.clone()) };
    in_vain.then(|| plan.not_acquired(news(), now.since(plan.since)))
}
