//! A store that serves in order of arrival, with programs that do not use this library: no client is passed over, and no
//! waiter is stranded by one that dies first in line, or by the loss of its own place.
//!
//! The store keeps the places in the order of entry, and the first is the holder or has its turn. The first process is a
//! foreign program; the others follow the rules of the library, or all but one. What each of them knows of the places before
//! its own is kept by the code that etcd's and `ZooKeeper`'s nodes run ([`OwnPlaces`]), which decides whose turn has come.
//!
//! As a kind of node of the explorer (`real`) it would be no smaller: the foreign program, the places and how they are lost
//! would be the same, beside requests and timers that change nothing here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorlock::node::places::{OwnPlace, OwnPlaces, Role, Waiting};
use quorlock_protocol::{Moment, WaiterId};
use stateright::{Model, Property, Representative};

use crate::names::name;

pub(crate) const ALONE: &str = "two never hold the lock";
pub(crate) const GOES_ON: &str = "waiters are never stranded";
pub(crate) const IN_ORDER: &str = "no waiter is passed over";
pub(crate) const SERVED: &str = "every process may get the lock";

/// The rules of the library, or all but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Variant {
    Right,
    /// A refused waiter enters no queue, and asks again until the lock is free.
    Polls,
    /// A holder passes the lock to the next waiter of its process.
    PassesWithin,
    /// A waiter that was notified takes the lock without a look at its place.
    Blind,
    /// A waiter does not ask again whether it has its place.
    NoHeartbeat,
}

/// The model of `K` processes.
#[derive(Clone, Debug)]
pub(crate) struct FirstCome<const K: usize> {
    pub(crate) variant: Variant,
    /// How many may crash.
    pub(crate) deaths: usize,
    /// How many places may be lost.
    pub(crate) losses: usize,
    /// How often processes come back.
    pub(crate) returns: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Process {
    Away,
    Waits,
    /// It knows that it is first.
    Notified,
    Holds,
    Done,
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State<const K: usize> {
    processes: [Process; K],
    /// Who has a place, in the order of entry.
    places: [Option<usize>; K],
    /// Whose places each process knows to be before its own.
    before: [Set; K],
    /// Whose places have gone without its knowledge, of those and its own.
    unheard: [Set; K],
    /// How often another one got the lock since this process began to wait, or lost its place.
    passed_over: [usize; K],
    deaths: usize,
    losses: usize,
    returns: usize,
}

/// Processes, one bit each.
type Set = u8;

fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..Set::BITS as usize).filter(move |process| set & (1 << process) != 0)
}

/// A program that does not use this library.
const FOREIGN: usize = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A process asks for a place, or whether it has one.
    Ask(usize),
    /// A foreign program learns that it is first.
    Look(usize),
    /// A process of the library hears that the place of another has gone, or its own.
    Hear(usize, usize),
    Take(usize),
    Release(usize),
    /// It hands the lock to another task of its own.
    Pass(usize),
    Die(usize),
    /// The place of a dead process ends.
    Expire(usize),
    /// A place is gone while its waiter lives.
    Lose(usize),
    Return(usize),
}

impl<const K: usize> FirstCome<K> {
    fn polls(&self, process: usize) -> bool {
        self.variant == Variant::Polls && process != FOREIGN
    }
}

impl<const K: usize> State<K> {
    fn first(&self) -> Option<usize> {
        self.places[0]
    }

    fn has_place(&self, process: usize) -> bool {
        self.places.contains(&Some(process))
    }

    fn enter(&mut self, process: usize) {
        if !self.has_place(process)
            && let Some(place) = self.places.iter_mut().find(|place| place.is_none())
        {
            *place = Some(process);
        }
        let before = self.places.iter().flatten().take_while(|other| **other != process);
        self.before[process] = before.fold(0, |set, other| set | 1 << other);
        self.unheard[process] = 0;
    }

    fn leave(&mut self, process: usize) {
        if let Some(at) = self.places.iter().position(|place| *place == Some(process)) {
            self.places[at..].rotate_left(1);
            self.places[K - 1] = None;
        }
        for (other, unheard) in self.unheard.iter_mut().enumerate() {
            let matters = other == process || self.before[other] & (1 << process) != 0;
            if self.processes[other] == Process::Waits && other != FOREIGN && matters {
                *unheard |= 1 << process;
            }
        }
        (self.before[process], self.unheard[process]) = (0, self.unheard[process] & (1 << process));
    }

