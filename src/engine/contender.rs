//! Contends for a lock on behalf of all who wait for it in this process.

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

/// One process's struggle for one key. It goes on from waiter to waiter, and so does what it has
/// learnt: whether there is a contest at all.
pub(crate) struct Contest {
    shared: Arc<EngineContext>,
    keys: Keys,
    order: AskOrder,
    preference: Preference,
    /// Whose key the node had that refused alone, the last time.
    refused_by: Option<Token>,
    /// The largest fencing token met here; nought, where it is only known that others want the lock.
    seen: Option<FencingToken>,
    /// How many rounds it has taken for this waiter.
    pub(crate) rounds: usize,
    /// Pauses after split votes, and where nodes do not tell of changes.
    pauses: Backoff,
    mode: Mode,
    /// Asks readers that are new to stay back.
    intent: Option<Intent>,
    /// Where we wait for our turn.
    queue: NodeQueue,
    /// Who was seen last to hold the lock.
    holder: Option<Holder>,
}

/// What a writer has left at the nodes while it waits for readers.
struct Intent {
    /// The key that they share.
    key: Arc<str>,
    /// When it was last said.
    said: Moment,
}

/// The first pause after a split vote is at most this: some round trips in one datacenter, so that
/// competitors come apart.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// And none is longer. Nobody tells when a split is over.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How often somebody who asks once asks again after a vote in which nobody was seen to have a quorum:
/// together for 150 ms at most in one datacenter, in which one of those who ask will have got the lock.
const SPLITS: usize = 5;
/// What comes of waiting in a queue.
enum Chance {
    /// It is our turn to ask all nodes, until then.
    Turn(Moment),
    /// The holder before has offered the lock.
    Offer(Box<Attempt>),
    /// No node has a queue.
    NoQueue,
}

/// What to do next in a queue.
enum Next {
    /// Ask all nodes for the lock.
    Try,
    /// Ask for the place again.
    AskAgain,
    /// Take up the offer.
    Offered(Box<Attempt>),
}

/// Until when to wait before asking again.
struct Pause {
    until: Moment,
    /// Asking is worth while before that when so many nodes have hinted at a change…
    wanted: usize,
    /// …among these…
    among: NodeSet,
    /// …of these keys, where there are several.
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

    /// Whether it has ever been lost, so that there is something to know for the next time.
    pub(crate) fn met_others(&self) -> bool {
        self.seen.is_some()
    }

