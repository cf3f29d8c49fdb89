//! A lock that its holder leaves taken for the rest of a slot, so that no other host runs in it.
//!
//! The host holds the lock, finishes, and asks each node to replace its token by the retained
//! token; another host wants to run. The rules about votes and deadlines are those of the library.
//! A lost request does not arrive. A late one may arrive at any
//! time, even after the slot: a renewal whose connection has ended, so that the host does not know
//! its state. A tombstone outlives the requests it should stop.

use quorlock_protocol::Quorum;
use stateright::{Model, Property};

use crate::clock::{deadline, moment};
use crate::common::{Answer, is_won};
use crate::names::name;
use crate::record::{Ask, Kept, Reply, What};
use crate::scene::{self, Lease, Phase};

/// If the slot was confirmed to the host, no other host runs in it.
pub(crate) const ONCE: &str = "no other runs in a confirmed slot";
/// When the host has nothing left to do, its key does not come back.
pub(crate) const STOPPED: &str = "no renewal stores the lease's token again once the clean-up is done";
pub(crate) const CONFIRMED: &str = "a slot may be confirmed";
pub(crate) const FOLLOWED: &str = "another may run when the slot is over";
/// The rule about late renewals is exercised.
pub(crate) const LATE: &str = "a renewal may arrive after the slot, and after the clean-up";

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// The host releases the lock first, and then asks for it again.
    ReleaseFirst,
    /// One confirmation is enough, because the host had a quorum.
    Minority,
    /// Confirmations count after the deadline of the lease.
    AfterTheEnd,
    /// The nodes keep the retained token for one TTL.
    OneTtl,
    /// Renewals in an unknown state are not cancelled (I-40).
    NotStopped,
    /// They are cancelled immediately, which deletes the lease's token if the retained one has not arrived.
    StoppedFirst,
}

/// Whether a renewal of the host may arrive late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Renewals {
    None,
    /// One is sent, and all connections end before its answers.
    Lost,
}

/// The model of `N` nodes.
#[derive(Clone, Debug)]
pub(crate) struct Retained<const N: usize> {
    pub(crate) scheme: Scheme,
    /// In ticks.
    pub(crate) ttl: u8,
    /// In ticks, since the host requested the lock.
    pub(crate) slot: u8,
    /// How many nodes may lose their data, and vote again.
    pub(crate) forgets: u8,
    pub(crate) renewals: Renewals,
}

type State<const N: usize> = scene::State<Past, Node, Attempt, N, 2>;
type Node = scene::Node<Answered, bool, 2, 1>;
type Attempt = scene::Attempt<Asked>;
type Step = scene::Step<Act>;

/// The host that leaves the lock taken; then whose token the retained one is.
const HOST: usize = 0;
const OTHER: usize = 1;
const RETAINED: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Past {
    clock: u8,
    /// After the host has finished: how long nodes should keep the token.
    retaining: Option<u8>,
    confirmed: bool,
    /// The other host has run after the first, and before the end of the slot.
    ran_twice: bool,
    forgotten: u8,
    /// A renewal was lost.
    lost: bool,
}

/// Requests of the host to a node. The mail says whether it has voted for a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Answered {
    /// It has confirmed that it keeps the retained token.
    keeps: bool,
    /// The lost renewal may still arrive.
    late: bool,
}

/// When a host asked for the lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Asked(u8);

impl scene::Own for Asked {}

/// A step that only this model has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// A host asks for the lock.
    Ask { attempt: usize },
    /// The host finishes, and leaves the lock taken.
    Retain,
    /// The request to keep the token arrives.
    Keep { node: usize },
    /// The host sends a renewal, and all its connections end.
    LoseRenewal,
    /// The lost renewal arrives.
    LateRenewal { node: usize },
    /// The host has finished, and cancels the lost renewal.
    Cancel { node: usize },
}

/// Returns the request to keep the retained token in place of the host's.
fn retain(left: u8) -> Ask {
    Ask::transfer(HOST, RETAINED, left)
}

impl<const N: usize> Retained<N> {
    fn is_valid(&self, state: &State<N>, attempt: usize) -> bool {
        moment(state.past.clock) < deadline(state.attempts[attempt].own.0, self.ttl)
    }

    fn slot_end(&self, state: &State<N>) -> u8 {
        state.attempts[HOST].own.0 + self.slot
    }

    fn votes(&self, node: &Node, attempt: usize) -> bool {
        !node.kept[0].is_of(attempt) && node.kept[0].would(Ask::acquire(attempt, self.ttl)) == Reply::Granted
    }

    fn keeps(&self, node: &Node) -> bool {
        let released = self.scheme != Scheme::ReleaseFirst || !node.kept[0].is_of(HOST);
        node.kept[0].would(retain(0)) == Reply::Granted && released
    }

