//! A lock that its holder leaves taken for the rest of a slot, so that no other host runs in it.
//!
//! The host holds the lock, finishes, and asks each node to replace its token by the retained
//! token; another host wants to run. The rules about votes and deadlines are those of the library.
//! As in [`passing`](crate::passing), a lost request does not arrive. A late one may arrive at any
//! time, even after the slot: a renewal whose connection has ended, so that the host does not know
//! its state. A tombstone outlives the requests it should stop.

pub(crate) mod cases;

use std::fmt;

use stateright::{Model, Property, Representative};

use crate::clock::{deadline, moment};
use crate::common::is_majority;
use crate::names::least;
use crate::record::{Ask, Kept, Reply, What};

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

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct State<const N: usize> {
    clock: u8,
    nodes: [Kept; N],
    host: Party,
    other: Party,
    /// After the host has finished: how long nodes should keep the token, and which have confirmed.
    retaining: Option<(u8, u8)>,
    confirmed: bool,
    /// The other host has run after the first, and before the end of the slot.
    ran_twice: bool,
    forgotten: u8,
    /// After a renewal was lost: the nodes on which it may still arrive.
    lost: Option<u8>,
}

/// A host that wants to run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
struct Party {
    phase: Phase,
    /// A bit for each node that has voted for it.
    votes: u8,
    /// When it asked.
    asked: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
enum Phase {
    #[default]
    Idle,
    Asking,
    /// With a quorum; it runs.
    Holds,
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    /// The host that leaves the lock taken.
    Host,
    Other,
}

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A tick passes.
    Tick,
    /// A host asks for the lock.
    Ask(Who),
    /// A request for the lock arrives.
    Vote { who: Who, node: usize },
    /// The host finishes, and leaves the lock taken.
    Retain,
    /// The request to keep the token arrives.
    Keep { node: usize },
    /// The other host releases the lock, or gives up.
    End,
    /// A release arrives.
    Release { who: Who, node: usize },
    /// A node loses its data; its quarantine is over.
    Forget { node: usize },
    /// The host sends a renewal, and all its connections end.
    LoseRenewal,
    /// The lost renewal arrives.
    LateRenewal { node: usize },
    /// The host has finished, and cancels the lost renewal.
    Cancel { node: usize },
}

/// Whose token the retained one is.
const RETAINED: usize = 2;

/// Returns the request to keep the retained token in place of the host's.
fn retain(left: u8) -> Ask {
    Ask::transfer(Who::Host.name(), RETAINED, left)
}

impl<const N: usize> Retained<N> {
    fn votes(&self, state: &State<N>, who: Who, node: usize) -> bool {
        let is_new = !state.has(node, who);
        is_new && state.nodes[node].would(Ask::acquire(who.name(), self.ttl)) == Reply::Granted
    }

    fn is_valid(&self, asked: u8, clock: u8) -> bool {
        moment(clock) < deadline(asked, self.ttl)
    }

    fn slot_end(&self, state: &State<N>) -> u8 {
        state.host.asked + self.slot
    }

    fn keeps(&self, state: &State<N>, node: usize) -> bool {
        let is_free = state.nodes[node].is_of(RETAINED) || state.nodes[node].is_free();
        let reply = state.nodes[node].would(retain(0));
        reply == Reply::Granted && (is_free || self.scheme != Scheme::ReleaseFirst)
    }

    /// Whether the host may cancel the lost renewal on this node after it has finished. That
    /// deletes the lease's token, which keeps others out until the slot is certain.
    fn cancels(&self, state: &State<N>, node: usize) -> bool {
        let bit = 1 << node;
        state.retaining.is_some_and(|(_, votes)| match self.scheme {
            Scheme::NotStopped => false,
            Scheme::StoppedFirst => true,
            Scheme::Quorlock
            | Scheme::ReleaseFirst
            | Scheme::Minority
            | Scheme::AfterTheEnd
            | Scheme::OneTtl => state.confirmed || votes & bit != 0,
        }) && !state.nodes[node].is_cancelled(Who::Host.name())
    }

    /// Whether the host has nothing left to do on a node that keeps the retained token.
    fn is_done(&self, state: &State<N>, node: usize) -> bool {
        let bit = 1 << node;
        let kept = state.retaining.is_some_and(|(_, votes)| votes & bit != 0);
        let known = state.lost.is_none() || state.nodes[node].is_cancelled(Who::Host.name());
        kept && (known || self.scheme == Scheme::NotStopped)
    }
}

