//! Several locks acquired together, alongside others acquired alone.
//!
//! An attempt wants a set of locks, and a node may lose one key of a lease and keep the others. A node that
//! loses a key breaks an assumption: its holder relies on the lease until the last deadline it knows, and another
//! client may hold the lock in the meantime. What must not happen is that the lease is extended.

use quorlock_protocol::{Moment, Quorum};
use stateright::Property;

use crate::clock::{deadline, moment};
use crate::contest::{self, Attempt, Bounds, Contest, Phase, Rules, Sent, ask};
use crate::record::{Ask, Kept, Reply, ask_all};

/// No attempt holds a lock that another holds validly.
pub(crate) const EXCLUSIVE: &str = "no two hold a lock that both want";
/// No waiting attempt has a lock that another one waits for, while waiting for a lock of that one.
pub(crate) const NO_DEADLOCK: &str = "no two wait for each other";
pub(crate) const TOGETHER: &str = "two that want different locks may hold them together";
pub(crate) const PASSED_ON: &str = "one may hold a lock after another that had it in its set";

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// An attempt takes its locks one after the other, and keeps what it has while it waits.
    OneByOne,
    /// One node grants its vote if it can store some of the keys.
    PartialNode,
    /// A node confirms a renewal if some of the keys are left, and stores the others that are free.
    SomeKept,
}

/// The attempts and the locks.
#[derive(Clone, Debug)]
pub(crate) struct Several<const K: usize, const L: usize> {
    scheme: Scheme,
    /// The locks that each attempt wants.
    wants: [[bool; L]; K],
    bounds: Bounds,
}

/// What an attempt has besides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Own {
    /// How many of its locks it has, if it takes one after the other.
    taken: usize,
    /// Set after a node has lost one of its keys, and too few have all of them. It cannot know, and
    /// may rely on this deadline, the last one from before.
    robbed: Option<Moment>,
}

impl contest::Own for Own {}

/// A node loses a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lose {
    node: usize,
    lock: usize,
}

type State<const N: usize, const K: usize, const L: usize> = contest::State<Own, N, K, L>;
type Model<const N: usize, const K: usize, const L: usize> = Contest<Several<K, L>, N, K, L>;

impl<const K: usize, const L: usize> Several<K, L> {
    /// Creates the model; each lease is renewed, and keys are lost, this often.
    pub(crate) fn new<const N: usize>(
        scheme: Scheme,
        wants: [[bool; L]; K],
        (renewals, losses): (u8, u8),
    ) -> Model<N, K, L> {
        Contest(Several { scheme, wants, bounds: Bounds { ttl: 2, renewals, losses } })
    }

    fn wanted(&self, attempt: usize) -> impl DoubleEndedIterator<Item = usize> {
        let wants = self.wants[attempt];
        (0..L).filter(move |lock| wants[*lock])
    }

    /// Returns which lock it takes after this number of them; every second attempt takes them in the reverse order.
    fn in_turn(&self, attempt: usize, taken: usize) -> Option<usize> {
        let mut wanted = self.wanted(attempt);
        if attempt % 2 == 1 { wanted.rev().nth(taken) } else { wanted.nth(taken) }
    }

    fn share_a_lock(&self, one: usize, other: usize) -> bool {
        self.wanted(one).any(|lock| self.wants[other][lock])
    }

    /// Whether each of the two waits for a lock that the other has.
    fn wait_for_each_other<const N: usize>(&self, state: &State<N, K, L>, one: usize, other: usize) -> bool {
        let waits = |attempt: usize| state.attempts[attempt].phase == Phase::Voting;
        let keeps_from = |one: usize, other: usize| {
            let has = |lock: usize| state.nodes.iter().filter(|node| node.kept[lock].is_of(one)).count();
            self.wanted(other).any(|lock| self.wants[one][lock] && has(lock) >= Quorum::majority(N).needed())
        };
        waits(one) && waits(other) && keeps_from(one, other) && keeps_from(other, one)
    }

    /// Whether a quorum of nodes has all of its keys until the latest deadline it may know.
    fn lasts<const N: usize>(&self, state: &State<N, K, L>, attempt: usize, notified: Moment) -> bool {
        let left = notified.since(moment(state.attempts[attempt].clock)).as_secs_f64();
        let lasts = |kept: Kept| kept.is_of(attempt) && f64::from(kept.left()) >= left;
        let all = |node: &&contest::Node<K, L>| self.wanted(attempt).all(|lock| lasts(node.kept[lock]));
        state.nodes.iter().filter(all).count() >= Quorum::majority(N).needed()
    }
}

