//! A client that waits in the queue of a node, as `Contender::contend` and `Contender::turn` do.
//!
//! What is next, and what a node's answer means, [`Contest`], [`Places`] and [`Place`] decide. A wait hears of its turn by a
//! note, which may be lost; other hints only shorten a wait, and none comes.

use quorlock_protocol::machine::wait::{
    AskOrder, Contest, Doubt, Lost, Next, Notice, Patience, Place, Places,
};
use quorlock_protocol::machine::wait::{Step, Then, WaitsBy};
use quorlock_protocol::machine::{Asked, Attempt, Deployment, Expect, Machine, NodeSet, Question, Round};
use quorlock_protocol::node::{Request, SharedRequest, Vote};
use quorlock_protocol::{Moment, QUEUE_PATIENCE, Verdict, WaiterId, preferred_node};
use stateright::Property;

use super::{Client, Cx, Phase};
use crate::real::node::KEY;
use crate::real::{OPEN, PASSED_OVER, Real, SERVED, STRANDED, Scheme, TICK, moment};

/// One wait.
#[derive(Clone, Debug)]
pub(in crate::real) struct Wait {
    pub(in crate::real) name: WaiterId,
    pub(in crate::real) contest: Contest,
    pub(in crate::real) places: Places,
    pub(in crate::real) since: u16,
    pub(in crate::real) stage: Stage,
    /// The nodes that have announced its turn, which it has not used yet.
    pub(in crate::real) turns: NodeSet,
    /// Whether a node has put it in its queue.
    pub(in crate::real) has_place: bool,
    /// How often another client got the lock meanwhile.
    pub(in crate::real) passed_over: usize,
}

/// What it waits for.
#[derive(Clone, Debug)]
pub(in crate::real) enum Stage {
    /// The votes.
    Asking,
    /// The answer about its place, after it has `tried` other nodes.
    Entering { round: u16, home: usize, tried: usize },
    /// What another node says of the lock; that its turn has come is known if it `has_turn`.
    Comparing { round: u16, other: usize, place: Box<Place>, has_turn: bool },
    /// Its turn, or the time to ask for its place again.
    Queued { place: Box<Place>, until: Option<Moment> },
    /// The end of a pause.
    Pausing { until: Moment },
}

impl Wait {
    fn new(name: WaiterId, since: u16) -> Wait {
        // Others wanted the lock a moment ago.
        let mut contest = Contest::new(true);
        contest.begin(WaitsBy::Queue, Patience::Endless);
        let (places, turns) = (Places::default(), NodeSet::default());
        Wait { name, contest, places, since, stage: Stage::Asking, turns, has_place: false, passed_over: 0 }
    }

    /// Returns the round whose answer it waits for.
    pub(in crate::real) fn round(&self) -> Option<u16> {
        match self.stage {
            Stage::Entering { round, .. } | Stage::Comparing { round, .. } => Some(round),
            Stage::Asking | Stage::Queued { .. } | Stage::Pausing { .. } => None,
        }
    }

    /// Returns when its timer fires.
    fn timer(&self) -> Option<Moment> {
        match self.stage {
            Stage::Queued { until, .. } => until,
            Stage::Pausing { until } => Some(until),
            Stage::Asking | Stage::Entering { .. } | Stage::Comparing { .. } => None,
        }
    }
}

/// Whether nodes keep a place for the client.
fn has_queue(model: &Real, client: u8) -> bool {
    model.scheme != Scheme::NoPlace || client > 0
}

impl Client {
    /// Like `Contender::win`.
    pub(in crate::real) fn wait(&mut self, cx: &mut Cx<'_>) {
        self.waits += 1;
        // Within a tick, too, those that began first come first.
        let name = WaiterId::new(u64::from(cx.waits) << 8 | u64::from(self.index));
        self.wait = Some(Box::new(Wait::new(name, cx.now)));
        self.look_what_is_next(cx);
    }

    /// It has the lock, or gives up.
    pub(in crate::real) fn end_wait(&mut self, cx: &mut Cx<'_>, has: bool) {
        let Some(mut wait) = self.wait.take() else { return };
        let (waiter, before) = (wait.name, wait.places.clone());
        let leave = SharedRequest::from(Request::LeaveQueue { key: KEY.into(), waiter });
        let nodes = wait.places.end(has);
        let keeps_turn = cx.model.scheme == Scheme::TurnNotLeft;
        let is_asked = |node: &usize| nodes.contains(*node) && (!keeps_turn || before.is_queued_at(*node));
        for node in (0..cx.model.nodes).filter(is_asked) {
            let no = self.next_no();
            self.send(cx, (no, node), leave.clone());
        }
    }