impl Who {
    /// Returns whose token it has.
    fn name(self) -> usize {
        match self {
            Who::Host => 0,
            Who::Other => 1,
        }
    }
}

impl<const N: usize> State<N> {
    fn party(&mut self, who: Who) -> &mut Party {
        match who {
            Who::Host => &mut self.host,
            Who::Other => &mut self.other,
        }
    }

    fn has(&self, node: usize, who: Who) -> bool {
        self.nodes[node].is_of(who.name())
    }
}

impl<const N: usize> Model for Retained<N> {
    type State = State<N>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<N>> {
        vec![State {
            clock: 0,
            nodes: [Kept::nothing(); N],
            host: Party::default(),
            other: Party::default(),
            retaining: None,
            confirmed: false,
            ran_twice: false,
            forgotten: 0,
            lost: None,
        }]
    }

    fn actions(&self, state: &State<N>, steps: &mut Vec<Step>) {
        if state.clock < self.slot + self.ttl {
            steps.push(Step::Tick);
        }
        for (who, party) in [(Who::Host, state.host), (Who::Other, state.other)] {
            match party.phase {
                Phase::Idle => steps.push(Step::Ask(who)),
                Phase::Asking => steps.extend(
                    (0..N).filter(|node| self.votes(state, who, *node)).map(|node| Step::Vote { who, node }),
                ),
                Phase::Holds | Phase::Over => {}
            }
        }
        if state.host.phase == Phase::Holds && self.is_valid(state.host.asked, state.clock) {
            steps.push(Step::Retain);
            if self.renewals == Renewals::Lost && state.lost.is_none() {
                steps.push(Step::LoseRenewal);
            }
        }
        if let Some(late) = state.lost {
            let arrives = |node: &usize| late & (1 << node) != 0;
            steps.extend((0..N).filter(arrives).map(|node| Step::LateRenewal { node }));
            let cancels = |node: &usize| self.cancels(state, *node);
            steps.extend((0..N).filter(cancels).map(|node| Step::Cancel { node }));
        }
        if let Some((_, votes)) = state.retaining {
            let open = |node: &usize| votes & (1 << node) == 0 && self.keeps(state, *node);
            steps.extend((0..N).filter(open).map(|node| Step::Keep { node }));
            if self.scheme == Scheme::ReleaseFirst {
                let has = |node: &usize| state.has(*node, Who::Host);
                steps.extend((0..N).filter(has).map(|node| Step::Release { who: Who::Host, node }));
            }
        }
        match state.other.phase {
            Phase::Asking | Phase::Holds => steps.push(Step::End),
            Phase::Over => {
                let has = |node: &usize| state.has(*node, Who::Other);
                steps.extend((0..N).filter(has).map(|node| Step::Release { who: Who::Other, node }));
            }
            Phase::Idle => {}
        }
        if state.forgotten < self.forgets {
            let has = |node: &usize| !state.nodes[*node].is_free();
            steps.extend((0..N).filter(has).map(|node| Step::Forget { node }));
        }
    }

