//! The server processes that have answered at one address, and whether they alternate.
//!
//! Each process has a unique ID, new at its start. One that comes back after another shows that there are
//! several servers at the address: a load balancer, or a proxy that chooses. Such an address cannot be a
//! node, since one server does not know what the other grants.

use std::time::Duration;

use super::process::Process;
use crate::node::{NodeError, NodeErrorKind};
use quorlock_protocol::Moment;

/// The number of remembered processes.
const MOST: usize = 16;
/// How long only one process must answer until its votes count again: the address may have moved from one
/// server to another and back once.
const ALONE: Duration = Duration::from_secs(60);

/// The processes that have answered at an address, the last one last.
#[derive(Default)]
pub(super) struct SeenProcesses {
    processes: Vec<(String, Option<String>)>,
    /// When one came back after another, and which they were.
    by_turns: Option<(Moment, NodeError)>,
}

impl SeenProcesses {
    /// Records that this process answered at `now`. Returns an error if processes alternate.
    pub(super) fn note(&mut self, process: &Process, now: Moment) -> Result<(), NodeError> {
        // A promotion makes another process of it, which may well come back.
        let seen_processes = (process.run_id.clone(), process.history.clone());
        let last = self.processes.last();
        if last != Some(&seen_processes) {
            if let (Some(known), Some(last)) =
                (self.processes.iter().position(|known| *known == seen_processes), last)
            {
                self.by_turns = Some((now, by_turns(&seen_processes.0, &last.0)));
                self.processes.remove(known);
            }
            if self.processes.len() >= MOST {
                self.processes.remove(0);
            }
            self.processes.push(seen_processes);
        }
        match &self.by_turns {
            Some((seen, error)) if now.since(*seen) < ALONE => Err(error.clone()),
            Some(_) | None => Ok(()),
        }
    }
}

fn by_turns(one: &str, other: &str) -> NodeError {
    let short = |id: &str| id.chars().take(8).collect::<String>();
    let (one, other) = (short(one), short(other));
    let reason = format!(
        "several servers answer at its address alternately (run_id {one}…, {other}…, and {one}… again), as behind a \
         balancer: what one grants the other does not know; give each server an address of its own"
    );
    NodeError::Unfit { kind: NodeErrorKind::WrongServer, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(run_id: &str, history: Option<&str>) -> Process {
        Process {
            run_id: run_id.into(),
            uptime: Duration::ZERO,
            clock_set_back: false,
            turns: None,
            history: history.map(Into::into),
        }
    }

    fn seconds(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn i23_a_process_that_comes_back_after_another_shows_a_balancer() {
        let mut seen_processes = SeenProcesses::default();
        let mut note = |run_id, at| seen_processes.note(&process(run_id, None), seconds(at));
        assert!(note("a", 1).is_ok() && note("a", 2).is_ok() && note("b", 3).is_ok(), "one restart");
        let error = note("a", 4).unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("run_id a…, b…, and a… again"), "{error}");
        assert!(note("a", 5).is_err() && note("b", 6).is_err(), "none of the processes votes");
        assert!(note("b", 65).is_err());
        assert!(note("b", 66).is_ok(), "only one process has answered for a minute");
        assert!(note("a", 67).is_err());
    }

    #[test]
    fn restarts_and_promotions_show_none() {
        let mut seen_processes = SeenProcesses::default();
        for restart in 0..100 {
            assert!(seen_processes.note(&process(&restart.to_string(), None), seconds(restart)).is_ok());
        }
        assert!(seen_processes.processes.len() <= MOST);
        let mut seen_processes = SeenProcesses::default();
        for (run_id, history) in [("a", None), ("b", Some("1")), ("a", Some("2")), ("b", Some("3"))] {
            assert!(
                seen_processes.note(&process(run_id, history), seconds(1)).is_ok(),
                "{run_id} was promoted"
            );
        }
    }
}