    /// The process hears that a place has gone: the code of the library decides whether it is to ask, and what is before it.
    fn hear(&mut self, process: usize, gone: usize) {
        self.unheard[process] &= !(1 << gone);
        let (lock, waiter, turn) = (Arc::from("lock"), WaiterId::new(process as u64), Duration::from_secs(1));
        let mut waits = Waiting::new(waiter, turn);
        waits.before = members(self.before[process]).collect();
        let (mut own, later) = (OwnPlaces::default(), Moment::ORIGIN + Duration::from_secs(60));
        own.put(&lock, OwnPlace::new(process, Role::Waiter(waits), later, ()));
        let asks = own.gone(&lock, &gone, Moment::ORIGIN).0.contains(&waiter);
        let known = own.waiter("lock", waiter).map(|place| &place.role);
        self.before[process] = match known {
            Some(Role::Waiter(waits)) => waits.before.iter().fold(0, |set, other| set | 1 << other),
            _ => 0,
        };
        if asks && known.is_some() {
            self.processes[process] = Process::Notified;
        }
    }

    /// The process gets the lock. One that has lost its place is not passed over until it has asked again.
    fn grant(&mut self, process: usize, polls: impl Fn(usize) -> bool) {
        self.processes[process] = Process::Holds;
        self.passed_over[process] = 0;
        for (other, stands) in self.processes.iter().enumerate() {
            let waits = matches!(stands, Process::Waits | Process::Notified);
            if waits && (polls(other) || self.has_place(other)) {
                self.passed_over[other] += 1;
            }
        }
    }
}

impl<const K: usize> Model for FirstCome<K> {
    type State = State<K>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<K>> {
        let FirstCome { deaths, losses, returns, .. } = *self;
        let (processes, places, passed_over) = ([Process::Away; K], [None; K], [0; K]);
        let (before, unheard) = ([0; K], [0; K]);
        vec![State { processes, places, before, unheard, passed_over, deaths, losses, returns }]
    }

    fn actions(&self, state: &State<K>, steps: &mut Vec<Step>) {
        for (process, stands) in state.processes.iter().enumerate() {
            let (has_place, is_first) = (state.has_place(process), state.first() == Some(process));
            match stands {
                Process::Away => steps.push(Step::Ask(process)),
                Process::Waits if self.polls(process) => {
                    steps.extend(state.first().is_none().then_some(Step::Take(process)));
                }
                Process::Waits if is_first && process == FOREIGN => steps.push(Step::Look(process)),
                Process::Waits if !has_place && self.variant != Variant::NoHeartbeat => {
                    steps.push(Step::Ask(process));
                }
                Process::Notified => steps.push(Step::Take(process)),
                Process::Holds => {
                    steps.push(Step::Release(process));
                    let passes = self.variant == Variant::PassesWithin && process != FOREIGN;
                    steps.extend((passes && state.returns > 0).then_some(Step::Pass(process)));
                }
                Process::Done if state.returns > 0 => steps.push(Step::Return(process)),
                Process::Dead if has_place => steps.push(Step::Expire(process)),
                Process::Waits | Process::Done | Process::Dead => {}
            }
            if *stands == Process::Waits {
                steps.extend(members(state.unheard[process]).map(|gone| Step::Hear(process, gone)));
            }
            let waits = matches!(stands, Process::Waits | Process::Notified);
            if state.deaths > 0 && (waits || *stands == Process::Holds) {
                steps.push(Step::Die(process));
            }
            if state.losses > 0 && waits && has_place {
                steps.push(Step::Lose(process));
            }
        }
    }

