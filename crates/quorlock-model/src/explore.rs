//! Explores every state of a model.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use quorlock::runtime::{Clock, SystemClock};
use quorlock_protocol::Moment;
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property, Representative};

/// The result of exploring a model.
#[derive(Clone, Debug)]
pub struct Report {
    /// The violation, if one was found.
    pub broken: Option<Story>,
    /// What should have been possible, but was not met.
    pub missing: Vec<&'static str>,
    /// How much was explored.
    pub seen: Seen,
    /// How long it took.
    pub took: Duration,
}

/// How much was explored.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// Distinct states of a model; all of them, if no violation was found.
    States {
        /// The number of steps tried.
        steps: usize,
        /// The number of distinct states.
        states: usize,
        /// The maximum depth.
        depth: usize,
    },
    /// Random walks.
    Walks {
        /// The number of walks.
        walks: u64,
        /// The number of steps of all walks.
        steps: u64,
        /// The seed that repeats the walks.
        seed: u64,
    },
}

/// How a property came to be violated.
#[derive(Clone, Debug)]
pub struct Story {
    /// The violated property.
    pub property: &'static str,
    /// The initial state.
    pub start: String,
    /// One sentence per step.
    pub steps: Vec<String>,
}

/// Explores all states depth first, skipping those that differ from another only in the names of
/// nodes or attempts.
///
/// It needs little memory, but a violation it finds is not the shortest.
pub fn prove<M>(model: M, threads: usize) -> Report
where
    M: Model + Send + Sync + 'static,
    M::State: Representative + Hash + Clone + PartialEq + fmt::Display + fmt::Debug + Send + Sync + 'static,
    M::Action: Clone + PartialEq + fmt::Debug,
{
    let started = SystemClock::default().now();
    let checker = model.checker().threads(threads).symmetry().finish_when(HasDiscoveries::AnyFailures);
    report(&checker.spawn_dfs().join(), started)
}

/// Explores all states breadth first, and stops at the shortest violation.
pub fn hunt<M>(model: &M) -> Report
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Hash + Clone + PartialEq + fmt::Display + fmt::Debug + Send + Sync + 'static,
    M::Action: Clone + PartialEq + fmt::Debug,
{
    let started = SystemClock::default().now();
    let search = || model.clone().checker().finish_when(HasDiscoveries::AnyFailures);
    let mut first = report(&search().spawn_bfs().join(), started);
    // Of several violations found at about the same time the checker reports the last.
    while let Some(story) = &first.broken {
        let shorter = search().target_max_depth(story.steps.len() + 1).spawn_bfs().join();
        let Some(story) = broken(&shorter) else { break };
        first.broken = Some(story);
    }
    first
}

fn report<M>(checker: &impl Checker<M>, started: Moment) -> Report
where
    M: Model,
    M::State: Clone + PartialEq + fmt::Display + fmt::Debug,
    M::Action: Clone + PartialEq + fmt::Debug,
{
    let took = SystemClock::default().now().since(started);
    let found = checker.discoveries();
    let missing = examples(checker.model()).filter(|name| !found.contains_key(name)).collect();
    let broken = broken(checker);
    let seen = Seen::States {
        steps: checker.state_count(),
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
    };
    assert!(broken.is_some() || checker.is_done(), "the search ended early");
    Report { broken, missing, seen, took }
}

/// Returns the first violated property.
fn broken<M>(checker: &impl Checker<M>) -> Option<Story>
where
    M: Model,
    M::State: Clone + PartialEq + fmt::Display + fmt::Debug,
    M::Action: Clone + PartialEq + fmt::Debug,
{
    let model = checker.model();
    let mut found = checker.discoveries();
    model.properties().iter().find_map(|property| match property.expectation {
        Expectation::Always | Expectation::Eventually => {
            Some(story(model, property, found.remove(property.name)?.into_vec()))
        }
        Expectation::Sometimes => None,
    })
}

/// Returns the properties that should be met.
pub(crate) fn examples<M: Model>(model: &M) -> impl Iterator<Item = &'static str> {
    let is_example = |property: &Property<M>| property.expectation == Expectation::Sometimes;
    model.properties().into_iter().filter(is_example).map(|property| property.name)
}

/// Describes the path up to the first state that violates the property.
pub(crate) fn story<M>(model: &M, property: &Property<M>, path: Vec<(M::State, Option<M::Action>)>) -> Story
where
    M: Model,
    M::State: fmt::Display + fmt::Debug,
{
    let start = path.first().map(|(state, _)| state.to_string()).unwrap_or_default();
    let sound = path.into_iter().take_while(|(state, _)| (property.condition)(model, state));
    let steps = sound.filter_map(|(state, action)| model.format_step(&state, action?));
    Story { property: property.name, start, steps: steps.collect() }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "violated: {}", self.property)?;
        writeln!(f, "  0. {}", self.start)?;
        self.steps.iter().enumerate().try_for_each(|(index, step)| writeln!(f, "{:3}. {step}", index + 1))
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::States { steps, states, depth } => {
                write!(f, "{states} states, {steps} steps, {depth} deep")
            }
            Seen::Walks { walks, steps, seed } => write!(f, "{walks} walks, {steps} steps, seed {seed}"),
        }
    }
}
