//! Shared locks: readers together or one writer, and a writer may downgrade to a reader.
//!
//! Writer starvation is checked as a bound on overtaking: once enough nodes have a writer's intent, no
//! attempt that begins later acquires the lock before it. The writer then waits only for readers to end.

use quorlock_protocol::{Mode, Quorum};
use stateright::Property;

use crate::contest::{self, Attempt, Bounds, Contest, Phase, Rules, ask};
use crate::names::name;
use crate::record::{Ask, Kept, Reply, What};

pub(crate) const EXCLUSIVE: &str = "no other holds the lock while a writer does";
/// No attempt that begins after a waiting writer acquires the lock before it.
pub(crate) const NOT_OVERTAKEN: &str = "no new reader overtakes a waiting writer";
pub(crate) const TOGETHER: &str = "two readers may hold the lock together";
pub(crate) const DOWNGRADED: &str = "a writer may downgrade and share the lock with readers";
pub(crate) const PASSED_ON: &str = "a writer may come after a reader";

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Quorlock,
    /// The expiry of the first reader applies to all.
    OneTtl,
    /// A node only counts its readers: a release by one that is none is that of another.
    Counting,
    /// When the last reader leaves, a node keeps the expiry of that reader.
    LeaverShortens,
    /// A writer holds the lock exclusively until its downgrade is confirmed, even if that fails.
    FailedDowngrade,
    /// One confirmation is enough for a downgrade, which also renews.
    MinorityDowngrade,
    /// Nodes grant readers while a writer waits.
    NoIntent,
    /// A waiting writer stores its intent on one node only.
    OneIntent,
}

/// The attempts, the first `writers` of which write.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    scheme: Scheme,
    writers: usize,
    bounds: Bounds,
}

/// What an attempt has besides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Own {
    /// The writer that was waiting when it began, and still is.
    behind: Option<usize>,
    /// A writer that has only a share.
    downgraded: bool,
}

impl contest::Own for Own {}

/// A writer's intent arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Intend {
    attempt: usize,
    node: usize,
}

type State<const N: usize, const K: usize> = contest::State<Own, N, K, 1>;

impl Shared {
    /// Creates the model with this many writers; the other attempts read. Each renews this often.
    pub(crate) fn new<const N: usize, const K: usize>(
        scheme: Scheme,
        writers: usize,
        bounds: Bounds,
    ) -> Contest<Shared, N, K, 1> {
        Contest(Shared { scheme, writers, bounds })
    }

    fn role(&self, attempt: usize) -> Mode {
        if attempt < self.writers { Mode::Exclusive } else { Mode::Shared }
    }

    fn acquire(&self, attempt: usize) -> Ask {
        Ask::of(What::Acquire(self.role(attempt)), attempt).lasting(self.bounds.ttl)
    }

    /// Returns the mode in which the attempt may act.
    fn asserts(&self, index: usize, attempt: &Attempt<Own>) -> Option<Mode> {
        let mode = if attempt.own.downgraded { Mode::Shared } else { self.role(index) };
        attempt.asserts().then_some(mode)
    }

    /// Returns how many attempts act in this mode.
    fn acting<const N: usize, const K: usize>(&self, state: &State<N, K>, mode: Mode) -> usize {
        let acts = |(index, attempt): &(usize, &Attempt<Own>)| self.asserts(*index, attempt) == Some(mode);
        state.attempts.iter().enumerate().filter(acts).count()
    }

    fn waiters(&self, kept: Kept) -> impl Iterator<Item = usize> {
        (0..self.writers).filter(move |writer| kept.awaits(*writer))
    }

    /// Returns the waiting writer whose intent enough nodes have.
    fn waiting<const N: usize, const K: usize>(&self, state: &State<N, K>) -> Option<usize> {
        let needed = if self.scheme == Scheme::OneIntent { 1 } else { Quorum::majority(N).needed() };
        (0..self.writers).find(|&writer| {
            state.attempts[writer].phase == Phase::Voting
                && state.nodes.iter().filter(|node| node.kept[0].awaits(writer)).count() >= needed
        })
    }
}