    fn next_state(&self, state: &State<K>, step: Step) -> Option<State<K>> {
        let mut next = *state;
        match step {
            Step::Ask(process) => {
                if !self.polls(process) {
                    next.enter(process);
                }
                let is_first = process != FOREIGN && next.first() == Some(process);
                next.processes[process] = if is_first { Process::Notified } else { Process::Waits };
            }
            Step::Look(process) => next.processes[process] = Process::Notified,
            Step::Hear(process, gone) => next.hear(process, gone),
            Step::Take(process) => {
                if self.polls(process) {
                    next.enter(process);
                }
                if next.first() == Some(process) || self.variant == Variant::Blind {
                    next.grant(process, |other| self.polls(other));
                } else {
                    next.processes[process] = Process::Waits;
                }
            }
            Step::Release(process) => {
                next.leave(process);
                next.processes[process] = Process::Done;
            }
            Step::Pass(process) => {
                next.returns -= 1;
                next.grant(process, |other| self.polls(other));
            }
            Step::Die(process) => {
                next.deaths -= 1;
                next.processes[process] = Process::Dead;
            }
            Step::Expire(process) => next.leave(process),
            Step::Lose(process) => {
                next.losses -= 1;
                next.leave(process);
                next.passed_over[process] = 0;
            }
            Step::Return(process) => {
                next.returns -= 1;
                next.processes[process] = Process::Away;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<FirstCome<K>>> {
        vec![
            Property::always(ALONE, |_: &FirstCome<K>, state: &State<K>| {
                state.processes.iter().filter(|stands| **stands == Process::Holds).count() <= 1
            }),
            Property::always(GOES_ON, |model: &FirstCome<K>, state: &State<K>| {
                let mut steps = Vec::new();
                model.actions(state, &mut steps);
                // No waiter depends on a crash or a loss.
                steps.retain(|step| !matches!(step, Step::Die(_) | Step::Lose(_)));
                let ended = |stands: &Process| matches!(stands, Process::Done | Process::Dead);
                state.processes.iter().all(ended) || !steps.is_empty()
            }),
            // Each of the others may be before it once.
            Property::always(IN_ORDER, |_: &FirstCome<K>, state: &State<K>| {
                state.passed_over.iter().all(|times| *times < K)
            }),
            Property::sometimes(SERVED, |_: &FirstCome<K>, state: &State<K>| {
                state.processes.iter().all(|stands| *stands == Process::Done)
            }),
        ]
    }

    fn format_step(&self, _: &State<K>, step: Step) -> Option<String> {
        Some(match step {
            Step::Ask(process) => format!("{} asks for a place", name(process)),
            Step::Look(process) => format!("{} learns that it is first", name(process)),
            Step::Hear(process, gone) if process == gone => {
                format!("{} hears that its place has gone", name(process))
            }
            Step::Hear(process, gone) => {
                format!("{} hears that the place of {} has gone", name(process), name(gone))
            }
            Step::Take(process) => format!("{} takes the lock", name(process)),
            Step::Release(process) => format!("{} releases it", name(process)),
            Step::Pass(process) => format!("{} passes it to another of its tasks", name(process)),
            Step::Die(process) => format!("{} crashes", name(process)),
            Step::Expire(process) => format!("the place of {} expires", name(process)),
            Step::Lose(process) => format!("{} loses its place", name(process)),
            Step::Return(process) => format!("{} wants the lock again", name(process)),
        })
    }
}

impl<const K: usize> Representative for State<K> {
    fn representative(&self) -> State<K> {
        *self
    }
}

impl<const K: usize> fmt::Display for State<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{K} processes, the first of another program, and a free lock")
    }
}

cases! {
    holds prove whoever_came_first_is_served_first_despite_crashes_and_lost_places: first_come::<3>(Variant::Right);
    holds prove a_foreign_program_and_three_processes_take_turns:
        FirstCome::<4> { deaths: 1, losses: 1, returns: 2, ..first_come(Variant::Right) };
    violated hunt a_waiter_that_polls_for_a_free_lock_is_passed_over: first_come::<3>(Variant::Polls);
    violated hunt a_holder_that_passes_the_lock_within_its_process_starves_others:
        first_come::<3>(Variant::PassesWithin);
    violated hunt a_waiter_that_takes_the_lock_without_its_place_is_not_alone: first_come::<3>(Variant::Blind);
    violated hunt a_waiter_that_does_not_ask_for_its_place_again_is_stranded:
        first_come::<3>(Variant::NoHeartbeat);
}

fn first_come<const K: usize>(variant: Variant) -> FirstCome<K> {
    FirstCome { variant, deaths: 2, losses: 2, returns: 4 }
}
