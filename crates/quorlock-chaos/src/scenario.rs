//! Scenarios: which faults are injected, and what is expected. Each is a small file.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::time::Duration;

use quorlock::protocol::preferred_node;
use quorlock_history::Check;
use serde::Deserialize;

use crate::error::Failure;
use crate::fault::{Aim, FaultRule, Target};
use crate::load::Load;
use crate::span::duration;

macro_rules! built_in {
    ($($name:literal)+) => {
        &[$(($name, include_str!(concat!("../scenarios/", $name, ".toml")))),+]
    };
}

/// The built-in scenarios, each a file in `scenarios/`.
const BUILT_IN: &[(&str, &str)] = built_in!(
    "calm" "kill-masters" "rolling-restart" "majority-restart" "freeze-masters" "reset-connections" "slow-network"
    "one-way-loss" "partition" "outage" "flush-one" "flush-quorum" "too-many-clients" "out-of-memory"
    "clock-steps" "clock-rates" "stop-workers" "kill-workers" "cancellations" "readers" "several"
    "semaphore" "election" "offers" "without-fencing" "three-zones" "three-regions" "five-continents"
    "everything" "redisson" "postgres-three" "postgres-promotion" "postgres-disk-full" "mariadb-three"
    "etcd-three" "zookeeper-three" "etcd-hanging-disk" "violation-guard-off" "violation-delete-all"
    "violation-clock-jump" "violation-fast-clocks" "violation-postgres-promotion" "violation-unchecked"
    "violation-etcd-unchecked"
);

/// Returns the names of the built-in scenarios.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|&(name, _)| name)
}

/// One scenario.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Scenario {
    #[serde(skip)]
    pub(crate) name: String,
    /// The file, for the record.
    #[serde(skip)]
    pub(crate) text: String,
    /// A description in one sentence.
    pub(crate) summary: String,
    /// How long faults are injected.
    #[serde(default = "defaults::duration", deserialize_with = "duration")]
    pub(crate) duration: Duration,
    /// What the nodes are.
    #[serde(default)]
    pub(crate) servers: ServerKind,
    #[serde(default = "defaults::nodes")]
    pub(crate) nodes: usize,
    /// How many nodes may be faulty at a time: a minority unless set.
    #[serde(default)]
    pub(crate) at_most: Option<usize>,
    /// Whether servers write every change to disk before they answer.
    #[serde(default)]
    pub(crate) durable: bool,
    #[serde(default)]
    pub(crate) locks: Locks,
    #[serde(default)]
    pub(crate) load: Load,
    /// The name of a layout in `layouts/`.
    #[serde(default)]
    pub(crate) layout: Option<String>,
    #[serde(default, rename = "fault")]
    pub(crate) faults: Vec<FaultRule>,
    #[serde(default)]
    pub(crate) expect: Expect,
}

/// The kind of servers that are the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ServerKind {
    #[default]
    Redis,
    /// One Redis server, with locks in Redisson's layout.
    Redisson,
    Postgres,
    MariaDb,
    /// The members of one cluster.
    Etcd,
    /// The members of one ensemble.
    ZooKeeper,
}

impl ServerKind {
    /// Returns by how much a key may outlive its TTL. A MariaDB client extrapolates the clock of the server
    /// since it last read it, and so may be ahead by up to one round trip, which is limited by its timeout of
    /// three seconds. A new leader of etcd or ZooKeeper gives each lease or session its full time again, and rounds up.
    pub(crate) fn longer(self) -> Duration {
        match self {
            ServerKind::Redis | ServerKind::Redisson | ServerKind::Postgres => Duration::ZERO,
            ServerKind::MariaDb => Duration::from_secs(3),
            ServerKind::Etcd | ServerKind::ZooKeeper => Duration::from_secs(20),
        }
    }
}

/// The locks, and how they are configured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Locks {
    /// How many locks the workers contend for.
    pub(crate) count: usize,
    /// The number of permits of each semaphore.
    pub(crate) semaphores: Vec<usize>,
    /// The number of elections; each worker observes all of them.
    pub(crate) elections: usize,
    /// The TTL of every lock, and the `max_ttl` of the deployment.
    #[serde(deserialize_with = "duration")]
    pub(crate) ttl: Duration,
    pub(crate) drift: f64,
    pub(crate) restart_guard: bool,
    /// Whether leases have a fencing token. Without, workers do not write to the guarded resource.
    pub(crate) fencing: bool,
    /// Whether the guarded resource refuses a fencing token smaller than one before.
    pub(crate) register_checks: bool,
}