/// Whether it relies on a deadline from before a node lost its key.
fn is_excused(attempt: &Attempt<Own>) -> bool {
    attempt.own.robbed.zip(attempt.lease()).is_some_and(|(notified, lease)| lease.until <= notified)
}

fn bits(locks: impl Iterator<Item = usize>) -> u8 {
    locks.fold(0, |bits, lock| bits | 1 << lock)
}

fn pairs<const K: usize>() -> impl Iterator<Item = (usize, usize)> {
    (0..K).flat_map(|one| (one + 1..K).map(move |other| (one, other)))
}

impl<const N: usize, const K: usize, const L: usize> Rules<N, K, L> for Several<K, L> {
    type Own = Own;
    type Step = Lose;

    fn bounds(&self) -> Bounds {
        self.bounds
    }

    fn vote(&self, kept: &mut [Kept; L], node: usize, attempt: usize, own: &Own) -> Reply {
        let is_asked = |lock: &usize| match self.scheme {
            Scheme::OneByOne => self.in_turn(attempt, own.taken) == Some(*lock),
            Scheme::PartialNode => node != 0 || kept[*lock].is_free(),
            Scheme::Quorlock | Scheme::SomeKept => true,
        };
        let keys = bits(self.wanted(attempt).filter(is_asked));
        if keys == 0 { Reply::Refused } else { ask_all(kept, keys, Ask::acquire(attempt, self.bounds.ttl)) }
    }

    fn renewal(&self, kept: &mut [Kept; L], attempt: usize) -> Reply {
        let some = |lock: &usize| self.scheme != Scheme::SomeKept || !kept[*lock].is_foreign(attempt);
        let had_some = self.wanted(attempt).any(|lock| kept[lock].is_of(attempt));
        let keys = bits(self.wanted(attempt).filter(some));
        let reply = ask_all(kept, keys, Ask::renew(attempt, self.bounds.ttl));
        if self.scheme == Scheme::SomeKept && had_some { Reply::Granted } else { reply }
    }

    fn release(&self, kept: &mut [Kept; L], attempt: usize) {
        ask_all(kept, bits(self.wanted(attempt)), Ask::release(attempt));
    }

    /// An attempt that takes locks one after the other waits instead.
    fn gives_up(&self) -> bool {
        self.scheme != Scheme::OneByOne
    }

    fn acquired_at(&self, state: &mut State<N, K, L>, attempt: usize) -> Option<u8> {
        let taken = &mut state.attempts[attempt].own.taken;
        if self.scheme == Scheme::OneByOne && *taken + 1 < self.wanted(attempt).count() {
            *taken += 1;
            ask(state, attempt);
            return None;
        }
        Some(0)
    }

    fn possible(&self, state: &State<N, K, L>, steps: &mut Vec<contest::Step<Lose>>) {
        if state.past > 0 {
            for (node, there) in state.nodes.iter().enumerate() {
                let held = (0..L).filter(|lock| !there.kept[*lock].is_free());
                steps.extend(held.map(|lock| contest::Step::Own(Lose { node, lock })));
            }
        }
    }

    fn after(&self, state: &mut State<N, K, L>, Lose { node, lock }: Lose) {
        state.past -= 1;
        let Some(robbed) = state.nodes[node].kept[lock].holder() else { return };
        state.nodes[node].kept[lock] = Kept::nothing();
        let has_confirmed = state.nodes.iter().any(|node| {
            let lacks_one = || self.wanted(robbed).any(|lock| !node.kept[lock].is_of(robbed));
            node.mail[robbed].renewal == Sent::Counted && lacks_one()
        });
        let attempt = &mut state.attempts[robbed];
        // What nodes said before they lost their keys may still be counted, for a renewal in flight as well.
        let notified = match attempt.phase {
            Phase::Voting => deadline(0, self.bounds.ttl),
            Phase::Holding(lease) => {
                let renewing = lease.renewal.filter(|_| has_confirmed);
                renewing.map_or(lease.until, |sent| deadline(sent, self.bounds.ttl).max(lease.until))
            }
            Phase::Idle | Phase::Waiting { .. } | Phase::WritingBack | Phase::Ended | Phase::Over { .. } => {
                return;
            }
        };
        attempt.own.robbed = attempt.own.robbed.max(Some(notified));
    }