    fn next_state(&self, state: &State<N>, step: Step) -> Option<State<N>> {
        let mut next = *state;
        match step {
            Step::Tick => {
                next.clock += 1;
                next.nodes = next.nodes.map(Kept::ticked);
            }
            Step::Ask(who) => {
                *next.party(who) = Party { phase: Phase::Asking, votes: 0, asked: state.clock };
            }
            Step::Vote { who, node } => {
                next.nodes[node].ask(Ask::acquire(who.name(), self.ttl));
                let party = next.party(who);
                party.votes |= 1 << node;
                if is_majority(N, party.votes) {
                    let runs = self.is_valid(party.asked, state.clock);
                    party.phase = if runs { Phase::Holds } else { Phase::Over };
                    next.ran_twice |= runs
                        && who == Who::Other
                        && state.retaining.is_some()
                        && state.clock < self.slot_end(state);
                }
            }
            Step::Retain => {
                let left = if self.scheme == Scheme::OneTtl {
                    self.ttl
                } else {
                    self.slot_end(state).saturating_sub(state.clock)
                };
                next.host.phase = Phase::Over;
                next.retaining = Some((left, 0));
            }
            Step::Keep { node } => {
                let (left, votes) = next.retaining.as_mut()?;
                next.nodes[node].ask(retain(*left));
                *votes |= 1 << node;
                let enough = is_majority(N, *votes) || self.scheme == Scheme::Minority;
                let in_time = self.is_valid(state.host.asked, state.clock);
                next.confirmed |= enough && (in_time || self.scheme == Scheme::AfterTheEnd);
            }
            Step::End => next.other.phase = Phase::Over,
            Step::Release { who, node } => {
                next.nodes[node].ask(Ask::release(who.name()));
            }
            Step::Forget { node } => {
                next.nodes[node] = Kept::nothing();
                next.forgotten += 1;
            }
            Step::LoseRenewal => next.lost = Some((1 << N) - 1),
            Step::LateRenewal { node } => {
                *next.lost.as_mut()? &= !(1 << node);
                next.nodes[node].ask(Ask::renew(Who::Host.name(), self.ttl));
            }
            Step::Cancel { node } => {
                next.nodes[node].ask(Ask::of(What::Cancel, Who::Host.name()));
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Retained<N>>> {
        let mut properties = vec![
            Property::always(ONCE, |_: &Retained<N>, state: &State<N>| !(state.confirmed && state.ran_twice)),
            Property::always(STOPPED, |model: &Retained<N>, state: &State<N>| {
                !(0..N).any(|node| model.is_done(state, node) && state.has(node, Who::Host))
            }),
            Property::sometimes(CONFIRMED, |_: &Retained<N>, state: &State<N>| state.confirmed),
            Property::sometimes(FOLLOWED, |model: &Retained<N>, state: &State<N>| {
                state.confirmed
                    && state.other.phase == Phase::Holds
                    && state.other.asked >= model.slot_end(state)
            }),
        ];
        if self.renewals == Renewals::Lost {
            properties.push(Property::sometimes(LATE, |model: &Retained<N>, state: &State<N>| {
                let open = |node: usize| state.lost.is_some_and(|late| late & (1 << node) != 0);
                state.confirmed
                    && state.clock >= model.slot_end(state)
                    && (0..N).any(|node| open(node) && model.is_done(state, node))
            }));
        }
        properties
    }

    fn format_step(&self, _: &State<N>, step: Step) -> Option<String> {
        let name = |who| match who {
            Who::Host => "the host",
            Who::Other => "the other host",
        };
        Some(match step {
            Step::Tick => "a tick passes".to_owned(),
            Step::Ask(who) => format!("{} asks for the lock", name(who)),
            Step::Vote { who, node } => format!("node {node} votes for {}", name(who)),
            Step::Retain => "the host finishes, and leaves the lock taken".to_owned(),
            Step::Keep { node } => format!("node {node} keeps the retained token"),
            Step::End => "the other host releases the lock, or gives up".to_owned(),
            Step::Release { who, node } => format!("the release of {} arrives at node {node}", name(who)),
            Step::Forget { node } => format!("node {node} loses its data"),
            Step::LoseRenewal => "the host sends a renewal, and its connections end".to_owned(),
            Step::LateRenewal { node } => format!("the lost renewal arrives at node {node}"),
            Step::Cancel { node } => format!("the host cancels the lost renewal on node {node}"),
        })
    }
}

impl<const N: usize> State<N> {
    /// Renames the nodes, where `order[new] = old`.
    fn renamed(&self, order: [usize; N]) -> State<N> {
        let bits = |old: u8| (0..N).fold(0, |bits, new| bits | ((old >> order[new]) & 1) << new);
        let party = |old: Party| Party { votes: bits(old.votes), ..old };
        State {
            nodes: order.map(|old| self.nodes[old]),
            host: party(self.host),
            other: party(self.other),
            retaining: self.retaining.map(|(left, votes)| (left, bits(votes))),
            lost: self.lost.map(bits),
            ..*self
        }
    }
}

/// The names of nodes make no difference.
impl<const N: usize> Representative for State<N> {
    fn representative(&self) -> State<N> {
        least(|order| Some(self.renamed(order))).unwrap_or(*self)
    }
}

impl<const N: usize> fmt::Display for State<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "two hosts that want to run, {N} nodes, and no request")
    }
}