    /// Whether the host may cancel the lost renewal on this node after it has finished. That
    /// deletes the lease's token, which keeps others out until the slot is certain.
    fn cancels(&self, past: Past, node: &Node) -> bool {
        let is_safe = match self.scheme {
            Scheme::NotStopped => false,
            Scheme::StoppedFirst => true,
            Scheme::Quorlock
            | Scheme::ReleaseFirst
            | Scheme::Minority
            | Scheme::AfterTheEnd
            | Scheme::OneTtl => past.confirmed || node.own.keeps,
        };
        past.lost && past.retaining.is_some() && is_safe && !node.kept[0].is_cancelled(HOST)
    }

    /// Whether the host has nothing left to do on a node that keeps the retained token.
    fn is_done(&self, past: Past, node: &Node) -> bool {
        let known = !past.lost || node.kept[0].is_cancelled(HOST) || self.scheme == Scheme::NotStopped;
        node.own.keeps && known
    }

    fn is_carried(state: &State<N>, confirms: impl Fn(&Node) -> bool) -> bool {
        is_won(Quorum::majority(N), state.nodes.iter().filter(|node| confirms(node)).count())
    }

    fn requests_possible(&self, state: &State<N>, node: usize, steps: &mut Vec<Step>) {
        let (there, past) = (&state.nodes[node], state.past);
        for (attempt, party) in state.attempts.iter().enumerate() {
            if party.phase == Phase::Voting && self.votes(there, attempt) {
                steps.push(Step::Vote { attempt, node, answer: Answer::Heard });
            }
            let first = attempt == HOST && self.scheme == Scheme::ReleaseFirst && past.retaining.is_some();
            let releases = first || (attempt == OTHER && party.is_over());
            if releases && there.kept[0].is_of(attempt) {
                steps.push(Step::Release { attempt, node });
            }
        }
        if there.own.late {
            steps.push(Step::Own(Act::LateRenewal { node }));
        }
        if self.cancels(past, there) {
            steps.push(Step::Own(Act::Cancel { node }));
        }
        if past.retaining.is_some() && !there.own.keeps && self.keeps(there) {
            steps.push(Step::Own(Act::Keep { node }));
        }
        // Its quarantine is over as well.
        if past.forgotten < self.forgets && !there.kept[0].is_free() {
            steps.push(Step::Restart { node });
        }
    }

    fn act(&self, state: &mut State<N>, act: Act) {
        let clock = state.past.clock;
        match act {
            Act::Ask { attempt } => {
                (state.attempts[attempt].phase, state.attempts[attempt].own) = (Phase::Voting, Asked(clock));
            }
            Act::Retain => {
                let left = self.slot_end(state).saturating_sub(clock);
                state.past.retaining = Some(if self.scheme == Scheme::OneTtl { self.ttl } else { left });
                state.attempts[HOST].phase = Phase::Over { held: false };
            }
            Act::Keep { node } => {
                let Some(left) = state.past.retaining else { return };
                state.nodes[node].kept[0].apply(retain(left));
                state.nodes[node].own.keeps = true;
                let enough =
                    Self::is_carried(state, |node| node.own.keeps) || self.scheme == Scheme::Minority;
                let in_time = self.is_valid(state, HOST) || self.scheme == Scheme::AfterTheEnd;
                state.past.confirmed |= enough && in_time;
            }
            Act::LoseRenewal => {
                state.past.lost = true;
                state.nodes.iter_mut().for_each(|node| node.own.late = true);
            }
            Act::LateRenewal { node } => {
                state.nodes[node].own.late = false;
                state.nodes[node].kept[0].apply(Ask::renew(HOST, self.ttl));
            }
            Act::Cancel { node } => state.nodes[node].kept[0].apply(Ask::of(What::Cancel, HOST)),
        }
    }

    fn vote(&self, state: &mut State<N>, attempt: usize, node: usize) {
        state.nodes[node].kept[0].apply(Ask::acquire(attempt, self.ttl));
        state.nodes[node].mail[attempt] = true;
        if !Self::is_carried(state, |node| node.mail[attempt]) {
            return;
        }
        let runs = self.is_valid(state, attempt);
        let lease = Lease::new(deadline(state.attempts[attempt].own.0, self.ttl));
        let in_slot = state.past.retaining.is_some() && state.past.clock < self.slot_end(state);
        state.past.ran_twice |= runs && attempt == OTHER && in_slot;
        state.attempts[attempt].phase =
            if runs { Phase::Holding(lease) } else { Phase::Over { held: false } };
    }
}

impl<const N: usize> Model for Retained<N> {
    type State = State<N>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N>> {
        let (nodes, attempts) = ([Node::new(); N], [Attempt::default(); 2]);
        vec![State { past: Past::default(), nodes, attempts }]
    }