    /// Clears `robbed` where it no longer applies.
    fn tidy(&self, state: &mut State<N, K, L>) {
        for attempt in 0..K {
            let lasts = |notified: &Moment| self.lasts(state, attempt, *notified);
            if state.attempts[attempt].own.robbed.as_ref().is_some_and(lasts) {
                state.attempts[attempt].own.robbed = None;
            }
        }
    }

    fn properties(&self) -> Vec<Property<Model<N, K, L>>> {
        let mut properties = vec![
            Property::<Model<N, K, L>>::always(EXCLUSIVE, |Contest(model), state| {
                let holds = |one: usize| {
                    let asking = &state.attempts[one];
                    asking.asserts() && !is_excused(asking)
                };
                let mut together = pairs::<K>().filter(|(one, other)| holds(*one) && holds(*other));
                !together.any(|(one, other)| model.share_a_lock(one, other))
            }),
            Property::<Model<N, K, L>>::always(NO_DEADLOCK, |Contest(model), state| {
                !pairs::<K>().any(|(one, other)| model.wait_for_each_other(state, one, other))
            }),
        ];
        if pairs::<K>().any(|(one, other)| !self.share_a_lock(one, other)) {
            properties.push(Property::<Model<N, K, L>>::sometimes(TOGETHER, |_, state| {
                state.attempts.iter().filter(|one| one.asserts()).count() > 1
            }));
        }
        properties.push(Property::<Model<N, K, L>>::sometimes(PASSED_ON, |Contest(model), state| {
            let follows =
                |one: usize, other: usize| state.attempts[one].has_held() && state.attempts[other].asserts();
            pairs::<K>().any(|(one, other)| {
                model.share_a_lock(one, other) && (follows(one, other) || follows(other, one))
            })
        }));
        properties
    }

    fn describe(Lose { node, lock }: Lose) -> String {
        format!("node {node} loses the key of lock {lock}")
    }

    fn weight(_: &Lose) -> u32 {
        1
    }
}

cases! {
    holds prove overlapping_sets_and_a_lock_alone_exclude_each_other: three(Scheme::Quorlock);
    holds prove leases_of_several_are_renewed_and_a_node_loses_one_key_of_them: with_single(Scheme::Quorlock, (2, 1));
    holds walk(50_000) sets_and_locks_on_five_nodes_at_random_with_keys_that_are_lost: five(Scheme::Quorlock);
    violated hunt attempts_that_take_locks_one_by_one_deadlock: two(Scheme::OneByOne);
    violated hunt a_node_that_stores_some_of_the_keys_must_not_vote: three(Scheme::PartialNode);
    violated hunt a_node_that_has_lost_one_of_the_keys_must_not_confirm:
        with_single(Scheme::SomeKept, (2, 1));
    nightly prove nightly_leases_of_several_and_two_losses: with_single(Scheme::Quorlock, (3, 2));
    nightly walk(1_000_000) nightly_a_million_random_walks_among_sets: five(Scheme::Quorlock);
}

const YES: bool = true;
const NO: bool = false;

/// Two attempts want the same two locks.
fn two(scheme: Scheme) -> Contest<Several<2, 2>, 3, 2, 2> {
    Several::new(scheme, [[YES, YES]; 2], (0, 0))
}

/// One attempt wants two locks, the other one of these.
fn with_single(scheme: Scheme, bounds: (u8, u8)) -> Contest<Several<2, 2>, 3, 2, 2> {
    Several::new(scheme, [[YES, YES], [NO, YES]], bounds)
}

/// Two sets overlap, and the third attempt wants a single lock.
fn three(scheme: Scheme) -> Contest<Several<3, 3>, 3, 3, 3> {
    Several::new(scheme, [[YES, YES, NO], [NO, YES, YES], [YES, NO, NO]], (0, 0))
}

fn five(scheme: Scheme) -> Contest<Several<5, 3>, 5, 5, 3> {
    let wants = [[YES, YES, NO], [NO, YES, YES], [YES, NO, YES], [YES, YES, YES], [NO, YES, NO]];
    Several::new(scheme, wants, (3, 1))
}
