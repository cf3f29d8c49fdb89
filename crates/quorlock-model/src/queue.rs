//! The queue on a node, of waiters in different processes: every live waiter gets its turn,
//! whichever others crash, at any point, and whatever messages are lost.
//!
//! The node's record has the queue, and whose turn it is; only that a turn has expired is said by a step of its
//! own. There is one lock on one node and no votes: a place in the queue grants nothing (rule W-1), so
//! exclusion is not checked here. What is checked is that live waiters never all get stuck.

use std::fmt;

use stateright::{Model, Property, Representative};

use crate::names::name;
use crate::record::{Ask, Kept, Reply, What};

/// Every live process has had the lock, or some step is possible.
pub(crate) const GOES_ON: &str = "waiters are never stranded";
/// No client is served twice before a waiter that came earlier.
pub(crate) const IN_ORDER: &str = "no waiter is passed over more than once by each of the others";
/// A client that comes to a lock that was released, and that no one waits for, may take it.
pub(crate) const OPEN: &str = "no turn outlives the release of its waiter";
pub(crate) const SERVED: &str = "every process may get the lock";

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Variant {
    Right,
    /// A waiter asks once, and then only waits for a hint.
    NoHeartbeat,
    /// A turn lasts until it is taken.
    EndlessTurn,
    /// A waiter that gives up its turn does not notify the next, and no waiter asks again.
    TurnNotLeft,
    /// A waiter that accepts no offer has no place in the queue.
    NoPlace,
    /// A release leaves the turn of the waiter that has released.
    TurnOutlivesRelease,
}

/// The model of `K` processes.
#[derive(Clone, Debug)]
pub(crate) struct Queue<const K: usize> {
    pub(crate) variant: Variant,
    /// How many may crash.
    pub(crate) deaths: usize,
    /// How many hints may be lost.
    pub(crate) losses: usize,
    /// How many may give up.
    pub(crate) departures: usize,
    /// Whether the first process is a reader, or wants several locks: it accepts no offers, as the others then do.
    pub(crate) reader: bool,
    /// How often processes come back.
    pub(crate) returns: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Process {
    /// It has not asked yet.
    Away,
    /// It has asked, and waits.
    Waits,
    /// It knows that it is its turn.
    Notified,
    Holds,
    /// It has had the lock, or has given up.
    Done,
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State<const K: usize> {
    processes: [Process; K],
    /// What the node keeps of the lock: the holder, the waiters in order, and whose turn it is.
    kept: Kept,
    /// Whether that turn has neither been taken nor expired.
    turn: bool,
    /// The waiter to which a hint is in flight.
    hint: Option<usize>,
    deaths: usize,
    losses: usize,
    departures: usize,
    returns: usize,
    /// How often another one got the lock while the reader waited.
    passed_over: usize,
    /// Whether a release has left the lock reserved with no one in the queue.
    reserved: bool,
}

/// One that comes after all others.
const NEWCOMER: usize = 7;

/// The process that accepts no offers.
const READER: usize = 0;

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A process asks for a place, or asks again.
    Ask(usize),
    /// It takes the lock in its turn.
    Take(usize),
    Release(usize),
    /// It receives the hint.
    Hear(usize),
    Lose,
    /// It stops waiting.
    Leave(usize),
    /// A holder's key expires with it.
    Die(usize),
    /// A turn expires that was not taken.
    End,
    /// A process wants the lock again.
    Return(usize),
}

impl<const K: usize> Queue<K> {
    fn is_free(state: &State<K>) -> bool {
        !state.processes.contains(&Process::Holds)
    }

    /// A turn that is over may be taken by anyone.
    fn place(state: &State<K>, process: usize) -> Ask {
        Ask::of(What::Enqueue, process).lasting(u8::from(state.turn))
    }