    fn stage(&mut self, stage: Stage) {
        if let Some(wait) = &mut self.wait {
            wait.stage = stage;
        }
        self.phase = Phase::Waiting;
    }

    fn look_what_is_next(&mut self, cx: &mut Cx<'_>) {
        let Some(wait) = &mut self.wait else { return };
        match wait.contest.next(false, has_queue(cx.model, self.index), cx.moment()) {
            Step::Queue => {
                // Earlier notes belong to another turn.
                wait.turns = NodeSet::default();
                self.enter(cx, 0);
            }
            Step::Ask | Step::TakeOffer => self.ask_for_votes(cx),
        }
    }

    fn ask_for_votes(&mut self, cx: &mut Cx<'_>) {
        let Some(wait) = &mut self.wait else { return };
        wait.stage = Stage::Asking;
        let nodes = cx.model.nodes;
        let first = match wait.contest.order(has_queue(cx.model, self.index)) {
            AskOrder::AllAtOnce => None,
            AskOrder::PreferredFirst(preference) => Some(preference.first(preferred_node(KEY, nodes), nodes)),
        };
        let seen = wait.contest.seen();
        self.ask(cx, (None, first), seen, Moment::ORIGIN);
    }

    /// Like `NodeQueue::ask`, without its memory of silent nodes.
    fn enter(&mut self, cx: &mut Cx<'_>, tried: usize) {
        let Some(wait) = &mut self.wait else { return };
        let nodes = cx.model.nodes;
        if tried == nodes {
            wait.contest.is_not_queued();
            return self.ask_for_votes(cx);
        }
        let home = wait.places.home(preferred_node(KEY, nodes), nodes);
        wait.places.enter(home);
        let turn = if cx.model.scheme == Scheme::EndlessTurn { TICK * 1_000 } else { TICK };
        let elapsed = TICK * u32::from(cx.now - wait.since);
        let request = Request::enqueue(KEY.into(), wait.name, elapsed, QUEUE_PATIENCE, turn);
        let round = self.look_at(cx, home, request);
        self.stage(Stage::Entering { round, home, tried });
    }

    /// Asks one node.
    fn look_at(&mut self, cx: &mut Cx<'_>, node: usize, request: Request) -> u16 {
        let question = Question { expect: Expect::AnyAnswer, takes_free: false, ttl: cx.model.ttl() };
        let asked = |other| if other == node { Asked::Now } else { Asked::Never };
        let no = self.next_no();
        self.rounds.push((no, Round::new(cx.model, question, cx.moment(), asked)));
        self.send(cx, (no, node), request.into());
        no
    }

    /// Does what an answer, a note or the timer asks for. Returns whether there was anything.
    pub(in crate::real) fn decide_wait(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(wait) = self.wait.as_deref().filter(|_| matches!(self.phase, Phase::Waiting)) else {
            return false;
        };
        match wait.stage.clone() {
            Stage::Asking => false,
            Stage::Entering { round, home, tried } => self.hear_place(cx, round, (home, tried)),
            Stage::Comparing { round, other, place, has_turn } => {
                let Some(refuses) = self.round(round).refuses(cx.model, other, cx.moment()) else {
                    return false;
                };
                let vote = self.vote_of(round, other).filter(|_| refuses);
                let now = cx.moment();
                let Some(wait) = &mut self.wait else { return false };
                let goes = wait.places.resolve(place.queued.as_ref(), vote.as_ref(), now) || has_turn;
                self.go(cx, place, goes);
                true
            }
            Stage::Queued { place, until } => self.wait_in_queue(cx, &place, until),
            Stage::Pausing { until } => {
                let is_over = until <= cx.moment();
                if is_over {
                    self.look_what_is_next(cx);
                }
                is_over
            }
        }
    }

    fn vote_of(&self, round: u16, node: usize) -> Option<Vote> {
        Some(self.round(round).response_of(node)?.as_ref().ok()?.vote.clone())
    }

    fn hear_place(&mut self, cx: &mut Cx<'_>, round: u16, (home, tried): (usize, usize)) -> bool {
        let now = cx.moment();
        let Some(refuses) = self.round(round).refuses(cx.model, home, now) else { return false };
        let (vote, report) = (self.vote_of(round, home), self.round(round).report(cx.model, now));
        let Some(wait) = &mut self.wait else { return false };
        if !refuses {
            wait.places.skip();
            self.enter(cx, tried + 1);
            return true;
        }
        let queued = if let Some(Vote::Queued(queued)) = vote {
            Some(*queued)
        } else {
            wait.places.note_turns(NodeSet::of(home));
            None
        };
        wait.has_place |= queued.is_some();
        let has_turn = !std::mem::take(&mut wait.turns).is_empty();
        let doubt = wait.places.doubt(queued.as_ref(), now);
        let place = Box::new(Place { home, queued, report, turn: TICK });
        if doubt == Doubt::AskAnother {
            let other = wait.places.other_node(home, cx.model.nodes);
            let round = self.look_at(cx, other, Request::inspect(KEY));
            self.stage(Stage::Comparing { round, other, place, has_turn });
        } else {
            self.go(cx, place, has_turn || doubt == Doubt::Try);
        }
        true
    }

