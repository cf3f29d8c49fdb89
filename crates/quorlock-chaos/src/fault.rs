//! The faults of nodes, network and workers. A new kind of fault is a constant in [`plain`], or a file in `fault/` if
//! it has settings, and a line in [`KINDS`].

use std::fmt;
use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::environment::{Environment, Memory};
use crate::masters::Need;
use crate::span::{Span, duration};

mod clock;
mod kill;
mod plain;
mod promote;
mod silence;
mod slow;

/// Every kind of fault by its name in scenarios.
const KINDS: &[(&str, Make)] = &[
    ("kill", |text| Ok(Box::new(kill::Kill::new(text)))),
    ("freeze", |_| Ok(Box::new(plain::FREEZE))),
    ("cut", |_| Ok(Box::new(plain::CUT))),
    ("refuse", |_| Ok(Box::new(plain::REFUSE))),
    ("slow", slow::Slow::make),
    ("silence", |text| Ok(Box::new(silence::Silence::new(Target::Node, text)))),
    ("flush", |_| Ok(Box::new(plain::FLUSH))),
    ("delete-keys", |_| Ok(Box::new(plain::DELETE))),
    ("crowd", |_| Ok(Box::new(plain::CROWD))),
    ("memory", |_| Ok(Box::new(plain::MEMORY))),
    ("clock-step", clock::Step::make),
    ("clock-rate", clock::Rate::make),
    ("stop-backends", |_| Ok(Box::new(plain::STOP_BACKENDS))),
    ("promote", |text| Ok(Box::new(promote::Promote::new(text)))),
    ("disk-full", |_| Ok(Box::new(plain::DISK_FULL))),
    ("cut-off", |_| Ok(Box::new(plain::CUT_OFF))),
    ("hang-disk", |_| Ok(Box::new(plain::HANG_DISK))),
    ("isolate-worker", |text| Ok(Box::new(silence::Silence::new(Target::Worker, text)))),
    ("stop-worker", |_| Ok(Box::new(plain::STOP_WORKER))),
    ("kill-worker", |_| Ok(Box::new(plain::KILL_WORKER))),
];

/// Makes a fault from its settings.
type Make = fn(&FaultRuleText) -> Made;
/// A fault, or what is wrong with its settings.
type Made = Result<Box<dyn Fault>, String>;

/// A fault that can be injected and healed.
pub(crate) trait Fault: fmt::Debug + Send + Sync {
    /// Returns whether it is a fault of a node or of a worker.
    fn target(&self) -> Target {
        Target::Node
    }

    /// Describes what is done to the target: `killed, restarted empty`.
    fn describe(&self, random: u64, servers: Memory) -> String;

    /// Returns whether the target is fully usable only some time after the fault has healed.
    fn aftermath(&self, random: u64) -> Aftermath {
        let _ = random;
        Aftermath::None
    }

    /// Returns who is impaired by the fault.
    fn hinders(&self) -> Hinders {
        Hinders::Target
    }

    /// Returns what the fault requires of the masters.
    fn needs(&self) -> Need {
        Need::Nothing
    }

    /// Injects the fault.
    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>>;

    /// Heals the fault, if that requires an action.
    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        let _ = (environment, hit);
        Box::pin(async { Ok(()) })
    }
}

/// One occurrence of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hit {
    /// The node or worker, counted from 0.
    pub(crate) target: usize,
    /// A random number that decides where a fault has a choice.
    pub(crate) random: u64,
}

/// What a fault affects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Node,
    Worker,
}

/// What a fault impairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hinders {
    Target,
    /// The worker runs on, but reaches no node: it is notified of losses in time, but its keys may remain
    /// on any node.
    WayToNodes,
}

/// What remains after a fault has healed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aftermath {
    None,
    /// The node does not vote yet, or has lost keys that only a renewal restores.
    Quarantine,
}

/// A kind of fault with its settings and times, as a scenario asks for it.
#[derive(Debug)]
pub(crate) struct FaultRule {
    pub(crate) kind: &'static str,
    pub(crate) fault: Box<dyn Fault>,
    /// The time from one occurrence to the next.
    pub(crate) every: Span,
    /// The duration of each occurrence.
    pub(crate) lasts: Span,
    /// How many nodes or workers each occurrence affects.
    pub(crate) hits: usize,
    /// Which nodes or workers it may affect.
    pub(crate) aim: Aim,
}

/// Which nodes or workers a fault may affect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Aim {
    #[default]
    Any,
    /// The node that keeps the queue of the only lock.
    Home,
}

/// A fault rule as it is written in a scenario.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FaultRuleText {
    kind: String,
    every: Span,
    #[serde(default)]
    lasts: Span,
    #[serde(default = "one")]
    hits: usize,
    #[serde(default)]
    target: Aim,
    // The settings of some kinds.
    restart: Option<Restart>,
    delay: Option<Span>,
    #[serde(default, deserialize_with = "duration")]
    jitter: Duration,
    way: Option<Direction>,
    #[serde(default)]
    seconds: Option<f64>,
    rate: Option<f64>,
}

/// How a killed master restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Restart {
    Empty,
    WithData,
    Either,
}

/// Which traffic is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Direction {
    Requests,
    Answers,
    Both,
    Any,
}

impl<'de> Deserialize<'de> for FaultRule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FaultRule, D::Error> {
        FaultRule::try_from(FaultRuleText::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl TryFrom<FaultRuleText> for FaultRule {
    type Error = String;

    fn try_from(text: FaultRuleText) -> Result<FaultRule, String> {
        let known = KINDS.iter().find(|(name, _)| *name == text.kind);
        let &(kind, make) = known.ok_or_else(|| {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            format!("unknown fault `{}`; known are {}", text.kind, names.join(", "))
        })?;
        if text.every.most.is_zero() {
            return Err(format!("`every` of `{kind}` is zero"));
        }
        let fault = make(&text).map_err(|why| format!("`{kind}`: {why}"))?;
        let FaultRuleText { every, lasts, hits, target: aim, .. } = text;
        Ok(FaultRule { kind, fault, every, lasts, hits, aim })
    }
}

fn one() -> usize {
    1
}

impl Direction {
    /// Returns the direction, and chooses one for `any`.
    fn way(self, random: u64) -> quorlock_servers::Way {
        use quorlock_servers::Way;

        match self {
            Direction::Requests => Way::ToServer,
            Direction::Answers => Way::ToClient,
            Direction::Both => Way::Both,
            Direction::Any => match random % 3 {
                0 => Way::ToServer,
                1 => Way::ToClient,
                _ => Way::Both,
            },
        }
    }
}

/// Describes which traffic is lost.
fn lost(way: quorlock_servers::Way) -> &'static str {
    use quorlock_servers::Way;

    match way {
        Way::ToServer => "requests lost",
        Way::ToClient => "answers lost",
        Way::Both => "cut off",
    }
}