    /// The node carries out a request that may notify the first in the queue.
    fn apply(state: &mut State<K>, ask: Ask) {
        let first = state.kept.first_waiter();
        if state.kept.ask(ask).0 == Reply::Notified {
            (state.turn, state.hint) = (true, first);
        }
    }
}

impl<const K: usize> Model for Queue<K> {
    type State = State<K>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<K>> {
        let Queue { deaths, losses, departures, returns, .. } = *self;
        let (kept, processes) = (Kept::nothing(), [Process::Away; K]);
        let (turn, hint, passed_over, reserved) = (false, None, 0, false);
        vec![State {
            processes,
            kept,
            turn,
            hint,
            deaths,
            losses,
            departures,
            returns,
            passed_over,
            reserved,
        }]
    }

    fn actions(&self, state: &State<K>, steps: &mut Vec<Step>) {
        let asks_again = !matches!(self.variant, Variant::NoHeartbeat | Variant::TurnNotLeft);
        for (process, stands) in state.processes.iter().enumerate() {
            match stands {
                // Asking again has an effect if it has lost its place, or if it is its turn.
                Process::Waits if asks_again => {
                    let mut kept = state.kept;
                    let (reply, _) = kept.ask(Self::place(state, process));
                    if (reply == Reply::Free || kept != state.kept) && Self::is_free(state) {
                        steps.push(Step::Ask(process));
                    }
                }
                Process::Notified if Self::is_free(state) => steps.push(Step::Take(process)),
                // A waiter that was notified may find the lock taken.
                Process::Away | Process::Notified => steps.push(Step::Ask(process)),
                Process::Holds => steps.push(Step::Release(process)),
                Process::Waits | Process::Done | Process::Dead => {}
            }
            if state.returns > 0 && *stands == Process::Done && process != READER {
                steps.push(Step::Return(process));
            }
            if state.departures > 0 && matches!(stands, Process::Waits | Process::Notified) {
                steps.push(Step::Leave(process));
            }
            if state.deaths > 0 && !matches!(stands, Process::Done | Process::Dead) {
                steps.push(Step::Die(process));
            }
        }
        if let Some(process) = state.hint {
            steps.push(Step::Hear(process));
            if state.losses > 0 {
                steps.push(Step::Lose);
            }
        }
        // How often a waiter is passed over is bounded if turns are taken in time.
        let ends = self.variant != Variant::EndlessTurn && !self.reader;
        if state.turn && Self::is_free(state) && ends {
            steps.push(Step::End);
        }
    }