    /// Asks for the lock if it `goes`, and otherwise waits in the queue.
    fn go(&mut self, cx: &mut Cx<'_>, place: Box<Place>, goes: bool) {
        let Some(wait) = &mut self.wait else { return };
        if goes {
            wait.contest.has_turn(cx.moment() + place.turn);
            return self.ask_for_votes(cx);
        }
        let pause = wait.places.asks_again_after(place.queued.as_ref(), place.turn, None, true, u64::MAX);
        let listens = matches!(cx.model.scheme, Scheme::NoHeartbeat | Scheme::TurnNotLeft);
        let until = (!listens).then(|| cx.moment() + pause);
        self.stage(Stage::Queued { place, until });
    }

    fn wait_in_queue(&mut self, cx: &mut Cx<'_>, place: &Place, until: Option<Moment>) -> bool {
        let (now, Some(wait)) = (cx.moment(), &mut self.wait) else { return false };
        let turns = std::mem::take(&mut wait.turns);
        let notice = if turns.is_empty() { Notice::None } else { Notice::Turn };
        wait.places.note_turns(turns);
        match place.next(notice, NodeSet::default(), false, cx.model.quorum().needed()) {
            Next::Try | Next::TakeOffer => {
                wait.contest.has_turn(now + place.turn);
                self.ask_for_votes(cx);
            }
            Next::AskAgain => self.enter(cx, 0),
            Next::WaitForTurn | Next::Wait if until.is_some_and(|until| until <= now) => self.enter(cx, 0),
            Next::WaitForTurn | Next::Wait => return false,
        }
        true
    }

    /// Its attempt was not won, or not in time.
    pub(in crate::real) fn lose_attempt(&mut self, cx: &mut Cx<'_>, verdict: Verdict, attempt: &Attempt) {
        let Some(wait) = &mut self.wait else { return };
        let (model, now) = (cx.model, cx.moment());
        let (report, largest) = (attempt.report(model, now), attempt.round().largest_number(model));
        wait.places.note_held(verdict == Verdict::Contended && report.holder().is_some());
        let lost = wait.contest.lost(&report, largest, (attempt.round().sent(), now));
        assert!(lost == Lost::GoesOn, "a patient wait ends: {lost:?}");
        let hearing = |_: &[_], among: NodeSet| among.len();
        let mut pause = wait.contest.pause((verdict, &report), hearing, || u64::MAX, now);
        match wait.contest.then(verdict, has_queue(model, self.index), &mut pause, now) {
            Then::Next => self.look_what_is_next(cx),
            Then::Pause | Then::Places => self.stage(Stage::Pausing { until: pause.until }),
        }
    }

    pub(in crate::real) fn hear_turn(&mut self, waiter: WaiterId, node: usize) {
        if let Some(wait) = self.wait.as_mut().filter(|wait| wait.name == waiter) {
            wait.turns.insert(node);
        }
    }

    /// Whether the timer of its wait has fired.
    pub(in crate::real) fn is_wait_due(&self, now: u16) -> bool {
        let Some(wait) = self.wait.as_deref().filter(|_| matches!(self.phase, Phase::Waiting)) else {
            return false;
        };
        let is_silent = |no| self.round(no).poll_timeout(moment(now)).is_none();
        wait.round().is_some_and(is_silent) || wait.timer().is_some_and(|at| at <= moment(now))
    }
}

impl Real {
    /// For how many ticks a lock that a client waits for is free at most: a crashed waiter or a lost message costs the
    /// others a turn and a heartbeat (rule W-5). Where requests take as long as an attempt waits for them, several may fail.
    fn longest_idle(&self) -> u16 {
        4 + 36 * self.delay
    }
}

/// What waiters rely on, and what should be possible.
pub(in crate::real) fn properties() -> [Property<Real>; 4] {
    [
        Property::<Real>::always(STRANDED, |model, state| state.idle <= model.longest_idle()),
        Property::<Real>::always(PASSED_OVER, |model, state| {
            let waits = state.clients.iter().filter_map(|client| client.wait.as_ref());
            model.left.unheard > 0 || waits.clone().all(|wait| wait.passed_over < model.clients)
        }),
        Property::<Real>::always(OPEN, |_, state| state.violated != Some(OPEN)),
        Property::<Real>::sometimes(SERVED, |_, state| state.clients.iter().all(|client| client.served)),
    ]
}