impl Default for Locks {
    fn default() -> Locks {
        Locks {
            count: 6,
            semaphores: Vec::new(),
            elections: 0,
            ttl: Duration::from_secs(1),
            drift: 0.01,
            restart_guard: true,
            fencing: true,
            register_checks: true,
        }
    }
}

/// The expectations.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Expect {
    /// Checks that must find violations, because the scenario breaks an assumption.
    pub(crate) violations: BTreeSet<Check>,
    /// Checks that may find violations.
    pub(crate) tolerated: BTreeSet<Check>,
    /// The share of acquisitions of uncontended locks that must succeed while at most a minority of the nodes
    /// is faulty.
    pub(crate) success: Option<f64>,
    /// How many late writes must be refused at least.
    pub(crate) refused_writes: usize,
    /// How many locks at least a quorum of the nodes must offer to the next waiter.
    pub(crate) offers: usize,
}

impl Scenario {
    /// Returns the built-in scenario of this name, or reads the one in this file.
    pub(crate) fn find(name: &str) -> Result<Scenario, Failure> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Scenario::parse(name, text);
        }
        let path = std::path::Path::new(name);
        if path.extension().is_none_or(|extension| extension != "toml") {
            return Err(Failure::NoScenario {
                name: name.to_owned(),
                known: names().collect::<Vec<_>>().join(", "),
            });
        }
        let text = fs::read_to_string(path).map_err(Failure::to(format!("read {name}")))?;
        let stem = path.file_stem().map_or(name.into(), |stem| stem.to_string_lossy());
        Scenario::parse(&stem, &text)
    }

    /// Parses and validates a scenario.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Scenario, Failure> {
        let wrong = |why: String| Failure::BadScenario { name: name.to_owned(), why };
        let mut scenario: Scenario = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        name.clone_into(&mut scenario.name);
        text.clone_into(&mut scenario.text);
        if scenario.nodes == 0 || scenario.load.workers == 0 {
            return Err(wrong("at least one node and one worker are needed".to_owned()));
        }
        if scenario.locks.count < 2 && scenario.load.nested > 0 {
            return Err(wrong(
                "nested holds need two locks; set `locks.count` or `load.nested = 0`".to_owned(),
            ));
        }
        if scenario.locks.count < 2 && scenario.load.several > 0 {
            return Err(wrong(
                "multi-locks need two locks; set `locks.count` or `load.several = 0`".to_owned(),
            ));
        }
        let Load { permits, differing, leading, .. } = scenario.load;
        if scenario.locks.semaphores.is_empty() && permits + differing > 0 {
            return Err(wrong("permits need a semaphore; set `locks.semaphores`".to_owned()));
        }
        if scenario.locks.elections == 0 && leading > 0 {
            return Err(wrong("leaders need an election; set `locks.elections`".to_owned()));
        }
        for rule in &scenario.faults {
            let there = match rule.fault.target {
                Target::Node => scenario.at_most(),
                Target::Worker => scenario.load.workers,
            };
            if rule.aim == Aim::Home
                && (rule.fault.target != Target::Node || rule.hits != 1 || scenario.locks.count != 1)
            {
                return Err(wrong(format!(
                    "`{}` with `target = \"home\"` needs exactly one lock; set `locks.count = 1` and `hits = 1`",
                    rule.kind
                )));
            }
            if rule.hits == 0 || rule.hits > there {
                let FaultRule { kind, hits, .. } = rule;
                return Err(wrong(format!("`{kind}` has `hits = {hits}`, allowed are 1 to {there}")));
            }
        }
        Ok(scenario)
    }

    /// Returns how many nodes may be faulty at a time.
    pub(crate) fn at_most(&self) -> usize {
        self.at_most.unwrap_or_else(|| self.minority()).min(self.nodes)
    }

    /// Returns how many nodes may be faulty without affecting locks.
    pub(crate) fn minority(&self) -> usize {
        self.nodes.saturating_sub(1) / 2
    }

    /// Returns the node that stores the queue of the first lock.
    pub(crate) fn home(&self) -> usize {
        preferred_node(&lock_name(1), self.nodes)
    }

    /// Returns how long a restarted node does not vote, which is also the time in which a lost key is restored
    /// by a renewal or its lease is over.
    pub(crate) fn quarantine(&self) -> Duration {
        self.locks.ttl.mul_f64(1.0 + self.locks.drift)
    }
}

