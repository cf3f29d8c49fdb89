//! The queue at a node, of those who wait in different processes: whoever lives gets its turn, however many of the
//! others die, wherever that meets them, and whatever messages are lost.
//!
//! There is one lock, at one node, and no votes: a place in the queue grants nothing (rule W-1), so that exclusion
//! is not asked about here. What is asked is whether those who live can all be stuck.

pub(crate) mod cases;

use std::fmt;

use stateright::{Model, Property, Representative};

use crate::names::name;

/// Whatever has happened, everybody who lives has had the lock or something can still happen.
pub(crate) const GOES_ON: &str = "those who wait are never stranded";
/// All have had it.
pub(crate) const SERVED: &str = "everybody may get the lock";

/// What is left out of the queue, to see what it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Variant {
    /// As the library has it.
    Right,
    /// A waiter asks once, and then waits to be told.
    NoHeartbeat,
    /// A turn that has begun lasts until it is taken.
    EndlessTurn,
    /// Who was told and gives up tells nobody, and nobody asks again.
    TurnNotLeft,
}

/// The model, of `K` processes, of which so many may die and so many may give up.
#[derive(Clone, Debug)]
pub(crate) struct Queue<const K: usize> {
    /// What is left out.
    pub(crate) variant: Variant,
    /// How many may die.
    pub(crate) deaths: usize,
    /// How many hints may be lost.
    pub(crate) losses: usize,
    /// How many may give up.
    pub(crate) departures: usize,
}

/// How a process stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Process {
    /// It has not asked yet.
    Away,
    /// It waits, and has asked.
    Waits,
    /// It knows that it is its turn.
    Told,
    Holds,
    /// It has had the lock, or has given up.
    Done,
    Dead,
}

/// What is where.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State<const K: usize> {
    processes: [Process; K],
    /// Who waits at the node, the first first.
    queue: Vec<usize>,
    /// Whose turn it is, and has not ended.
    turn: Option<usize>,
    /// To whom a hint is on its way that it is its turn.
    hint: Option<usize>,
    deaths: usize,
    losses: usize,
    departures: usize,
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A process asks for a place, or again.
    Ask(usize),
    /// It takes the lock in its turn.
    Take(usize),
    Release(usize),
    /// It hears that it is its turn.
    Hear(usize),
    /// The hint is lost.
    Lose,
    /// It waits no longer.
    Leave(usize),
    /// The holder's key ends with it, as all that it waits for.
    Die(usize),
    /// A turn that nobody has taken is over.
    End,
}

impl<const K: usize> Queue<K> {
    fn is_free(state: &State<K>) -> bool {
        !state.processes.contains(&Process::Holds)
    }

    /// Tells the first in the queue.
    fn tell(state: &mut State<K>) {
        if !state.queue.is_empty() {
            let first = state.queue.remove(0);
            (state.turn, state.hint) = (Some(first), Some(first));
        }
    }
}

impl<const K: usize> Model for Queue<K> {
    type State = State<K>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<K>> {
        let Queue { deaths, losses, departures, .. } = *self;
        let (queue, turn, hint) = (Vec::new(), None, None);
        vec![State { processes: [Process::Away; K], queue, turn, hint, deaths, losses, departures }]
    }

    fn actions(&self, state: &State<K>, steps: &mut Vec<Step>) {
        let asks_again = !matches!(self.variant, Variant::NoHeartbeat | Variant::TurnNotLeft);
        for (process, stands) in state.processes.iter().enumerate() {
            match stands {
                // To ask changes something where it has lost its place, or where the lock is free and nobody's turn.
                Process::Waits if asks_again => {
                    let changes = !state.queue.contains(&process) || state.turn.is_none();
                    if changes && Self::is_free(state) {
                        steps.push(Step::Ask(process));
                    }
                }
                Process::Told if Self::is_free(state) => steps.push(Step::Take(process)),
                // Whoever was told may find that another was faster.
                Process::Away | Process::Told => steps.push(Step::Ask(process)),
                Process::Holds => steps.push(Step::Release(process)),
                Process::Waits | Process::Done | Process::Dead => {}
            }
            if state.departures > 0 && matches!(stands, Process::Waits | Process::Told) {
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
        if state.turn.is_some() && Self::is_free(state) && self.variant != Variant::EndlessTurn {
            steps.push(Step::End);
        }
    }

    fn next_state(&self, state: &State<K>, step: Step) -> Option<State<K>> {
        let mut next = state.clone();
        match step {
            Step::Ask(process) => {
                if Self::is_free(state) && state.turn.is_none() {
                    next.queue.retain(|other| *other != process);
                    next.turn = Some(process);
                    next.processes[process] = Process::Told;
                } else {
                    next.processes[process] = Process::Waits;
                    if !next.queue.contains(&process) {
                        next.queue.push(process);
                    }
                }
            }
            Step::Take(process) => {
                next.processes[process] = Process::Holds;
                next.queue.retain(|other| *other != process);
            }
            Step::Release(process) => {
                next.processes[process] = Process::Done;
                next.turn = None;
                Self::tell(&mut next);
            }
            Step::Hear(process) => {
                next.hint = None;
                if state.processes[process] == Process::Waits {
                    next.processes[process] = Process::Told;
                }
            }
            Step::Lose => {
                next.hint = None;
                next.losses -= 1;
            }
            Step::Leave(process) => {
                next.departures -= 1;
                next.processes[process] = Process::Done;
                let stood = state.queue.contains(&process);
                next.queue.retain(|other| *other != process);
                if !stood && Self::is_free(state) && self.variant != Variant::TurnNotLeft {
                    next.turn = None;
                    Self::tell(&mut next);
                }
            }
            Step::Die(process) => {
                next.deaths -= 1;
                next.processes[process] = Process::Dead;
            }
            Step::End => next.turn = None,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Queue<K>>> {
        vec![
            Property::always(GOES_ON, |model: &Queue<K>, state: &State<K>| {
                let ended = |stands: &Process| matches!(stands, Process::Done | Process::Dead);
                let mut steps = Vec::new();
                model.actions(state, &mut steps);
                // Nobody is rescued by the death of another.
                steps.retain(|step| !matches!(step, Step::Die(_) | Step::Lose | Step::Leave(_)));
                state.processes.iter().all(ended) || !steps.is_empty()
            }),
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
            Step::Hear(process) => format!("{} hears that it is its turn", name(process)),
            Step::Lose => "the hint is lost".to_owned(),
            Step::Leave(process) => format!("{} waits no longer", name(process)),
            Step::Die(process) => format!("{} dies", name(process)),
            Step::End => "nobody has taken the turn".to_owned(),
        })
    }
}

impl<const K: usize> Representative for State<K> {
    fn representative(&self) -> State<K> {
        self.clone()
    }
}

impl<const K: usize> fmt::Display for State<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{K} processes, a free lock, and nobody in its queue")
    }
}
