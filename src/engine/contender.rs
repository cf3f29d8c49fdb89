//! Contends for a lock on behalf of all who wait for it in this process.

use std::sync::Arc;
use std::time::Duration;

use tracing::trace;

use super::attempt::{AskOrder, Attempt, Preference};
use super::context::EngineContext;
use super::options::{AcquireRequest, News, Turn};
use super::subscription::Ears;
use super::wait::{Wait, Waiting, tell};
use crate::error::AcquireError;
use crate::node::{Expiry, Holding, Request, SharedRequest};
use crate::quorum::node_set::NodeSet;
use crate::quorum::round::{Expect, Round};
use crate::quorum::vote_report::{NodeVote, VoteOutcome, VoteReport};
use quorlock_protocol::{
    Backoff, COURTESY, FencingToken, INTENT_AGE, INTENT_PATIENCE, Keys, Mode, Moment, Refusal, Ticket, Token,
    Verdict, fraction, preferred_node,
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
    /// Who is to go first when the lock is given back.
    first: First,
    /// Our attempt that the preferred node may name as the first.
    ours: Option<Token>,
    /// How long the last request took.
    took: Duration,
    /// The largest fencing token met here; nought, where it is only known that others want the lock.
    seen: Option<FencingToken>,
    /// How many rounds it has taken for this waiter.
    pub(crate) rounds: usize,
    /// Pauses after split votes, and where nodes do not tell of changes.
    pauses: Backoff,
    mode: Mode,
    /// Asks readers that are new to stay back.
    intent: Option<Intent>,
}

/// Who goes first when the lock is given back, of all who wait and are told of that at the same moment:
/// whoever the preferred node refused first since the last time. That one asks all nodes at once, and the
/// others stay out of its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// Nobody is known to: each asks the preferred node at once.
    Nobody,
    We,
    /// We did, and were refused: the lock was passed on within a process, which is told in the same way.
    WeInVain,
    Another,
}