    /// Contends until whoever has this `plan` has the lock, or must be told that there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropped half-way, it takes the attempt back, and everything else that says that somebody waits.
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
        // Until when it is our turn.
        let mut turn: Option<Moment> = None;
        loop {
            if self.shared.closing.is_cancelled() {
                return Err(AcquireError::Closed);
            }
            let is_over = |turn: Moment| turn <= self.shared.now();
            let mut offered = None;
            if self.queue.has_offers() {
                // While it was our turn, too.
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
                // Who asks once needs the verdict, and not what one node says; and nobody else asks in our turn.
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
            // Even if nobody has spoken of a number: others want the lock.
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
                    // Longer than the others' votes are on their way, or all would meet again.
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
                // Others may have let go a moment later than the node that has told us. Or else we queue.
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

    /// Whether those who wait do so in the queue of a node: not readers, who do not wait for each other, nor who wants
    /// several locks, each of which has a queue of its own.
    fn may_queue(&self, plan: &AcquireRequest) -> bool {
        let alone = self.mode == Mode::Exclusive && !self.keys.are_several();
        alone && plan.wait != Wait::Never && !self.queue.closed
    }

    /// Waits until the lock is offered, or it is our turn; or until there is another reason to try.
    async fn turn(&mut self, plan: &Arc<AcquireRequest>, ears: &Ears) -> Result<Chance, AcquireError> {
        // What was told before belongs to another turn.
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
            // Who is far from the front is not told by the node who holds the lock.
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

    /// Waits in the queue, and says what to do next.
    async fn rest_in_queue(
        &mut self,
        place: &Place,
        ears: &Ears,
        plan: &Arc<AcquireRequest>,
    ) -> Result<Next, AcquireError> {
        let home = NodeSet::of(place.home);
        let is_told = ears.heard(&[]).hearing(home) > 0;
        let mut until = self.queue.next(place, &self.shared, is_told);
        // Asked for before the first look, so that no hint comes between.
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
                // It is our turn, and the node that said otherwise may have been a moment behind.
                return Ok(Next::Try);
            }
            if deaf || (changed && place.is_near()) {
                // Who comes before us has its turn now.
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

    /// A node has offered the lock: waits for the others, which are on their way. What the nodes tell beside their
    /// offers is the same change. `None` where the offers are too few, or too late: then they are given back.
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
            // The next waiter shall have it.
            self.queue.give_back(&self.shared, plan);
            return Ok(None);
        }
    }

    /// Where readers are in the way of a writer, it asks all nodes to let no new ones in (rule S-5): not
    /// only the preferred one, or they would find a quorum among the others. Only while readers hold the
    /// lock: or writers that wait for each other would keep readers out for ever.
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
        let request = |_| Some(Request::AnnounceWriter { key: key.clone(), waiter, patience });
        drop(Round::start(&self.shared.nodes, Expect::AnyAnswer, plan.ttl, request));
    }

    /// The writer waits no longer: it has the lock, or has given up.
    fn desist(&mut self, plan: &AcquireRequest) {
        if let Some(Intent { key, .. }) = self.intent.take() {
            let waiter = self.queue.waiter;
            let request = |_| Some(Request::WithdrawWriter { key: key.clone(), waiter });
            drop(Round::start(&self.shared.nodes, Expect::AnyAnswer, plan.ttl, request));
        }
    }

    /// Lets others go first, who wanted the lock while this process had it.
    pub(crate) async fn give_way(&mut self) {
        self.order = AskOrder::PreferredFirst(self.preference);
        self.seen = self.seen.max(Some(FencingToken::ZERO));
        let pause = COURTESY + fraction(COURTESY, self.shared.entropy.next_u64());
        self.shared.rest_until(self.shared.now() + pause).await;
    }

    /// Learns which node to ask first the next time.
    ///
    /// A node that alone refuses twice, and for the same holder, may be alone with that: the next
    /// one is asked instead. When all were asked, and somebody has a quorum, it is known which nodes
    /// hold something else.
    fn learn(&mut self, report: &VoteReport) {
        self.look_for_others(report);
        if let Some(contested) = report.holder().and_then(|holder| holder.key) {
            // There those are who contend for it alone, or together with others.
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
                | VoteOutcome::NotYourTurn
                | VoteOutcome::FenceAhead
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
            // Of those that have said nothing it is known what was known.
            let known = self.preference.strays.intersection(silent);
            self.preference.strays = known.union(strays.map(|(node, _)| *node).collect());
        }
    }

    /// Whether a program has the lock at a node that does not stand in the queue: then the lock is to be free for a
    /// moment (rule O-9).
    fn look_for_others(&self, report: &VoteReport) {
        let by_others =
            |vote: &NodeVote| matches!(&vote.outcome, VoteOutcome::Held(holding) if !holding.token.is_ours());
        if let Some(offers) = &self.shared.offers
            && report.votes().iter().any(by_others)
        {
            offers.meet_others(self.keys.first(), self.shared.now());
        }
    }

    /// Tells those of this process who wait what has come of asking, and how many processes wait before it, as far
    /// as a node has told.
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

    /// How long to wait, and for which nodes: as the [rule](Refusal::rest) has it, by what the nodes have said.
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
                VoteOutcome::NotYourTurn => {
                    refusing.insert(index);
                    behind += 1;
                }
                VoteOutcome::Granted => granted.insert(index),
                VoteOutcome::Held(_)
                | VoteOutcome::FenceAhead
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
        // Where the lock was granted, a change is our own, of taking it back: Redis 6.0 tells that too.
        let among = if refusal.by_one { refusing } else { granted.complement() };
        let rest = if verdict == Verdict::Contended {
            let hearing = ears.heard(&in_the_way).hearing(among);
            refusal.rest(hearing, &mut ends, || entropy.next_u64())
        } else {
            None
        };
        let (pause, wanted) = match rest {
            Some(rest) => (rest, refusal.hints_wanted()),
            None => (self.pauses.next(entropy.next_u64()), usize::MAX),
        };
        Pause { until: now + pause, wanted, among, in_the_way }
    }

    /// Waits for the end of the pause, for enough hints, or for an offer.
    async fn rest(&self, pause: Pause, ears: &Ears) {
        // Asked for before the first look, so that no hint comes between.
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

/// Somebody contends, until that is decided or the future is dropped.
struct Bid<'a> {
    contest: &'a mut Contest,
    plan: &'a Arc<AcquireRequest>,
    won: bool,
}

impl Drop for Bid<'_> {
    fn drop(&mut self) {
        self.contest.desist(self.plan);
        // Whoever waits no longer, because it has the lock or has given up, must not hold up the others.
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

/// The error for somebody who does not want to wait, or for whom waiting is pointless.
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
        // Quarantines end at a known time. To say at once what is missing is better than after it.
        Wait::UpTo(longest) => !report.may_carry_within((plan.since + longest).since(now)),
        Wait::Forever => false,
    };
    let news = || News { verdict, report: Box::new(report.clone()) };
    in_vain.then(|| plan.not_acquired(news(), now.since(plan.since)))
}
