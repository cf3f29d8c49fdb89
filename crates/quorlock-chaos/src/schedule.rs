//! What goes wrong when: a pure function of scenario, seed and duration.

use std::time::Duration;

use crate::dice::Dice;
use crate::fault::{Aftermath, Hit, Target};
use crate::scenario::Scenario;

/// One fault of one node or worker. Times count from the beginning of the schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    /// Which of the scenario's faults.
    pub(crate) plague: usize,
    pub(crate) hit: Hit,
    pub(crate) from: Duration,
    /// When it is undone.
    pub(crate) until: Duration,
    /// When the target is of full use again.
    pub(crate) settled: Duration,
}

/// A restarted server is dialled again, and introduces itself.
const RETURN: Duration = Duration::from_millis(300);

/// The whole schedule, in order. Never are more nodes out of order at a time than the scenario
/// allows, and nothing is hit by two faults at once: what cannot be done without that is left out.
pub(crate) fn schedule(scenario: &Scenario, seed: u64, duration: Duration) -> Vec<Event> {
    let mut plagues: Vec<(Duration, Dice)> = scenario
        .faults
        .iter()
        .enumerate()
        .map(|(index, plague)| {
            let dice = Dice::new(seed, &format!("{} {index}", plague.kind));
            (dice.between(Duration::ZERO, plague.every.most), dice)
        })
        .collect();
    let mut events: Vec<Event> = Vec::new();
    while let Some((index, (next, dice))) = plagues
        .iter_mut()
        .enumerate()
        .min_by_key(|(_, (next, _))| *next)
        .filter(|(_, (next, _))| *next < duration)
    {
        let now = *next;
        events.extend(outbreak(scenario, &events, index, dice, now));
        if let Some(plague) = scenario.faults.get(index) {
            *next = now + plague.every.throw(dice).max(Duration::from_millis(1));
        }
    }
    events
}

/// One fault, at as many targets as it hits; nothing if they are not to be had.
fn outbreak(scenario: &Scenario, events: &[Event], index: usize, dice: &Dice, now: Duration) -> Vec<Event> {
    let Some(plague) = scenario.faults.get(index) else { return Vec::new() };
    let target = plague.fault.target();
    let (there, at_most) = match target {
        Target::Node => (scenario.nodes, scenario.at_most()),
        Target::Worker => (scenario.load.workers, scenario.load.workers),
    };
    let busy = |number: usize| {
        events.iter().any(|event| {
            let other = scenario.faults.get(event.plague).map(|plague| plague.fault.target());
            event.hit.target == number && event.settled > now && other == Some(target)
        })
    };
    let free: Vec<usize> = (0..there).filter(|&number| !busy(number)).collect();
    // Thrown in any case, so that the fate of one fault does not change that of the next.
    let lasts = plague.lasts.throw(dice);
    let targets = dice.draw(plague.hits, &free);
    if targets.len() < plague.hits || there - free.len() + plague.hits > at_most {
        return Vec::new();
    }
    let event = |target| {
        let hit = Hit { target, luck: dice.luck() };
        let until = now + lasts;
        let settled = match plague.fault.aftermath(hit.luck) {
            Aftermath::None => until,
            Aftermath::Quarantine => until + scenario.quarantine() + RETURN,
        };
        Event { plague: index, hit, from: now, until, settled }
    };
    targets.into_iter().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_same_seed_makes_the_same_schedule_and_another_one_another() {
        for name in crate::scenario::names().filter(|name| *name != "calm") {
            let scenario = Scenario::find(name).unwrap();
            let minute = |seed| schedule(&scenario, seed, Duration::from_secs(60));
            assert_eq!(minute(1), minute(1), "{name}");
            assert_ne!(minute(1), minute(2), "{name}");
            assert!(!minute(1).is_empty(), "{name}");
        }
    }

    #[test]
    fn never_are_more_nodes_out_of_order_than_the_scenario_allows() {
        for name in crate::scenario::names() {
            let scenario = Scenario::find(name).unwrap();
            let events = schedule(&scenario, 7, HOUR / 10);
            let of_nodes: Vec<&Event> = events
                .iter()
                .filter(|event| scenario.faults[event.plague].fault.target() == Target::Node)
                .collect();
            for event in &of_nodes {
                let meanwhile = |other: &&&Event| other.from <= event.from && event.from < other.settled;
                let out = of_nodes.iter().filter(meanwhile).count();
                assert!(out <= scenario.at_most(), "{name}: {out} at {:?}", event.from);
            }
        }
    }

    #[test]
    fn nothing_is_hit_by_two_faults_at_once() {
        let scenario = Scenario::find("everything").unwrap();
        let events = schedule(&scenario, 3, HOUR / 10);
        for (index, event) in events.iter().enumerate() {
            let target = |event: &Event| (scenario.faults[event.plague].fault.target(), event.hit.target);
            let clash = events[..index]
                .iter()
                .find(|other| target(other) == target(event) && other.settled > event.from);
            assert_eq!(clash, None, "{event:?}");
        }
    }

    #[test]
    fn every_fault_of_a_scenario_comes() {
        for name in crate::scenario::names() {
            let scenario = Scenario::find(name).unwrap();
            let events = schedule(&scenario, 5, HOUR / 10);
            for (index, plague) in scenario.faults.iter().enumerate() {
                let often = events.iter().filter(|event| event.plague == index).count();
                assert!(often > 3, "{name}: {} came {often} times in six minutes", plague.kind);
            }
        }
    }
}