/// What a writer has left at the nodes while it waits for readers.
struct Intent {
    /// The key that they share.
    key: Arc<str>,
    ticket: Ticket,
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
            first: First::Nobody,
            ours: None,
            took: Duration::ZERO,
            seen: contended.then_some(FencingToken::ZERO),
            rounds: 0,
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            mode,
            intent: None,
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
        let mut bid = Bid { contest: self, plan, granted: NodeSet::default() };
        let outcome = bid.contest.contend(plan, &ears).await;
        if let Ok(attempt) = &outcome {
            bid.granted = attempt.granted();
        }
        outcome
    }

    async fn contend(&mut self, plan: &Arc<AcquireRequest>, ears: &Ears) -> Result<Attempt, AcquireError> {
        let mut splits = 0;
        loop {
            if self.shared.closing.is_cancelled() {
                return Err(AcquireError::Closed);
            }
            if plan.wait == Wait::Never {
                // Who asks once needs the verdict, and not what one node says.
                self.order = AskOrder::AllAtOnce;
            }
            ears.ask_anew();
            let mut attempt = Attempt::start(&self.shared, plan, self.order, self.seen);
            let asked = attempt.sent();
            let verdict = attempt.verdict().await;
            let now = self.shared.now();
            self.rounds += attempt.rounds();
            if verdict == Verdict::Won && attempt.in_time(now) {
                self.pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
                if self.met_others() {
                    self.seen = self.seen.max(attempt.largest_number());
                    self.learn(&attempt.report());
                    self.order = AskOrder::PreferredFirst(self.preference);
                    (self.first, self.ours) = (First::Nobody, None);
                }
                return Ok(attempt);
            }
            let report = attempt.report();
            // Even if nobody has spoken of a number: others want the lock.
            self.seen = self.seen.max(attempt.largest_number()).max(Some(FencingToken::ZERO));
            if verdict == Verdict::Contended {
                self.shared.lines.meet_others(self.keys.line(), now);
            }
            self.learn_who_is_first(&report, attempt.token());
            self.learn(&report);
            self.took = now.since(asked);
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
            let pause = self.pause(verdict, &report, ears, now);
            if !asks_once {
                self.intend(plan, &report, now);
                self.tell(plan, News { verdict, report: Box::new(report) }, now);
            }
            let changed = tokio::select! {
                biased;
                () = self.shared.closing.cancelled() => return Err(AcquireError::Closed),
                changed = self.rest(pause, ears) => changed,
            };
            let at_once = changed && self.first == First::We;
            self.order =
                if at_once { AskOrder::AllAtOnce } else { AskOrder::PreferredFirst(self.preference) };
        }
    }

    /// Learns who is to go first when the lock is given back, by what the node that was preferred has said to
    /// the attempt with this `token`.
    fn learn_who_is_first(&mut self, report: &VoteReport, token: &Token) {
        let nodes = report.quorum().nodes();
        let preferred = self.preference.first(preferred_node(self.keys.first(), nodes), nodes);
        self.first = match report.votes().get(preferred).map(|vote| &vote.outcome) {
            Some(VoteOutcome::Held(Holding { first: Some(first), .. })) => {
                let again = self.ours.as_ref() == Some(first);
                let in_vain = match self.first {
                    First::We => again && self.order == AskOrder::AllAtOnce,
                    First::WeInVain => again,
                    First::Nobody | First::Another => false,
                };
                if again || first == token {
                    self.ours = Some(first.clone());
                    if in_vain { First::WeInVain } else { First::We }
                } else {
                    First::Another
                }
            }
            said => {
                // Where it has not answered yet, it may say so the next time.
                self.ours = matches!(said, Some(VoteOutcome::Pending)).then(|| token.clone());
                First::Nobody
            }
        };
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
        let ticket = self.intent.take().map_or_else(|| self.shared.ticket(), |intent| intent.ticket);
        self.intent = Some(Intent { key: key.clone(), ticket, said: now });
        let patience = INTENT_PATIENCE;
        let request = |_| Some(Request::Intend { key: key.clone(), ticket, patience });
        drop(Round::start(&self.shared.nodes, Expect::AnyAnswer, plan.ttl, request));
    }

    /// The writer waits no longer: it has the lock, or has given up.
    fn desist(&mut self, plan: &AcquireRequest) {
        if let Some(Intent { key, ticket, .. }) = self.intent.take() {
            let request = |_| Some(Request::Desist { key: key.clone(), ticket });
            drop(Round::start(&self.shared.nodes, Expect::AnyAnswer, plan.ttl, request));
        }
    }

    /// Lets others go first, who wanted the lock while this process had it.
    pub(crate) async fn give_way(&mut self) {
        self.order = AskOrder::PreferredFirst(self.preference);
        self.seen = self.seen.max(Some(FencingToken::ZERO));
        let pause = COURTESY + fraction(COURTESY, self.shared.entropy.half());
        self.shared.rest_until(self.shared.now() + pause).await;
    }

    /// Learns which node to ask first the next time.
    ///
    /// A node that alone refuses twice, and for the same holder, may be alone with that: the next
    /// one is asked instead. When all were asked, and somebody has a quorum, it is known which nodes
    /// hold something else.
    fn learn(&mut self, report: &VoteReport) {
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
            // Of those that have said nothing it is known what was known.
            let known = self.preference.strays.intersection(silent);
            self.preference.strays = known.union(strays.map(|(node, _)| *node).collect());
        }
    }

    fn tell(&self, plan: &AcquireRequest, news: News, now: Moment) {
        let holder = news.report.holder();
        if let Some(on_wait) = &plan.on_wait {
            let waited = now.since(plan.since);
            tell(&**on_wait, &Waiting { holder: holder.clone(), ahead: 0, waited });
        }
        self.shared.lines_of(self.mode).tell(self.keys.line(), Some(news), || holder, now);
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
        // Readers are told to stay behind a writer that waits while others share the lock.
        refusal.free = behind >= needed && self.mode == Mode::Exclusive;
        refusal.by_one =
            matches!(self.order, AskOrder::PreferredFirst(_)) && refusing.len() == 1 && report.granted() == 0;
        // Where the lock was granted, a change is our own, of taking it back: Redis 6.0 tells that too.
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

    /// Waits for the end of the pause, or for enough hints, and says whether these came. Where somebody else
    /// goes first it waits for about as long again as that one's request takes.
    async fn rest(&self, pause: Pause, ears: &Ears) -> bool {
        // Asked for before the first look, so that no hint comes between.
        let bell = ears.bell();
        let enough = async {
            while ears.heard(&pause.in_the_way).changed(pause.among) < pause.wanted {
                bell.notified().await;
            }
        };
        tokio::select! {
            biased;
            () = enough => {}
            () = self.shared.rest_until(pause.until) => return false,
        }
        if self.first == First::Another {
            self.shared.rest_until(self.shared.now() + self.took.min(LONGEST_PAUSE)).await;
        }
        true
    }
}

/// Somebody contends, until that is decided or the future is dropped.
struct Bid<'a> {
    contest: &'a mut Contest,
    plan: &'a AcquireRequest,
    /// The nodes that have granted the lock that was won; none where it was not.
    granted: NodeSet,
}

impl Drop for Bid<'_> {
    fn drop(&mut self) {
        self.contest.desist(self.plan);
        // A client that waits in fair order no longer, because it has the lock or has given up, must not
        // hold up the others. Nodes that granted have taken it out of the line; a client that asked once
        // never joined it.
        if let (Turn::Fair(ticket), true) = (self.plan.turn, self.plan.wait != Wait::Never) {
            let leave =
                SharedRequest::from(Request::LeaveLine { key: self.plan.keys.first().clone(), ticket });
            let nodes = &self.contest.shared.nodes;
            if (0..nodes.quorum.nodes()).any(|node| !self.granted.contains(node)) {
                let request = |node| (!self.granted.contains(node)).then(|| leave.clone());
                drop(Round::start(nodes, Expect::AnyAnswer, self.plan.ttl, request));
            }
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
