//! What can be done to nodes, network and workers. A new fault is a file in `fault/` and a line here.

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
mod crowd;
mod cut;
mod disk;
mod flush;
mod freeze;
mod kill;
mod kill_worker;
mod memory;
mod promote;
mod refuse;
mod silence;
mod slow;
mod stop_backends;
mod stop_worker;

/// Every kind by the name that it has in scenarios.
const KINDS: &[(&str, Make)] = &[
    ("kill", |options| Ok(Box::new(kill::Kill::new(options)))),
    ("freeze", |_| Ok(Box::new(freeze::Freeze))),
    ("cut", |_| Ok(Box::new(cut::Cut))),
    ("refuse", |_| Ok(Box::new(refuse::Refuse))),
    ("slow", slow::Slow::make),
    ("silence", |options| Ok(Box::new(silence::Silence::new(Target::Node, options)))),
    ("flush", |_| Ok(Box::new(flush::Flush))),
    ("crowd", |_| Ok(Box::new(crowd::Crowd))),
    ("memory", |_| Ok(Box::new(memory::Memory))),
    ("clock-step", clock::Step::make),
    ("clock-rate", clock::Rate::make),
    ("stop-backends", |_| Ok(Box::new(stop_backends::StopBackends))),
    ("promote", |options| Ok(Box::new(promote::Promote::new(options)))),
    ("disk-full", |_| Ok(Box::new(disk::DiskFull))),
    ("isolate-worker", |options| Ok(Box::new(silence::Silence::new(Target::Worker, options)))),
    ("stop-worker", |_| Ok(Box::new(stop_worker::StopWorker))),
    ("kill-worker", |_| Ok(Box::new(kill_worker::KillWorker))),
];

/// Makes a fault of its settings.
type Make = fn(&Options) -> Made;
/// A fault, or what its settings lack.
type Made = Result<Box<dyn Fault>, String>;

/// Something that can be done, and undone.
pub(crate) trait Fault: fmt::Debug + Send + Sync {
    /// What it is done to.
    fn target(&self) -> Target;

    /// What was done, for people: `killed, restarted empty`.
    fn describe(&self, random: u64, servers: Memory) -> String;

    /// Whether the node is of full use only some time after the fault has healed.
    fn aftermath(&self, random: u64) -> Aftermath {
        let _ = random;
        Aftermath::None
    }

    /// Who cannot do what it wants meanwhile.
    fn hinders(&self) -> Hinders {
        Hinders::Target
    }

    /// What it takes.
    fn needs(&self) -> Need {
        Need::Nothing
    }

    /// Does it.
    fn begin<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>>;

    /// Undoes it, where that takes something.
    fn heal<'a>(&'a self, environment: &'a Environment, hit: Hit) -> BoxFuture<'a, io::Result<()>> {
        let _ = (environment, hit);
        Box::pin(async { Ok(()) })
    }
}

/// One time that a fault is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hit {
    /// Which node or worker, counted from 0.
    pub(crate) target: usize,
    /// What chance has given it: where a fault has a choice, this decides.
    pub(crate) random: u64,
}

/// What a fault is done to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Node,
    Worker,
}

/// Whom a fault hinders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hinders {
    Target,
    /// The worker goes on, and reaches nobody: so it is told of its losses in time, but its keys may
    /// stand at any node.
    WayToNodes,
}

/// What is left of a fault that has healed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aftermath {
    None,
    /// The node does not vote, or has forgotten keys that a renewal has to bring back.
    Quarantine,
}

/// A kind that a scenario asks for, with its settings, and when.
#[derive(Debug)]
pub(crate) struct FaultRule {
    pub(crate) kind: &'static str,
    pub(crate) fault: Box<dyn Fault>,
    /// The time from one to the next.
    pub(crate) every: Span,
    /// How long each lasts.
    pub(crate) lasts: Span,
    /// How many nodes or workers each hits.
    pub(crate) hits: usize,
    /// Which.
    pub(crate) aim: Aim,
}

/// Which nodes or workers a fault may hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Aim {
    #[default]
    Any,
    /// The node that keeps the queue of the only lock.
    Home,
}

/// As it stands in the file.
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
    restart: Option<Restart>,
    delay: Option<Span>,
    #[serde(default, deserialize_with = "duration")]
    jitter: Duration,
    way: Option<Direction>,
    #[serde(default)]
    seconds: Option<f64>,
    rate: Option<f64>,
}

/// The settings that some kinds have.
struct Options {
    restart: Option<Restart>,
    delay: Option<Span>,
    jitter: Duration,
    way: Option<Direction>,
    seconds: Option<f64>,
    rate: Option<f64>,
}

/// How a killed master comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Restart {
    Empty,
    WithData,
    Either,
}

/// What does not get through.
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
        let FaultRuleText {
            kind,
            every,
            lasts,
            hits,
            target: aim,
            restart,
            delay,
            jitter,
            way,
            seconds,
            rate,
        } = text;
        let known = KINDS.iter().find(|(name, _)| *name == kind);
        let &(kind, make) = known.ok_or_else(|| {
            let names: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
            format!("there is no fault `{kind}`; there are {}", names.join(", "))
        })?;
        if every.most.is_zero() {
            return Err(format!("`every` of `{kind}` is zero"));
        }
        let options = Options { restart, delay, jitter, way, seconds, rate };
        let fault = make(&options).map_err(|why| format!("`{kind}`: {why}"))?;
        Ok(FaultRule { kind, fault, every, lasts, hits, aim })
    }
}

fn one() -> usize {
    1
}

impl Direction {
    /// What becomes of `any`, by random.
    fn way(self, random: u64) -> quorlock_testkit::Way {
        use quorlock_testkit::Way;

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

/// What gets lost, for people.
fn lost(way: quorlock_testkit::Way) -> &'static str {
    use quorlock_testkit::Way;

    match way {
        Way::ToServer => "requests lost",
        Way::ToClient => "answers lost",
        Way::Both => "cut off",
    }
}