    fn next_state(&self, state: &State<K>, step: Step) -> Option<State<K>> {
        let mut next = *state;
        match step {
            Step::Ask(process) => {
                if next.kept.ask(Self::place(state, process)).0 == Reply::Free {
                    next.turn = true;
                    next.processes[process] = Process::Notified;
                } else {
                    next.processes[process] = Process::Waits;
                    if self.variant == Variant::NoPlace && process == READER {
                        next.kept.ask(Ask::of(What::LeaveQueue, READER));
                    }
                }
            }
            Step::Take(process) => next.grant(process, Ask::acquire(process, 1)),
            Step::Release(process) => {
                next.processes[process] = Process::Done;
                match next.kept.first_waiter() {
                    // It is offered: the lock is never free.
                    Some(first) if self.reader && first != READER => {
                        next.grant(first, Ask::transfer(process, first, 1));
                    }
                    // A cancel leaves the turn, and deletes the key all the same.
                    None if self.variant == Variant::TurnOutlivesRelease => {
                        next.kept.ask(Ask::of(What::Cancel, process));
                    }
                    _ => Self::apply(&mut next, Ask::release(process)),
                }
                let comes = Ask::of(What::Enqueue, NEWCOMER).lasting(1);
                // No one waits, and no one was notified.
                let is_idle = next.kept.is_free() && next.kept.first_waiter().is_none() && !next.turn;
                next.reserved = is_idle && next.kept.would(comes) != Reply::Free;
            }
            Step::Hear(process) => {
                next.hint = None;
                if state.processes[process] == Process::Waits {
                    next.processes[process] = Process::Notified;
                }
            }
            Step::Lose => {
                next.hint = None;
                next.losses -= 1;
            }
            Step::Leave(process) => {
                next.departures -= 1;
                next.processes[process] = Process::Done;
                if self.variant != Variant::TurnNotLeft || state.kept.has_place(process) {
                    Self::apply(&mut next, Ask::of(What::LeaveQueue, process));
                }
            }
            Step::Die(process) => {
                next.deaths -= 1;
                if state.processes[process] == Process::Holds {
                    next.kept = next.kept.ticked();
                }
                next.processes[process] = Process::Dead;
            }
            Step::End => next.turn = false,
            Step::Return(process) => {
                next.returns -= 1;
                next.processes[process] = Process::Away;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Queue<K>>> {
        vec![
            Property::always(GOES_ON, |model: &Queue<K>, state: &State<K>| {
                let ended = |stands: &Process| matches!(stands, Process::Done | Process::Dead);
                let mut steps = Vec::new();
                model.actions(state, &mut steps);
                // No waiter depends on the crash of another.
                steps.retain(|step| !matches!(step, Step::Die(_) | Step::Lose | Step::Leave(_)));
                state.processes.iter().all(ended) || !steps.is_empty()
            }),
            Property::always(IN_ORDER, |_: &Queue<K>, state: &State<K>| state.passed_over < K),
            Property::always(OPEN, |_: &Queue<K>, state: &State<K>| !state.reserved),
            Property::sometimes(SERVED, |_: &Queue<K>, state: &State<K>| {
                state.processes.iter().all(|stands| *stands == Process::Done)
            }),
        ]
    }

    fn format_step(&self, _: &State<K>, step: Step) -> Option<String> {
        Some(match step {
            Step::Ask(process) => format!("{} asks for a place", name(process)),
            Step::Take(process) => format!("{} takes the lock", name(process)),
            Step::Release(process) => format!("{} releases it", name(process)),
            Step::Hear(process) => format!("{} receives the hint that it is its turn", name(process)),
            Step::Lose => "the hint is lost".to_owned(),
            Step::Leave(process) => format!("{} stops waiting", name(process)),
            Step::Die(process) => format!("{} crashes", name(process)),
            Step::End => "the turn expires".to_owned(),
            Step::Return(process) => format!("{} wants the lock again", name(process)),
        })
    }
}

impl<const K: usize> State<K> {
    /// The process gets the lock, and takes or ends its turn.
    fn grant(&mut self, process: usize, ask: Ask) {
        self.kept.ask(ask);
        self.kept.ask(Ask::of(What::LeaveQueue, process));
        (self.processes[process], self.turn) = (Process::Holds, false);
        let reader_waits = matches!(self.processes[READER], Process::Waits | Process::Notified);
        self.passed_over += usize::from(reader_waits);
    }
}

impl<const K: usize> Representative for State<K> {
    fn representative(&self) -> State<K> {
        *self
    }
}

impl<const K: usize> fmt::Display for State<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{K} processes, a free lock, and an empty queue")
    }
}

cases! {
    holds prove live_waiters_are_never_stranded_by_crashes_and_lost_messages: queue::<4>(Variant::Right);
    violated hunt without_heartbeats_waiters_behind_a_crashed_one_are_stranded:
        queue::<3>(Variant::NoHeartbeat);
    violated hunt a_turn_that_never_expires_strands_waiters_behind_a_crashed_one:
        queue::<3>(Variant::EndlessTurn);
    violated hunt a_turn_given_up_without_a_hint_strands_waiters_that_only_listen:
        Queue::<3> { deaths: 0, losses: 0, ..queue(Variant::TurnNotLeft) };
    holds prove a_reader_in_the_queue_is_passed_over_once_by_each_other_at_most: reader::<3>(Variant::Right);
    violated hunt a_reader_without_a_place_is_passed_over_again_and_again: reader::<3>(Variant::NoPlace);
    violated hunt a_turn_that_outlives_the_release_of_its_waiter_keeps_others_from_a_free_lock:
        Queue::<2> { deaths: 0, losses: 0, departures: 0, ..queue(Variant::TurnOutlivesRelease) };
}

fn reader<const K: usize>(variant: Variant) -> Queue<K> {
    Queue { variant, deaths: 0, losses: 0, departures: 0, reader: true, returns: 3 }
}

fn queue<const K: usize>(variant: Variant) -> Queue<K> {
    Queue { variant, deaths: 2, losses: 1, departures: 1, reader: false, returns: 0 }
}
