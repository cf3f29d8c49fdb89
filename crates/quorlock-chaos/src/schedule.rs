//! The schedule of faults: a pure function of scenario, seed and duration.

use std::time::Duration;

use quorlock_servers::SeededRng;

use crate::fault::{Aim, Hit, Target};
use crate::scenario::Scenario;

/// One fault of one node or worker. Times count from the beginning of the schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    /// The index of the fault rule in the scenario.
    pub(crate) rule: usize,
    pub(crate) hit: Hit,
    pub(crate) from: Duration,
    /// When the fault heals.
    pub(crate) until: Duration,
    /// When the target is fully usable again.
    pub(crate) settled: Duration,
}

/// The time in which clients reconnect to a restarted server.
const RETURN: Duration = Duration::from_millis(300);

/// Returns the schedule in order of time. At no time are more nodes faulty than the scenario allows, and
/// no target has two faults at the same time: a fault that would violate this is postponed to the earliest
/// possible time, and later faults stay after it.
pub(crate) fn schedule(scenario: &Scenario, seed: u64, duration: Duration) -> Vec<Event> {
    let mut rules: Vec<(Duration, SeededRng)> = scenario
        .faults
        .iter()
        .enumerate()
        .map(|(index, rule)| {
            let rng = SeededRng::new(seed, &format!("{} {index}", rule.kind));
            (rng.between(Duration::ZERO, rule.every.most), rng)
        })
        .collect();
    let mut events: Vec<Event> = Vec::new();
    while let Some((index, (next, rng))) = rules
        .iter_mut()
        .enumerate()
        .min_by_key(|(_, (next, _))| *next)
        .filter(|(_, (next, _))| *next < duration)
        && let Some(rule) = scenario.faults.get(index)
    {
        let occurrence = occurrence(scenario, &events, index, rng, *next);
        let came = occurrence.first().map_or(*next, |event| event.from);
        events.extend(occurrence.into_iter().filter(|event| event.from < duration));
        *next = came + rule.every.throw(rng).max(Duration::from_millis(1));
    }
    events.sort_by_key(|event| event.from);
    events
}

/// Returns one occurrence of a fault for each of its targets, at the first time from `earliest` on at which
/// enough targets are available.
fn occurrence(
    scenario: &Scenario,
    events: &[Event],
    index: usize,
    rng: &SeededRng,
    earliest: Duration,
) -> Vec<Event> {
    let Some(rule) = scenario.faults.get(index) else { return Vec::new() };
    let target = rule.fault.target;
    let (there, at_most) = match target {
        Target::Node => (scenario.nodes, scenario.at_most()),
        Target::Worker => (scenario.load.workers, scenario.load.workers),
    };
    let of_same = |event: &&Event| {
        let other = scenario.faults.get(event.rule).map(|rule| rule.fault.target);
        event.settled > earliest && other == Some(target)
    };
    let others: Vec<&Event> = events.iter().filter(of_same).collect();
    let (lasts, random) = (rule.lasts.throw(rng), rng.next_u64());
    let aftermath = if rule.fault.quarantines { scenario.quarantine() + RETURN } else { Duration::ZERO };
    let home = (rule.aim == Aim::Home).then(|| scenario.home());
    let is_aimed_at = |number: &usize| home.is_none_or(|home| home == *number);
    let mut moments: Vec<Duration> = others.iter().map(|event| event.settled).chain([earliest]).collect();
    moments.sort_unstable();
    for from in moments {
        let (until, settled) = (from + lasts, from + lasts + aftermath);
        let meets = |event: &&&Event| event.from < settled.max(from + RETURN) && event.settled > from;
        let is_free = |number: &usize| others.iter().filter(meets).all(|event| event.hit.target != *number);
        let free: Vec<usize> = (0..there).filter(is_free).collect();
        let within_reach = there - free.len() + rule.hits <= at_most;
        let free: Vec<usize> = free.into_iter().filter(is_aimed_at).collect();
        if free.len() >= rule.hits && within_reach {
            let event = |target| Event { rule: index, hit: Hit { target, random }, from, until, settled };
            return rng.sample(rule.hits, &free).into_iter().map(event).collect();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_schedule_follows_from_the_seed() {
        for name in crate::scenario::names().filter(|name| *name != "calm") {
            let scenario = Scenario::find(name).unwrap();
            let minute = |seed| schedule(&scenario, seed, Duration::from_secs(60));
            assert_eq!(minute(1), minute(1), "{name}");
            assert_ne!(minute(1), minute(2), "{name}");
            assert!(!minute(1).is_empty(), "{name}");
        }
    }

    #[test]
    fn no_more_nodes_are_faulty_than_the_scenario_allows() {
        for name in crate::scenario::names() {
            let scenario = Scenario::find(name).unwrap();
            let events = schedule(&scenario, 7, HOUR / 10);
            let of_nodes: Vec<&Event> = events
                .iter()
                .filter(|event| scenario.faults[event.rule].fault.target == Target::Node)
                .collect();
            for event in &of_nodes {
                let meanwhile = |other: &&&Event| other.from <= event.from && event.from < other.settled;
                let out = of_nodes.iter().filter(meanwhile).count();
                assert!(out <= scenario.at_most(), "{name}: {out} at {:?}", event.from);
            }
        }
    }

    #[test]
    fn a_fault_at_home_hits_only_the_node_with_the_queue() {
        let scenario = Scenario::find("offers").unwrap();
        let events = schedule(&scenario, 7, HOUR / 10);
        let at_home = events.iter().filter(|event| scenario.faults[event.rule].aim == Aim::Home);
        let hit: std::collections::BTreeSet<usize> = at_home.map(|event| event.hit.target).collect();
        assert_eq!(hit, [scenario.home()].into());
    }

    #[test]
    fn no_target_has_two_faults_at_a_time() {
        let scenario = Scenario::find("everything").unwrap();
        let events = schedule(&scenario, 3, HOUR / 10);
        for (index, event) in events.iter().enumerate() {
            let target = |event: &Event| (scenario.faults[event.rule].fault.target, event.hit.target);
            let clash = events[..index]
                .iter()
                .find(|other| target(other) == target(event) && other.settled > event.from);
            assert_eq!(clash, None, "{event:?}");
        }
    }

    #[test]
    fn every_fault_of_a_scenario_occurs_with_every_seed() {
        for name in crate::scenario::names() {
            let scenario = Scenario::find(name).unwrap();
            for seed in 0..100 {
                let events = schedule(&scenario, seed, scenario.duration);
                for (index, rule) in scenario.faults.iter().enumerate() {
                    let comes = events.iter().any(|event| event.rule == index);
                    assert!(comes, "{name}: {} does not come with the seed {seed}", rule.kind);
                }
            }
        }
    }
}