impl<const N: usize, const K: usize> Rules<N, K, 1> for Shared {
    type Own = Own;
    type Step = Intend;

    fn bounds(&self) -> Bounds {
        self.bounds
    }

    fn vote(&self, [kept]: &mut [Kept; 1], _: usize, attempt: usize, _: &Own) -> Reply {
        let before = *kept;
        if self.scheme == Scheme::NoIntent {
            self.waiters(before).for_each(|writer| kept.apply(Ask::of(What::Withdraw, writer)));
        }
        let (reply, _) = kept.ask(self.acquire(attempt));
        if self.scheme == Scheme::NoIntent {
            self.waiters(before).for_each(|writer| kept.apply(Ask::of(What::Announce, writer)));
        }
        if self.scheme == Scheme::OneTtl && before.is_shared() {
            *kept = kept.ending(before.record().held.as_ref().and_then(|held| held.ends));
        }
        reply
    }

    fn renewal(&self, [kept]: &mut [Kept; 1], attempt: usize) -> Reply {
        kept.ask(Ask::of(What::Renew(Mode::Shared), attempt).lasting(self.bounds.ttl)).0
    }

    fn release(&self, [kept]: &mut [Kept; 1], attempt: usize) {
        let before = *kept;
        let is_stranger = self.scheme == Scheme::Counting && kept.is_shared() && !kept.has(attempt);
        let other = (0..K).find(|&other| is_stranger && kept.has(other));
        kept.ask(Ask::of(What::Release(Mode::Shared), other.unwrap_or(attempt)));
        if self.scheme == Scheme::LeaverShortens && kept.is_shared() && *kept != before {
            *kept = kept.ending(before.share_ends(attempt));
        }
    }

    fn gives_up(&self) -> bool {
        false
    }

    fn begin(&self, state: &mut State<N, K>, attempt: usize) {
        let is_reader = self.role(attempt) == Mode::Shared;
        state.attempts[attempt].own.behind = self.waiting(state).filter(|_| is_reader);
    }

    /// Like `Keeper::downgrade`: the holder immediately claims only a share.
    fn renew(&self, own: &mut Own, counts: bool) {
        own.downgraded |= counts || self.scheme != Scheme::FailedDowngrade;
    }

    fn one_is_enough(&self, _: usize, renews: bool) -> bool {
        renews && self.scheme == Scheme::MinorityDowngrade
    }

    fn possible(&self, state: &State<N, K>, steps: &mut Vec<contest::Step<Intend>>) {
        for (attempt, asking) in state.attempts.iter().enumerate().take(self.writers) {
            let waits = matches!(asking.phase, Phase::Idle | Phase::Voting);
            let nodes = if self.scheme == Scheme::OneIntent { 1 } else { N };
            let notifies = |node: &usize| {
                let [kept] = state.nodes[*node].kept;
                waits && kept.is_shared() && !kept.awaits(attempt)
            };
            let intents = (0..nodes).filter(notifies).map(|node| Intend { attempt, node });
            steps.extend(intents.map(contest::Step::Own));
        }
    }

    /// An attempt refused by every node begins with this.
    fn after(&self, state: &mut State<N, K>, Intend { attempt, node }: Intend) {
        if state.attempts[attempt].phase == Phase::Idle {
            ask(state, attempt);
        }
        state.nodes[node].kept[0].apply(Ask::of(What::Announce, attempt));
    }

    fn tidy(&self, state: &mut State<N, K>) {
        // A writer that has the lock, or no longer waits.
        for attempt in 0..self.writers {
            if state.attempts[attempt].phase == Phase::Voting {
                continue;
            }
            for node in state.nodes.iter_mut().filter(|node| node.kept[0].awaits(attempt)) {
                node.kept[0].apply(Ask::of(What::Withdraw, attempt));
            }
            for other in &mut state.attempts {
                other.own.behind.take_if(|writer| *writer == attempt);
            }
        }
    }

