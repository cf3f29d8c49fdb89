//! Takes random walks through a model with too many states to explore.

use std::fmt;

use quorlock::runtime::{Clock, SystemClock};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use stateright::{Expectation, Model};

use crate::explore::{Report, Seen, Story, examples, story};

/// A model with weighted steps.
pub(crate) trait Wander: Model {
    /// Returns the weight of a step among those possible.
    fn weight(&self, step: &Self::Action) -> u32;
}

/// Takes up to this many walks, each until no step is possible, and stops at a violation.
///
/// The same seed repeats the walks.
pub(crate) fn walk<M>(model: &M, seed: u64, walks: u64) -> Report
where
    M: Wander,
    M::State: Clone + fmt::Display + fmt::Debug,
    M::Action: Clone + fmt::Debug,
{
    let started = SystemClock::default().now();
    let starts = model.init_states();
    let mut missing = examples(model).collect();
    let mut random = StdRng::seed_from_u64(seed);
    let mut broken = None;
    let (mut taken, mut steps) = (0, 0);
    while taken < walks && broken.is_none() {
        let Some(start) = starts.choose(&mut random) else { break };
        taken += 1;
        steps += one(model, start, &mut random, &mut missing, &mut broken);
    }
    let took = SystemClock::default().now().since(started);
    Report { broken, missing, seen: Seen::Walks { walks: taken, steps, seed }, took }
}

/// Takes one walk; returns its number of steps.
fn one<M>(
    model: &M,
    start: &M::State,
    random: &mut impl Rng,
    missing: &mut Vec<&'static str>,
    broken: &mut Option<Story>,
) -> u64
where
    M: Wander,
    M::State: Clone + fmt::Display + fmt::Debug,
    M::Action: Clone + fmt::Debug,
{
    let properties = model.properties();
    let (mut state, mut path, mut possible) = (start.clone(), Vec::new(), Vec::new());
    loop {
        model.actions(&state, &mut possible);
        let Some(action) = possible.choose_weighted(random, |step| model.weight(step)).ok().cloned() else {
            break;
        };
        possible.clear();
        let Some(next) = model.next_state(&state, action.clone()) else { break };
        path.push((std::mem::replace(&mut state, next), Some(action)));
        for property in &properties {
            let holds = (property.condition)(model, &state);
            match property.expectation {
                Expectation::Always if !holds => {
                    *broken = Some(story(model, property, path.clone()));
                    return path.len() as u64;
                }
                Expectation::Sometimes if holds => missing.retain(|name| *name != property.name),
                Expectation::Always | Expectation::Sometimes | Expectation::Eventually => {}
            }
        }
    }
    path.len() as u64
}