    fn actions(&self, state: &State<N>, steps: &mut Vec<Step>) {
        if state.past.clock < self.slot + self.ttl {
            steps.push(Step::Tick { missed_by: None });
        }
        let idle = (0..2).filter(|attempt| state.attempts[*attempt].phase == Phase::Idle);
        steps.extend(idle.map(|attempt| Step::Own(Act::Ask { attempt })));
        if state.attempts[HOST].lease().is_some() && self.is_valid(state, HOST) {
            steps.push(Step::Own(Act::Retain));
            if self.renewals == Renewals::Lost && !state.past.lost {
                steps.push(Step::Own(Act::LoseRenewal));
            }
        }
        if state.attempts[OTHER].is_running() {
            steps.push(Step::End { attempt: OTHER });
        }
        (0..N).for_each(|node| self.requests_possible(state, node, steps));
    }

    fn next_state(&self, state: &State<N>, step: Step) -> Option<State<N>> {
        let mut next = *state;
        match step {
            Step::Tick { .. } => {
                next.past.clock += 1;
                next.nodes.iter_mut().for_each(Node::tick);
            }
            Step::Restart { node } => {
                next.past.forgotten += 1;
                next.nodes[node].kept = [Kept::nothing()];
            }
            Step::Vote { attempt, node, .. } => self.vote(&mut next, attempt, node),
            Step::End { attempt } => next.attempts[attempt].phase = Phase::Over { held: false },
            Step::Release { attempt, node } => next.nodes[node].kept[0].apply(Ask::release(attempt)),
            Step::Own(act) => self.act(&mut next, act),
            Step::RunAhead { .. } | Step::Renew { .. } | Step::Renewal { .. } | Step::NewRenewal { .. } => {
                return None;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Retained<N>>> {
        let mut properties = vec![
            Property::<Self>::always(ONCE, |_, state| !(state.past.confirmed && state.past.ran_twice)),
            Property::<Self>::always(STOPPED, |model, state| {
                let comes_back = |node: &Node| model.is_done(state.past, node) && node.kept[0].is_of(HOST);
                !state.nodes.iter().any(comes_back)
            }),
            Property::<Self>::sometimes(CONFIRMED, |_, state| state.past.confirmed),
            Property::<Self>::sometimes(FOLLOWED, |model, state| {
                let other = &state.attempts[OTHER];
                state.past.confirmed && other.lease().is_some() && other.own.0 >= model.slot_end(state)
            }),
        ];
        if self.renewals == Renewals::Lost {
            properties.push(Property::<Self>::sometimes(LATE, |model, state| {
                let is_late = |node: &Node| node.own.late && model.is_done(state.past, node);
                state.past.confirmed
                    && state.past.clock >= model.slot_end(state)
                    && state.nodes.iter().any(is_late)
            }));
        }
        properties
    }

    fn format_step(&self, before: &State<N>, step: Step) -> Option<String> {
        Some(step.describe(before, &self.next_state(before, step)?, |act| match act {
            Act::Ask { attempt } => format!("{} asks for the lock", name(attempt)),
            Act::Retain => "the host finishes, and leaves the lock taken".to_owned(),
            Act::Keep { node } => format!("node {node} keeps the retained token"),
            Act::LoseRenewal => "the host sends a renewal, and its connections end".to_owned(),
            Act::LateRenewal { node } => format!("the lost renewal arrives at node {node}"),
            Act::Cancel { node } => format!("the host cancels the lost renewal on node {node}"),
        }))
    }
}

cases! {
    holds prove a_slot_that_was_confirmed_has_one_run: model(Scheme::Quorlock, 0);
    violated hunt a_host_that_releases_first_and_retains_then_lets_another_run_in_between:
        model(Scheme::ReleaseFirst, 0);
    violated hunt a_slot_that_a_minority_confirms_has_two_runs: model(Scheme::Minority, 0);
    violated hunt a_slot_that_is_confirmed_after_the_end_of_the_lease_has_two_runs:
        model(Scheme::AfterTheEnd, 0);
    violated hunt a_slot_that_is_kept_for_one_ttl_has_two_runs: model(Scheme::OneTtl, 0);
    violated hunt a_slot_that_only_a_quorum_has_is_run_again_when_one_node_forgets_it:
        model(Scheme::Quorlock, 1);
    holds prove a_lost_renewal_does_not_take_the_lock_again_after_the_slot: late(Scheme::Quorlock);
    violated hunt a_lost_renewal_that_is_not_cancelled_takes_the_lock_after_the_slot:
        late(Scheme::NotStopped);
    nightly prove nightly_a_lost_renewal_and_a_longer_slot:
        Retained { ttl: 2, slot: 3, ..late(Scheme::Quorlock) };
    violated hunt a_renewal_that_is_cancelled_before_the_slot_is_certain_lets_another_run:
        late(Scheme::StoppedFirst);
}

fn model(scheme: Scheme, forgets: u8) -> Retained<3> {
    Retained { scheme, ttl: 2, slot: 4, forgets, renewals: Renewals::None }
}

fn late(scheme: Scheme) -> Retained<3> {
    Retained { ttl: 1, slot: 2, renewals: Renewals::Lost, ..model(scheme, 0) }
}