    fn properties(&self) -> Vec<Property<Contest<Shared, N, K, 1>>> {
        let mut properties = vec![
            Property::<Contest<Shared, N, K, 1>>::always(EXCLUSIVE, |Contest(model), state| {
                let writers = model.acting(state, Mode::Exclusive);
                writers == 0 || writers + model.acting(state, Mode::Shared) == 1
            }),
            Property::<Contest<Shared, N, K, 1>>::always(NOT_OVERTAKEN, |_, state| {
                !state.attempts.iter().any(|one| one.own.behind.is_some() && one.lease().is_some())
            }),
        ];
        if K - self.writers > 1 {
            properties.push(Property::<Contest<Shared, N, K, 1>>::sometimes(
                TOGETHER,
                |Contest(model), state| {
                    state.attempts[model.writers..].iter().filter(|one| one.asserts()).count() > 1
                },
            ));
        }
        if self.writers > 0 {
            properties.push(Property::<Contest<Shared, N, K, 1>>::sometimes(
                PASSED_ON,
                |Contest(model), state| {
                    state.attempts[model.writers..].iter().any(Attempt::has_held)
                        && model.acting(state, Mode::Exclusive) > 0
                },
            ));
        }
        if self.writers > 0 && self.bounds.renewals > 0 {
            properties.push(Property::<Contest<Shared, N, K, 1>>::sometimes(
                DOWNGRADED,
                |Contest(model), state| {
                    let (writers, readers) = state.attempts.split_at(model.writers);
                    writers.iter().any(|one| one.own.downgraded && one.asserts())
                        && readers.iter().any(Attempt::asserts)
                },
            ));
        }
        properties
    }

    fn describe(Intend { attempt, node }: Intend) -> String {
        format!("the intent of {} arrives at node {node}", name(attempt))
    }

    fn weight(_: &Intend) -> u32 {
        8
    }
}

cases! {
    holds prove readers_share_the_lock_and_a_writer_is_exclusive: three(Scheme::Quorlock, 1, 0);
    holds prove two_writers_and_a_reader_exclude_each_other: three(Scheme::Quorlock, 2, 0);
    holds prove a_writer_may_become_a_reader_and_readers_renew:
        Shared::new::<3, 2>(Scheme::Quorlock, 1, bounds(2, 1));
    holds walk(50_000) five_nodes_readers_writers_and_downgrades_at_random: five(Scheme::Quorlock);
    violated hunt one_time_for_all_readers_ends_before_the_last_of_them: three(Scheme::OneTtl, 1, 0);
    violated hunt a_count_of_readers_is_lowered_by_an_expired_reader:
        Shared::new::<1, 3>(Scheme::Counting, 1, bounds(2, 0));
    violated hunt a_leaving_reader_must_not_shorten_the_others_ttl: three(Scheme::LeaverShortens, 1, 0);
    violated hunt a_writer_whose_downgrade_failed_is_no_longer_exclusive:
        three(Scheme::FailedDowngrade, 1, 1);
    violated hunt a_minority_must_not_confirm_a_downgrade: three(Scheme::MinorityDowngrade, 2, 1);
    violated hunt without_an_intent_new_readers_overtake_a_writer: three(Scheme::NoIntent, 1, 0);
    violated hunt an_intent_at_one_node_does_not_keep_readers_out: three(Scheme::OneIntent, 1, 0);
    nightly prove nightly_two_readers_a_writer_that_becomes_one_and_renewals: three(Scheme::Quorlock, 1, 1);
    nightly prove nightly_a_longer_ttl_for_those_who_share: Shared::new::<3, 2>(Scheme::Quorlock, 1, bounds(4, 2));
    nightly walk(1_000_000) nightly_a_million_random_walks_among_readers: five(Scheme::Quorlock);
}

fn three(scheme: Scheme, writers: usize, renewals: u8) -> Contest<Shared, 3, 3, 1> {
    Shared::new(scheme, writers, bounds(2, renewals))
}

fn five(scheme: Scheme) -> Contest<Shared, 5, 5, 1> {
    Shared::new(scheme, 2, bounds(2, 3))
}

fn bounds(ttl: u8, renewals: u8) -> Bounds {
    Bounds { ttl, renewals, losses: 0 }
}