/// Returns the name of a contended lock, counted from 1.
pub(crate) fn lock_name(number: usize) -> String {
    format!("lock-{number}")
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.violations.is_empty() {
            f.write_str("no violation")?;
        } else {
            let names: Vec<_> = self.violations.iter().map(ToString::to_string).collect();
            write!(f, "violations of {}, to prove that they are detected", names.join(" and "))?;
        }
        if let Some(success) = self.success {
            write!(
                f,
                "; at least {} % of uncontended locks acquired with a faulty minority",
                success * 100.0
            )?;
        }
        if self.refused_writes > 0 {
            write!(f, "; late writes refused")?;
        }
        if self.offers > 0 {
            write!(f, "; locks offered to the next waiter")?;
        }
        Ok(())
    }
}

mod defaults {
    use std::time::Duration;

    pub(super) fn duration() -> Duration {
        Duration::from_secs(20)
    }

    pub(super) fn nodes() -> usize {
        5
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer as _;

    use super::*;

    #[test]
    fn every_built_in_scenario_is_valid() {
        for name in names() {
            let scenario = Scenario::find(name).unwrap();
            assert!(
                scenario.summary.ends_with(|c: char| c.is_alphanumeric()),
                "{name}: ends with a full stop"
            );
            assert_eq!(!scenario.expect.violations.is_empty(), name.starts_with("violation-"), "{name}");
        }
    }

    #[test]
    fn every_kind_that_can_be_started_has_masters() {
        for launcher in quorlock_kinds::KINDS.iter().filter_map(quorlock_kinds::KindOfNode::launcher) {
            let named: Result<ServerKind, serde::de::value::Error> =
                ServerKind::deserialize(launcher.name.into_deserializer());
            assert!(named.is_ok(), "no scenario can have `servers = \"{}\"`", launcher.name);
        }
    }

    #[test]
    fn every_scenario_file_is_listed() {
        let files = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios")).unwrap();
        let mut found: Vec<String> = files
            .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        let mut listed: Vec<&str> = names().collect();
        found.sort();
        listed.sort_unstable();
        assert_eq!(found, listed);
    }

    #[test]
    fn an_invalid_scenario_is_refused_with_the_reason() {
        let refused = |text: &str| Scenario::parse("odd", text).err().unwrap().to_string();
        assert!(refused("summary = 'x'\nnodes = 0").contains("at least one node"));
        assert!(
            refused("summary = 'x'\n[[fault]]\nkind = 'kill'\nevery = '1s'\nhits = 3")
                .contains("allowed are 1 to 2")
        );
        assert!(refused("summary = 'x'\n[load]\npermits = 1").contains("locks.semaphores"));
        assert!(refused("summary = 'x'\n[load]\nleading = 1").contains("locks.elections"));
        assert!(refused("summary = 'x'\n[[fault]]\nkind = 'kil'\nevery = '1s'").contains("kil"));
        assert!(
            refused("summary = 'x'\nlocks.count = 1\nload.nested = 0\nload.several = 1")
                .contains("need two locks")
        );
        assert!(refused("summary = 'x'\nno-such-setting = 1").contains("no-such-setting"));
        assert!(refused("summary = 'x'\n[[fault]]\nkind = 'freeze'\nevery = '0s'").contains("zero"));
        let home = "[[fault]]\nevery = '1s'\ntarget = 'home'\nkind =";
        assert!(refused(&format!("summary = 'x'\n{home} 'freeze'")).contains("locks.count = 1"));
        let one = "summary = 'x'\nlocks.count = 1\nload.nested = 0\n";
        assert!(refused(&format!("{one}{home} 'kill-worker'")).contains("exactly one lock"));
        assert!(Scenario::parse("fine", &format!("{one}{home} 'freeze'")).is_ok());
        let unknown = Scenario::find("kill-master").err().unwrap().to_string();
        assert!(unknown.contains("kill-masters"), "{unknown}");
    }
}
